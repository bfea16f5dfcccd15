"""A run of Prime-RL's from its launch to its end, with a stand-in for its launcher."""

from __future__ import annotations

import asyncio
import json
import tomllib
from pathlib import Path

import pytest

from tbtui.config import parse_settings
from tbtui.engines.gpus import GpuMonitor
from tbtui.engines.make_run import AnyRun, prepare
from tbtui.engines.prime_rl.launch.prepare import prepare_launch
from tbtui.engines.prime_rl.launch.run import started_event
from tbtui.engines.prime_rl.watch.run import WatchOptions, prepare_watch, watch
from tbtui.engines.request import RunRequest, request_run
from tbtui.engines.resume import request_resume
from tbtui.journal.commands import RUN, Command, RunEnd
from tbtui.journal.events import (
    CommandDone,
    Noted,
    RunContinued,
    RunFinished,
    RunPhaseChanged,
    RunStarted,
    StepFinished,
    TrialFinished,
)
from tbtui.journal.rundir import RunDirectory
from tbtui.journal.writer import JournalWriter
from tests.events import entries_of
from tests.tasks import make_task
from tests.waiting import until

from . import stand_in_rl
from .conftest import Place
from .stand_in import a_file, living, program, write_file


def made(request: RunRequest) -> AnyRun:
    return prepare(request)()


async def run(request: RunRequest) -> RunEnd:
    return await made(request).run()


def phases(place: Place) -> list[str]:
    return [event.detail for event in place.events(RunPhaseChanged)]


def steps(place: Place) -> int:
    return len(place.events(StepFinished))


async def test_a_whole_run_is_launched_watched_and_finished(place: Place) -> None:
    end = await run(request_run(place.config()))
    assert end == RunEnd("finished", "2 steps")
    (started,) = place.events(RunStarted)
    assert started.policy == "prime-rl"
    assert started.model_name == "Qwen/Qwen3-4B"
    assert started.settings["max_steps"] == 2
    assert [task.name for task in started.tasks] == ["copy-file"]
    assert [event.step for event in place.events(StepFinished)] == [1, 2]
    assert len(place.events(TrialFinished)) == 4
    assert place.events(RunFinished) == [RunFinished(status="finished", reason="2 steps")]
    assert isinstance(entries_of(RunDirectory(place.run))[-1].event, RunFinished)
    given = tomllib.loads((place.run / "prime_rl.toml").read_text())
    assert (given["output_dir"], given["run"]) == (
        str(place.run),
        {"dir": "prime_rl", "name": "tb"},
    )
    (source,) = given["orchestrator"]["train"]["source"]
    assert source["env"]["agent"]["harness"]["trials_dir"] == str(place.run)
    assert (place.run / "prime_rl" / "metrics.jsonl").is_file()
    assert "Starting RL run" in (place.run / "logs" / "prime_rl.log").read_text()
    told = [event.text for event in place.events(Noted)]
    assert "dry run: passed" in told
    assert any(text.startswith("configuration: valid, by ") for text in told)


