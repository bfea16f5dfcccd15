"""What Prime-RL has written, damaged: a watcher ends with a status, and one line where it can't."""

from __future__ import annotations

import os
import random
import shutil
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tbtui.cli import app
from tests.attacks.run_damage import changed, replaced
from tests.attacks.test_run_directories import ending, limit
from tests.engines.prime_rl.recorded_run import RecordedRun

MANY = int(os.environ.get("TBTUI_DAMAGED_RUNS", "25"))
FIRST = int(os.environ.get("TBTUI_DAMAGED_RUNS_FROM", "0"))


def damaged(run: Path, chance: random.Random) -> str:
    files = [each for each in sorted(run.rglob("*")) if each.is_file()]
    path = chance.choice([*files, *(each.parent for each in files if each.parent != run)])
    if path.is_file() and chance.random() < 0.7:
        lines = path.read_text().split("\n")
        at = chance.randrange(len(lines))
        lines[at] = changed(lines[at], chance)
        path.write_text("\n".join(lines), errors="replace")
        return f"{path.relative_to(run)}: {lines[at][:200]!r}"
    if chance.random() < 0.2:
        (run / "rollouts" / f"step_{chance.choice(('²', '9' * 200, '٣', '-1', 'x'))}").mkdir()
        return "a step of another name"
    return f"{path.relative_to(run)}: {replaced(path, chance)}"


@pytest.mark.slow
@pytest.mark.timeout(0)
def test_damaged_in_many_ways(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    RecordedRun(tmp_path / "sound").whole()
    broken: list[str] = []
    for seed in range(FIRST, FIRST + MANY):
        run, into = tmp_path / f"run-{seed}", tmp_path / f"journal-{seed}"
        shutil.copytree(tmp_path / "sound", run, symlinks=True)
        done = damaged(run, random.Random(seed))
        with limit():
            result = CliRunner().invoke(
                app, ["prime-rl", "watch", str(run), "--into", str(into), "--once"]
            )
        broken += [f"seed {seed}: {done}: {each}" for each in ending(result)]
        shutil.rmtree(run, ignore_errors=True)
    sys.stdout.write("\n".join(broken))
    assert broken == []
