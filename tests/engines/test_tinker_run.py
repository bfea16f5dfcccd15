"""Whole runs on a Tinker server: real trials, the genuine SDK, real HTTP, and the embedded model
behind it."""

from __future__ import annotations

import asyncio
import dataclasses
import shutil
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import IO

import pytest

from tbtui.config import RunConfig, parse_settings
from tbtui.engines.prepare import PreparedRun, prepare_run
from tbtui.engines.request import request_run
from tbtui.engines.resume import request_resume
from tbtui.engines.run import Run
from tbtui.journal.events import (
    AlarmRaised,
    AnyEvent,
    CheckpointSaved,
    Entry,
    Noted,
    Outcome,
    PolicyLost,
    PolicyMeasured,
    RunContinued,
    RunStarted,
    StepFinished,
    TrialFinished,
    TrialQueued,
    TrialRetried,
    TurnSampled,
)
from tbtui.policies.base import Policy, Sample, SampleRequest
from tbtui.policies.registry import make_policy
from tbtui.policies.tinker.samplers import SEEDS
from tbtui.resources import tasks_dir
from tests.events import entries_of, events_of
from tests.tinker_server.server import TinkerServer, serving


@pytest.fixture
async def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[TinkerServer]:
    monkeypatch.setenv("TINKER_API_KEY", "tml-of-a-test")
    monkeypatch.setenv("TINKER_TELEMETRY", "0")
    async with serving(state_dir=tmp_path / "server") as server:
        yield server


def write_tasks(where: Path) -> Path:
    """Four tasks to train on, one held out."""
    for name in ("mkdir-01", "remove-01", "create-01", "append-01", "mkdir-07"):
        shutil.copytree(tasks_dir() / "starter" / name, where / "tasks" / name)
    return where / "tasks"


@pytest.fixture
def tasks(tmp_path: Path) -> Path:
    return write_tasks(tmp_path)


def prepared(tmp_path: Path, tasks: Path, name: str, *settings: str) -> PreparedRun:
    config = parse_settings(
        [
            *(f"logs_dir={tmp_path / 'runs'}", f"tasks_dir={tasks}", f"run_name={name}"),
            *("batch_size=2", "group_size=4", "eval_every=0", "eval_group_size=1"),
            *settings,
        ]
    )
    return prepare_run(request_run(config))


def on_server(server: TinkerServer) -> tuple[str, ...]:
    return (
        *("policy=tinker", "model_name=starter", "renderer=embedded"),
        f"tinker_base_url={server.url}",
    )


def events[E: AnyEvent](run: PreparedRun, kind: type[E]) -> list[E]:
    return events_of(run.directory, kind)


def journal(run: PreparedRun) -> Sequence[Entry]:
    return entries_of(run.directory)


def with_a_servers_seeds(config: RunConfig, log: IO[bytes]) -> Policy:
    """The embedded policy, asked with the seeds that a server is asked with."""
    policy = make_policy(config, log)
    sample = policy.sample

    async def sampled(request: SampleRequest) -> Sample:
        return await sample(dataclasses.replace(request, seed=request.seed % SEEDS))

    policy.sample = sampled  # type: ignore[method-assign]
    return policy


def said(run: PreparedRun) -> Counter[tuple[str, int, str]]:
    """Everything that the model said, by place in the run."""
    labels = {event.trial: (event.step, event.label) for event in events(run, TrialQueued)}
    return Counter(
        (str(labels[turn.trial]), turn.turn, turn.text) for turn in events(run, TurnSampled)
    )


def rewards(run: PreparedRun) -> Sequence[float]:
    return [event.metrics["env/all/reward/total"] for event in events(run, StepFinished)]


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["importance_sampling", "dro"])
async def test_it_learns_what_the_embedded_policy_learns(
    loss: str, server: TinkerServer, tmp_path: Path, tasks: Path
) -> None:
    """Native losses, and those that are computed on our side."""
    asked = ("max_steps=3", f"loss_fn={loss}")
    here = prepared(tmp_path, tasks, "here", *asked)
    there = prepared(tmp_path, tasks, "there", *asked, *on_server(server))
    assert (await Run(here, with_a_servers_seeds).run()).status == "finished"
    end = await Run(there).run()
    assert end.status == "finished", end.reason
    assert said(there) == said(here)
    assert rewards(there) == rewards(here)
    for ours, its in zip(events(here, StepFinished), events(there, StepFinished), strict=True):
        for name in ("optim/loss", "optim/grad_norm", "optim/kl_sample_train_v1"):
            if name in ours.metrics:
                assert its.metrics[name] == pytest.approx(ours.metrics[name], rel=1e-2, abs=1e-5)
    (started,) = events(there, RunStarted)
    assert (started.policy, started.model_name) == ("tinker", "starter")
    assert events(there, PolicyMeasured)[-1].server is not None
    assert [status for status, *_ in server.record.finished.values()] == ["success"]


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_a_server_that_dies_within_a_step_costs_nothing(
    server: TinkerServer, tmp_path: Path, tasks: Path
) -> None:
    asked = ("max_steps=4", "save_every=1", *on_server(server))
    whole = prepared(tmp_path, tasks, "whole", *asked)
    assert (await Run(whole).run()).status == "finished"
    broken = prepared(tmp_path, tasks, "broken", *asked)

    running = asyncio.create_task(Run(broken, sleep=lambda _: asyncio.sleep(0)).run())
    while len(events(broken, StepFinished)) < 2 or _turns_since(broken) < 3:  # noqa: ASYNC110
        await asyncio.sleep(0.05)
    await server.kill()
    await asyncio.sleep(1.0)  # the SDK tries in vain meanwhile
    server.start()
    end = await running
    assert end.status == "finished", end.reason
    assert len(events(broken, PolicyLost)) == 1
    (continued,) = events(broken, RunContinued)
    assert continued.step >= 1
    assert [event.step for event in events(broken, StepFinished)] == [1, 2, 3, 4]
    trials = [event.trial for event in events(broken, TrialFinished) if event.reward is not None]
    assert len(trials) == len(set(trials))
    assert rewards(broken)[:2] == rewards(whole)[:2]


