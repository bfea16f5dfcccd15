"""`tbtui diagnose` on real journals, as a person or a script runs it."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from tbtui.resources import tasks_dir

from .process import tbtui


def _faulty_tasks(where: Path) -> Path:
    """Copies of starter tasks, of which one has a verifier that writes no reward."""
    for name in ("copy-03", "copy-04", "create-01", "move-01"):
        shutil.copytree(tasks_dir() / "starter" / name, where / name)
    (where / "copy-04/tests/test.sh").write_text("#!/bin/bash\nexit 3\n")
    return where


@pytest.mark.slow
def test_faults_of_a_real_run_are_found_with_what_to_do(tmp_path: Path) -> None:
    tasks = _faulty_tasks(tmp_path / "tasks")
    ran = tbtui(
        *("run", "--no-ui", "max_steps=2", f"tasks_dir={tasks}", "eval_tasks=move-01"),
        *("eval_every=0", "batch_size=3", "group_size=4", "max_tokens=14"),
        *("run_name=faulty", "unfit_tasks=try", "check_zeros=never", "halt_after=100"),
        cwd=tmp_path,
    )
    assert (tmp_path / "runs/faulty/run.db").is_file(), ran.stderr
    done = tbtui("diagnose", "faulty", "--json", cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    document = json.loads(done.stdout)
    findings = {each["finding"]: each for each in document["findings"]}
    assert all(0 <= each["share"] <= 1 for each in document["findings"])
    truncated = findings["truncated_answers"]
    assert truncated["setting"] == "max_tokens"
    config = tmp_path / "runs/faulty/config.toml"
    assert truncated["command"] == f"tbtui run {config} run_name=none max_tokens=28"
    assert len(truncated["trend"]) == document["step"]
    cut_off = findings["output_truncated"]
    assert cut_off["trials"]
    assert re.match(r"\d+ of \d+ trials \(\d+%\)", cut_off["figure"])
    assert findings["unusable_tasks"]["why"].startswith("copy-04: the verifier gave no verdict")
    lines = tbtui("diagnose", "faulty", cwd=tmp_path).stdout
    assert "output truncated: " in lines
    assert f"command   {truncated['command']}" in lines