@pytest.mark.slow
async def test_a_gpu_monitor_that_fails_leaves_the_run_alone(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(self: GpuMonitor) -> None:
        raise RuntimeError("no driver")

    monkeypatch.setattr(GpuMonitor, "run", fails)
    assert await run(request_run(place.config())) == RunEnd("finished", "2 steps")
    texts = [event.text for event in place.events(Noted)]
    assert "GPUs are not measured any more: RuntimeError: no driver (see log.txt)" in texts


@pytest.mark.parametrize(
    ("mode", "reason", "line"),
    [
        pytest.param(
            "crash",
            "Prime-RL's launcher ended with status 1: Error: Trainer failed with exit code 1",
            "trainer.log: torch.OutOfMemoryError: CUDA out of memory",
            marks=pytest.mark.slow,
        ),
        (
            "server",
            "Prime-RL's launcher ended with status 1: Error: Train env server tb failed with exit"
            " code 1",
            "tb.log: ImportError: no tbtui_harbor here",
        ),
        pytest.param(
            "early",
            "Prime-RL's launcher ended with status 1: ValueError: Requested 2 GPUs, but only 1 is"
            " available",
            "prime_rl.log: Error occurred: Requested 2 GPUs",
            marks=pytest.mark.slow,
        ),
    ],
)
async def test_a_crash_is_told_with_the_ends_of_the_logs(
    place: Place, monkeypatch: pytest.MonkeyPatch, mode: str, reason: str, line: str
) -> None:
    monkeypatch.setenv("STAND_IN_RL", mode)
    monkeypatch.setattr("tbtui.engines.prime_rl.launch.run._SETTLE_SEC", 0.5)
    assert await run(request_run(place.config())) == RunEnd("failed", reason)
    (finished,) = place.events(RunFinished)
    assert entries_of(RunDirectory(place.run))[-1].event == finished
    assert line in [event.text for event in place.events(Noted) if event.level == "error"]


async def test_what_prime_rl_refuses_is_refused_before_it_starts(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STAND_IN_RL", "refuses")
    end = await run(request_run(place.config()))
    assert end.status == "refused"
    assert end.reason.endswith("refuses the file: ValueError: seq_len is too short")
    assert not (place.run / "prime_rl.toml").exists()


async def test_an_interrupted_run_leaves_no_process_and_goes_on_from_its_checkpoint(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STAND_IN_RL", "hold")
    going = made(request_run(place.config()))
    going.submit(Command("pause", RUN, actor="ada"))
    task = asyncio.create_task(going.run())
    await until(lambda: steps(place) == 1)
    await until(lambda: place.events(CommandDone))
    (asked,) = (place.run / "control.jsonl").read_text().splitlines()
    assert json.loads(asked)["verb"] == "pause"
    task.cancel()
    end = await task
    assert end == RunEnd("interrupted", "everything is cleaned up")
    assert len(place.pids.read_text().split()) == 3
    assert living(place.pids) == []
    assert place.events(RunFinished) == [RunFinished(status="interrupted", reason=end.reason)]

    monkeypatch.setenv("STAND_IN_RL", "whole")
    assert await run(request_resume(str(place.run), [])) == RunEnd("finished", "2 steps")
    assert tomllib.loads((place.run / "prime_rl.toml").read_text())["resume"] == {"step": 1}
    (continued,) = place.events(RunContinued)
    assert continued.step == 1
    assert [event.step for event in place.events(StepFinished)] == [1, 2]
    assert [event.status for event in place.events(RunFinished)] == ["interrupted", "finished"]
    assert (place.run / "prime_rl" / "logs" / "attempt_2").is_dir()
    assert {path.name for path in (place.run / "logs").iterdir()} == {
        "prime_rl.log",
        "prime_rl-1.log",
    }


@pytest.mark.slow
async def test_a_job_of_slurms_is_submitted_and_only_watched(
    place: Place, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    write_file(place.file, {**a_file(place.tasks), "slurm": {"partition": "gpu"}})
    programs = tmp_path / "programs"
    programs.mkdir()
    program(programs / "sbatch", "#!/bin/sh\n")
    monkeypatch.setenv("PATH", str(programs), prepend=":")
    monkeypatch.setenv("STAND_IN_RL", "slurm")
    task = asyncio.create_task(made(request_run(place.config())).run())
    await until(lambda: "SLURM to start the job 4711" in "".join(phases(place)))
    job = stand_in_rl.LaunchedRun(place.run / "prime_rl")
    job.launch(2)
    job.ready()
    job.step(1)
    await until(lambda: steps(place) == 1)
    task.cancel()
    end = await task
    assert end.status == "interrupted"
    assert end.reason.startswith("the job goes on: `scancel 4711` ends it; `tbtui prime-rl watch ")
    assert place.events(RunFinished) == []

    job.step(2)
    job.finished()
    prepared = prepare_watch(job.path, place.run, WatchOptions())
    assert await watch(prepared) == RunEnd("finished", "2 steps")
    assert [event.step for event in place.events(StepFinished)] == [1, 2]


@pytest.mark.slow
async def test_a_run_that_is_over_is_not_gone_on_with(place: Place) -> None:
    await run(request_run(place.config()))
    before = (place.run / "run.db").stat().st_mtime_ns
    with pytest.raises(Exception, match="tb is finished: 2 steps; to go on, give a larger"):
        prepare(request_resume(str(place.run), []))
    assert (place.run / "run.db").stat().st_mtime_ns == before
    more = write_file(place.root / "more.toml", a_file(place.tasks, max_steps=3))
    late = made(request_resume(str(place.run), [str(more)]))
    with JournalWriter(RunDirectory(place.run), continues=True):
        end = await late.run()  # another process has gone on with it meanwhile
    assert (end.status, "is live (process" in end.reason) == ("refused", True)
    assert await run(request_resume(str(place.run), [str(more)])) == RunEnd("finished", "3 steps")
    (continued,) = place.events(RunContinued)
    assert continued.settings["max_steps"] == 3


def test_settings_become_the_file_that_is_launched(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tbtui.engines.prime_rl.launch.preflight._is_free", lambda _: True)
    make_task(place.tasks / "held-out", "Write hi into hello.txt.", split="heldout")
    settings = ["engine=prime-rl", "model_name=Qwen/Qwen3-4B", f"tasks_dir={place.tasks}"]
    where = [f"logs_dir={place.root / 'runs'}", "run_name=tb", "environment_type=sandbox"]
    prepared = prepare_launch(request_run(parse_settings([*settings, *where, "num_train_gpus=3"])))
    assert prepared.toml["output_dir"] == str(place.run)
    assert prepared.toml["run"] == {"name": "tb", "dir": "prime_rl"}
    assert prepared.toml["deployment"]["gpus_per_node"] == 4
    for split in ("train", "eval"):
        (source,) = prepared.toml["orchestrator"][split]["source"]
        assert source["env"]["agent"]["harness"]["trials_dir"] == str(place.run)
    started = started_event(prepared)
    assert {task.name: task.split for task in started.tasks} == {
        "copy-file": "train",
        "held-out": "eval",
    }
    assert started.environment == "sandbox"
    assert started.settings["num_train_gpus"] == 3
    assert not [finding for finding in prepared.findings if "output_dir" in finding.text]


def test_what_became_of_an_older_file_is_told(place: Place) -> None:
    toml = a_file(place.tasks)
    toml["max_async_level"] = 2
    toml["output_dir"] = "/elsewhere"
    write_file(place.file, toml)
    told = [finding.text for finding in prepare_launch(request_run(place.config())).findings]
    assert any(line.startswith("max_async_level -> orchestrator.max_off_pol") for line in told)
    assert (
        f"output_dir = /elsewhere -> output_dir = {place.run}: everything of a run is in its"
        " directory"
    ) in told


def test_a_file_of_prime_rls_is_recognised(place: Place) -> None:
    config = parse_settings([str(place.file)])
    assert (config.engine, config.prime_rl_config) == ("prime-rl", place.file)