def _turns_since(run: PreparedRun) -> int:
    """Answers since the last finished step."""
    entries = journal(run)
    last = max((e.seq for e in entries if isinstance(e.event, StepFinished)), default=0)
    return sum(isinstance(e.event, TurnSampled) and e.seq > last for e in entries)


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_failures_that_pass_leave_no_trace_in_what_is_learned(
    server: TinkerServer, tmp_path: Path, tasks: Path
) -> None:
    asked = ("max_steps=3", "save_every=1", *on_server(server))
    whole = prepared(tmp_path, tasks, "whole", *asked)
    assert (await Run(whole).run()).status == "finished"
    steps = Counter(server.record.applied_steps)
    faults = server.faults
    faults.answer("asample", 429, times=3)
    faults.answer("asample", 503, times=2, after=10)
    faults.answer("forward_backward", 500)
    faults.answer("retrieve:forward_backward", 408)
    faults.answer("optim_step", 409)
    faults.lose("optim_step", after=1)
    faults.lose("forward_backward", after=1)
    faults.slow("save_weights_for_sampler", 0.5)
    faults.answer("save_weights", 503)
    faults.pause("paused_capacity", "full", kinds=("asample",), seconds=15.0)
    shaken = prepared(tmp_path, tasks, "shaken", *asked)
    end = await Run(shaken).run()
    assert end.status == "finished", end.reason
    assert not faults.pending
    assert said(shaken) == said(whole)
    assert rewards(shaken) == rewards(whole)
    assert not events(shaken, PolicyLost)
    assert sum((Counter(server.record.applied_steps) - steps).values()) == 3
    told = [event.server for event in events(shaken, PolicyMeasured) if event.server]
    assert ("paused_capacity", "full") in {(each.state, each.reason) for each in told}
    assert told[-1].retries >= 5


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_a_key_that_is_refused_ends_the_run_at_once_and_loses_nothing(
    server: TinkerServer, tmp_path: Path, tasks: Path
) -> None:
    """No trial fails because of it, is attempted again or reported."""
    run = prepared(tmp_path, tasks, "run", "max_steps=2", *on_server(server))
    server.faults.answer("asample", 401, times=100_000, after=20, detail="the key was revoked")
    end = await Run(run).run()
    assert end.status == "failed"
    assert "doesn't accept the API key (401: the key was revoked)" in end.reason
    assert server.url in end.reason
    assert Outcome.PROVIDER_ERROR not in {each.outcome for each in events(run, TrialFinished)}
    assert not events(run, TrialRetried)
    server.faults.clear()
    end = await Run(prepare_run(request_resume(str(run.directory.path), []))).run()
    assert end.status == "finished", end.reason
    assert [event.step for event in events(run, StepFinished)] == [1, 2]


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_cut_off_answers_are_told_and_costs_end_the_run_after_the_first_step(
    server: TinkerServer, tmp_path: Path, tasks: Path
) -> None:
    prices = ("prices.prompt=1", "prices.sampled=1", "prices.trained=1", "prices.storage=0.1")
    limits = ("max_tokens=12", "max_cost=1e-9", "eval_tasks=", "eval_split=0")
    asked = ("max_steps=5", *prices, *limits, *on_server(server))
    shutil.rmtree(tasks / "mkdir-07")  # which was held out
    run = prepared(tmp_path, tasks, "run", *asked)
    end = await Run(run).run()
    assert end.status == "finished", end.reason
    assert "stopped after" in end.reason and "max_cost" in end.reason
    (alarm,) = events(run, AlarmRaised)
    assert (alarm.alarm, alarm.step) == ("truncated", 1)
    assert "max_tokens" in alarm.text
    (step,) = events(run, StepFinished)
    assert step.metrics["cost/total_usd"] >= step.metrics["cost/step_usd"] > 0
    assert [event.step for event in events(run, CheckpointSaved)] == [1]
    said = [event.text for event in events(run, Noted)]
    assert any(text.startswith("cost: at most $") for text in said)
