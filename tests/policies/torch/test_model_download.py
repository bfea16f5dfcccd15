"""Models from the Hugging Face hub, through the command line and a stand-in for the hub."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.policies.torch.stand_in_hub import stand_in_hub

pytest.importorskip("torch", reason="needs the extra `torch`")
pytest.importorskip("peft", reason="needs the extra `torch`")
pytestmark = [pytest.mark.extras, pytest.mark.timeout(300)]

NAME = "org/starter"


def run(
    tmp_path: Path,
    endpoint: str,
    *settings: str,
    name: str = NAME,
    run_name: str = "a",
    **env: str,
) -> subprocess.CompletedProcess[str]:
    # Plain HTTP alone: the hub's other storage needs its servers.
    hub = {"HF_ENDPOINT": endpoint, "HF_HOME": str(tmp_path / "hub"), "HF_HUB_DISABLE_XET": "1"}
    env = {**hub, "HF_HUB_OFFLINE": "0", "TRANSFORMERS_OFFLINE": "0", **env}
    return subprocess.run(
        [
            *(sys.executable, "-m", "tbtui", "run", "--no-ui", f"model_name={name}"),
            *("renderer=embedded", "lora_rank=0", "train_device=cpu", "max_tokens=160"),
            *(
                "environment_type=sandbox",
                f"logs_dir={tmp_path}",
                f"run_name={run_name}",
                *settings,
            ),
        ],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
        env={**os.environ, "XDG_STATE_HOME": str(tmp_path / "state"), **env},
    )


def test_a_download_shows_its_progress_and_is_made_once(embedded: Path, tmp_path: Path) -> None:
    settings = ("max_steps=1", "batch_size=1", "group_size=2", "eval_every=0", "tasks=copy-01")
    size = (embedded / "model.safetensors").stat().st_size
    with stand_in_hub({NAME: embedded}, bytes_per_sec=size / 8) as endpoint:
        done = run(tmp_path, endpoint, *settings)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    told = re.findall(r"^start +downloading org/starter: ([\d.]+) MB of ([\d.]+) MB", done.stdout,
                      re.MULTILINE)  # fmt: skip
    assert len(told) >= 2, done.stdout
    got = [float(first) for first, _ in told]
    assert got == sorted(got)
    assert 0 < got[-1] <= float(told[-1][1])
    assert float(told[-1][1]) >= size / 1e6 - 0.1
    assert "start   loading the model" in done.stdout.split("downloading")[-1]
    # The hub is gone; the cache has everything.
    again = run(tmp_path, "http://127.0.0.1:9", *settings, run_name="b", HF_HUB_OFFLINE="1")
    assert again.returncode == 0, again.stdout[-2000:] + again.stderr[-2000:]
    assert "downloading" not in again.stdout


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("org/gated", "model_name=org/gated: it is gated: accept its licence"),
        ("org/none", "model_name=org/none: the Hugging Face hub has no such model"),
    ],
)
def test_a_model_that_the_hub_refuses_is_one_line(tmp_path: Path, name: str, line: str) -> None:
    with stand_in_hub({}, gated=frozenset(["org/gated"])) as endpoint:
        done = run(tmp_path, endpoint, name=name)
    assert done.returncode == 2, done.stdout[-2000:] + done.stderr[-2000:]
    assert line in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


def test_a_hub_out_of_reach_is_one_line(tmp_path: Path) -> None:
    done = run(tmp_path, "http://127.0.0.1:9")
    assert done.returncode == 2
    assert "and the hub can't be reached" in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr
