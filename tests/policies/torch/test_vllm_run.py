"""Runs with `sampler=vllm` through the command line and a stand-in server that computes: the
sentinel's findings, how a person lets the run go on, and a server that dies at its start."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs the extra `torch`")
pytest.importorskip("peft", reason="needs the extra `torch`")

from tbtui.journal.events import AlarmRaised, RunPaused, StepFinished
from tbtui.journal.rundir import RunDirectory
from tests.events import events_of
from tests.policies.torch.fake_vllm import make_home

pytestmark = [pytest.mark.extras, pytest.mark.timeout(300)]


def environment(tmp_path: Path) -> dict[str, str]:
    return {
        **os.environ,
        "XDG_STATE_HOME": str(tmp_path / "state"),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
    }


def start(model: Path, tmp_path: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [
            *(sys.executable, "-m", "tbtui", "run", "--no-ui", f"model_name={model}"),
            *("renderer=embedded", "sampler=vllm", "lora_rank=8", "learning_rate=1e-3"),
            *("train_device=cpu", "batch_size=4", "group_size=4", "eval_every=0", "seed=1"),
            *("eval_split=0", "environment_type=sandbox"),
            *(f"logs_dir={tmp_path}", "run_name=a", "max_steps=4"),
            *("max_turns=4", "max_tokens=64"),
        ],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment(tmp_path),
    )  # fmt: skip


def until_paused(run: subprocess.Popen[str], directory: RunDirectory) -> None:
    while run.poll() is None:
        if directory.database.is_file() and events_of(directory, RunPaused):
            return
        time.sleep(0.2)
    raise AssertionError(run.communicate()[0][-3000:])


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("stale@2", "the sampler still draws with version 1, not 2: on the probe it moved by"),
        ("corrupt@2", "the sampler's version 2 is not the trainer's: on the probe they differ by"),
    ],
)
def test_a_publication_that_fails_pauses_the_run_until_a_person_resumes_it(
    embedded: Path, tmp_path: Path, fault: str, words: str
) -> None:
    make_home(tmp_path / "cache/tbtui/vllm", fault, module="computing_vllm")
    run = start(embedded, tmp_path)
    directory = RunDirectory(tmp_path / "a")
    try:
        until_paused(run, directory)
        (alarm,) = events_of(directory, AlarmRaised)
        assert (alarm.alarm, alarm.action) == ("sampler_mismatch", "pause")
        assert alarm.text.startswith(words)
        assert events_of(directory, RunPaused)[0].reason == alarm.text
        resumed = subprocess.run(
            [sys.executable, "-m", "tbtui", "ctl", "run", "resume", str(directory.path)],
            capture_output=True, text=True, check=False, env=environment(tmp_path),
        )  # fmt: skip
        assert resumed.returncode == 0, resumed.stdout + resumed.stderr
        output, _ = run.communicate(timeout=100)
    finally:
        run.kill()
    assert run.returncode == 0, output[-3000:]
    assert f"sampler mismatch at step {alarm.step}: {words}" in output
    assert "; the run is paused" in output
    steps = events_of(directory, StepFinished)
    failed = next(step for step in steps if step.step == alarm.step)
    assert failed.weights_version == 2
    assert failed.metrics["optim/sentinel_gap"] == alarm.numbers["gap"]
    # The next version arrives.
    assert steps[-1].weights_version > 2
    assert steps[-1].metrics["optim/sentinel_gap"] < 1e-3
    assert {each.step for each in events_of(directory, AlarmRaised)} == {alarm.step}


def test_a_server_that_dies_at_start_ends_with_its_last_line_and_the_way_back(
    embedded: Path, tmp_path: Path
) -> None:
    make_home(tmp_path / "cache/tbtui/vllm", "ValueError: No available memory for the cache")
    run = start(embedded, tmp_path)
    output, _ = run.communicate(timeout=100)
    assert run.returncode == 2
    assert "Traceback" not in output
    last = output.splitlines()[-1]
    assert "ValueError: No available memory for the cache" in last
    assert last.endswith("or use sampler=transformers")
