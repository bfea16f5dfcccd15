"""A run whose policy is lost goes on with another one, and ends as if nothing had happened."""

from __future__ import annotations

import asyncio
import shutil
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pytest

from tbtui.config import to_toml
from tbtui.engines.grpo.failures import HaltError, PolicyRestartLimit
from tbtui.engines.grpo.recorded import POLICY_LOST_FIRST
from tbtui.engines.grpo.trials import TrialRunner
from tbtui.engines.run import Run
from tbtui.journal.commands import RUN, Command, RunEnd
from tbtui.journal.events import (
    AnyEvent,
    CommandDone,
    CommandIssued,
    GroupScored,
    Noted,
    Outcome,
    PolicyLost,
    ReviewChanged,
    ReviewClosed,
    ReviewOpened,
    RunContinued,
    RunFinished,
    RunPaused,
    RunResumed,
    StepFinished,
    StepStarted,
    TrialExcluded,
    TrialFinished,
)
from tbtui.journal.rundir import RunDirectory
from tbtui.policies.base import (
    Datum,
    Ended,
    GradientResult,
    LossSettings,
    OptimSettings,
    PolicyError,
    PolicyLostError,
    PolicyStatus,
    Sample,
    SampleRequest,
    StepResult,
)
from tbtui.rollout.messages import TrialSpec
from tests.waiting import until

from .fakes import FakePool
from .test_resume import (
    LearningPolicy,
    Whole,
    by_what_it_says,
    require_order,
    useful_ends,
)


@dataclass
class Fate:
    """When the policies of a run are lost, and what was asked of all of them."""

    at: frozenset[tuple[str, int]] = frozenset()
    """(call, its number among calls of that name, from 1)."""
    error: type[PolicyError] = PolicyLostError
    asked: Counter[str] = field(default_factory=Counter)
    made: list[FatedPolicy] = field(default_factory=list)

    def meets(self, call: str) -> bool:
        self.asked[call] += 1
        return (call, self.asked[call]) in self.at


class FatedPolicy(LearningPolicy):
    """Once lost, it answers nothing any more. What it was asked last was done all the same."""

    def __init__(self, fate: Fate) -> None:
        super().__init__()
        self.fate = fate
        self.lost = False
        self.ended: Ended | None = None
        self.forgotten: list[str] = []
        fate.made.append(self)

    def _answered(self, call: str) -> None:
        if self.fate.meets(call):
            self.lost = issubclass(self.fate.error, PolicyLostError)
            raise self.fate.error(f"{call}: the server lost its state")
        if self.lost:
            raise PolicyLostError("the server lost its state")

    async def _fated[T](self, call: str, work: Callable[[], Awaitable[T]]) -> T:
        if self.lost:
            raise PolicyLostError("the server lost its state")
        result = await work()
        self._answered(call)
        return result

    async def start(self, resume: Path | None = None) -> None:
        self._answered("start")

    async def sample(self, request: SampleRequest) -> Sample:
        return await self._fated("sample", lambda: LearningPolicy.sample(self, request))

    async def accumulate(self, data: Sequence[Datum], loss: LossSettings) -> GradientResult:
        return await self._fated("accumulate", lambda: LearningPolicy.accumulate(self, data, loss))

    async def apply(self, settings: OptimSettings) -> StepResult:
        return await self._fated("apply", lambda: LearningPolicy.apply(self, settings))

    async def score(
        self, data: Sequence[Datum], weights: Literal["trained", "reference"]
    ) -> tuple[npt.NDArray[np.float32], ...]:
        return await self._fated("score", lambda: LearningPolicy.score(self, data, weights))

    async def publish(self) -> int:
        return await self._fated("publish", lambda: LearningPolicy.publish(self))

    async def save(self, directory: Path) -> None:
        await self._fated("save", lambda: LearningPolicy.save(self, directory))

    async def load(self, directory: Path) -> None:
        await self._fated("load", lambda: LearningPolicy.load(self, directory))

    async def close(self, ended: Ended = "success") -> None:
        self.ended = ended


@dataclass
class Night:
    """A run from beginning to end, with what befell it."""

    whole: Whole
    fate: Fate
    run: Run
    waits: list[float]
    pools: list[FakePool]

    def events[E: AnyEvent](self, kind: type[E]) -> list[E]:
        return self.whole.events(kind)

    @property
    def weights(self) -> str:
        return self.fate.made[-1].weights


def night(
    where: Path,
    fate: Fate,
    *,
    while_waiting: Callable[[], Awaitable[None]] | None = None,
    **settings: Any,
) -> Night:
    whole = Whole(RunDirectory.create(where), settings, by_what_it_says)
    whole.directory.config.write_text(to_toml(whole.config()))
    waits: list[float] = []
    pools: list[FakePool] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)
        if while_waiting:
            await while_waiting()

    def pool(_: object, runner: TrialRunner[Any]) -> FakePool:
        pools.append(FakePool(runner, whole.script))
        return pools[-1]

    run = Run(whole.prepared(), lambda config, log: FatedPolicy(fate), pool, sleep)
    return Night(whole, fate, run, waits, pools)


VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {"save_every": 1},
    "replays": {"save_every": 0},
    "scores": {"num_substeps": 2, "kl_penalty_coef": 0.1, "importance_cap": 2.0, "max_steps": 2},
}


@pytest.mark.parametrize(
    "variant",
    ["plain", *(pytest.param(name, marks=pytest.mark.slow) for name in ("replays", "scores"))],
)
async def test_lost_at_any_call_a_run_ends_as_if_it_had_not_been(
    tmp_path: Path, variant: str
) -> None:
    settings = VARIANTS[variant]
    alone = night(tmp_path / "alone", Fate(), **settings)
    end = await alone.run.run()
    assert end.status == "finished"
    assert [policy.ended for policy in alone.fate.made] == ["success"]
    for call, times in alone.fate.asked.items():
        if call == "start":
            continue
        stride = 17 if call == "sample" else 2
        for number in range(1, times + 1, stride):
            what = f"{call} number {number} of {times}"
            fate = Fate(frozenset({(call, number)}))
            lost = night(tmp_path / "lost", fate, **settings)
            assert await lost.run.run() == end, what
            assert lost.whole.outcome() == alone.whole.outcome(), what
            assert lost.weights == alone.weights, what
            assert [policy.ended for policy in fate.made] == ["errored", "success"], what
            require_order(lost.whole)
            assert set(useful_ends(lost.whole).values()) == {1}, what
            (event,) = lost.events(PolicyLost)
            assert (event.reason, event.wait_sec) == (f"{call}: the server lost its state", 5), what
            assert len(lost.events(RunContinued)) == 1
            assert not [e for e in lost.events(TrialFinished) if e.outcome == "provider_error"]
            shutil.rmtree(tmp_path / "lost")


@pytest.mark.parametrize("settings", [{"max_steps_off_policy": 2}, {"stream": True}])
async def test_with_batches_under_way_no_trial_is_lost(
    tmp_path: Path, settings: dict[str, Any]
) -> None:
    for call in ("sample", "accumulate", "apply", "publish", "save"):
        fate = Fate(frozenset({(call, 2), (call, 5)}))
        run = night(tmp_path / call, fate, max_steps=4, n_parallel_envs=3, **settings)
        assert (await run.run.run()).status == "finished"
        require_order(run.whole)
        assert set(useful_ends(run.whole).values()) == {1}
        assert [e.step for e in run.events(StepFinished)] == [1, 2, 3, 4]


async def test_one_loss_is_told_once_however_many_trials_sample(tmp_path: Path) -> None:
    fate = Fate(frozenset({("sample", 9)}))
    run = night(tmp_path / "run", fate, batch_size=4, group_size=8, max_steps=1)
    assert (await run.run.run()).status == "finished"
    assert len(run.events(PolicyLost)) == len(run.events(RunContinued)) == 1
    cut_off = [e for e in run.events(TrialFinished) if e.outcome is Outcome.CANCELLED]
    assert cut_off
    assert {e.reason for e in cut_off} == {POLICY_LOST_FIRST}
    (continued,) = run.events(RunContinued)
    assert set(continued.requeued) == {e.trial for e in cut_off}
    assert len(fate.made) == 2


async def test_a_policy_that_cannot_start_again_is_one_more_attempt(tmp_path: Path) -> None:
    fate = Fate(frozenset({("apply", 2), ("start", 2), ("start", 3), ("load", 1)}), PolicyLostError)
    run = night(tmp_path / "run", fate, save_every=1)
    assert (await run.run.run()).status == "finished"
    assert run.waits == [5, 10, 20, 40]
    assert [e.wait_sec for e in run.events(PolicyLost)] == run.waits
    assert [e.step for e in run.events(PolicyLost)] == [1, 1, 1, 1]
    assert len(run.events(RunContinued)) == 1
    assert [e.step for e in run.events(StepFinished)] == [1, 2, 3]


async def test_a_server_that_stays_away_ends_the_run_in_a_line(tmp_path: Path) -> None:
    fate = Fate(frozenset({("apply", 2), ("start", 2), ("start", 3), ("start", 4)}))
    run = night(tmp_path / "run", fate, policy_restarts=2, save_every=1)
    end = await run.run.run()
    assert end == RunEnd(
        "failed",
        "the policy was lost (2 new ones made since): start: the server lost its state;"
        f" tbtui run --resume {tmp_path / 'run'} goes on from step 1",
    )
    assert run.waits == [5, 10]
    (finished,) = run.events(RunFinished)
    assert (finished.status, finished.reason) == ("failed", end.reason)
    none = night(tmp_path / "none", Fate(frozenset({("publish", 1)})), policy_restarts=0)
    end = await none.run.run()
    assert end.reason.startswith("the policy was lost: publish: the server lost its state; tbtui")
    assert not none.waits


def test_only_a_step_that_was_never_trained_before_is_progress() -> None:
    losses = PolicyRestartLimit(2, Path("r"))
    assert [losses.lost(3, ""), losses.lost(3, "")] == [5, 10]
    assert losses.lost(4, "") == 5
    assert losses.lost(0, "") == 10  # it did not get as far as to know
    with pytest.raises(HaltError, match="goes on from step 4"):
        losses.lost(4, "gone")
    patient = PolicyRestartLimit(20, Path("r"))
    assert max(patient.lost(0, "") for _ in range(20)) == 300


@pytest.mark.parametrize("call", ["accumulate", "apply", "publish", "save", "start"])
async def test_an_error_that_is_no_loss_ends_the_run(tmp_path: Path, call: str) -> None:
    fate = Fate(frozenset({(call, 1)}), PolicyError)
    run = night(tmp_path / "run", fate)
    assert await run.run.run() == RunEnd("failed", f"{call}: the server lost its state")
    assert not run.waits
    assert not run.events(PolicyLost)
    assert [policy.ended for policy in fate.made] == ["errored"]


# What people asked stays


def waits_for_leave(run: Night) -> tuple[asyncio.Event, asyncio.Event]:
    """Set once the run waits to make a policy anew, and what lets it go on."""
    waiting, go_on = asyncio.Event(), asyncio.Event()

    async def sleep(_: float) -> None:
        waiting.set()
        await go_on.wait()

    run.run._sleep = sleep
    return waiting, go_on


async def test_a_paused_run_stays_paused_and_is_told_so(tmp_path: Path) -> None:
    fate = Fate(frozenset({("sample", 11)}))  # of the first step
    run = night(tmp_path / "run", fate, save_every=1, eval_every=0, eval_group_size=1)
    waiting, go_on = waits_for_leave(run)
    task = asyncio.create_task(run.run.run())
    await waiting.wait()
    run.run.submit(Command("pause", RUN, id="p"))
    go_on.set()
    await until(lambda: run.events(RunPaused))
    done = {event.command: event for event in run.events(CommandDone)}
    assert done["p"].ok
    assert not run.events(StepFinished)
    run.run.submit(Command("resume", RUN, id="r"))
    assert (await task).status == "finished"
    assert run.events(RunResumed)
    assert len(run.events(StepFinished)) == 3


async def test_paused_before_it_is_lost_it_is_paused_afterwards(tmp_path: Path) -> None:
    fate = Fate()
    run = night(tmp_path / "run", fate, save_every=0, eval_every=0, max_steps=2)
    task = asyncio.create_task(run.run.run())
    await until(lambda: fate.made)
    training = fate.made[0].before_training = asyncio.Event()
    await until(lambda: "accumulate" in fate.made[0].calls)
    run.run.submit(Command("pause", RUN))
    fate.at = frozenset({("accumulate", 1)})
    training.set()
    await until(lambda: len(run.events(RunPaused)) == 2)
    (continued,) = [e for e in run.whole.entries() if isinstance(e.event, RunContinued)]
    paused = [e.seq for e in run.whole.entries() if isinstance(e.event, RunPaused)]
    assert paused[0] < continued.seq < paused[1]
    # What had been sampled may be trained on in a pause, but nothing new is begun.
    await until(lambda: run.events(StepFinished))
    assert [e.step for e in run.events(StepStarted)] == [1]
    assert not run.events(RunResumed)
    await until(lambda: "paused and saved at step 1" in [e.text for e in run.events(Noted)])
    run.run.submit(Command("resume", RUN))
    assert (await task).status == "finished"
    require_order(run.whole)


async def test_trials_that_are_left_out_stay_out_and_commands_are_answered(tmp_path: Path) -> None:
    fate = Fate()
    run = night(tmp_path / "run", fate, eval_every=0, max_steps=1, group_size=3)
    waiting, go_on = waits_for_leave(run)
    gate = asyncio.Event()

    def script(pool: FakePool, spec: TrialSpec) -> object:
        if not spec.trial.startswith("s0001") or spec.trial.endswith("-1"):
            return by_what_it_says(pool, spec)
        return pool.later(gate, by_what_it_says, spec)

    run.whole.script = script
    task = asyncio.create_task(run.run.run())

    def ends() -> list[str]:
        return [e.trial for e in run.events(TrialFinished) if e.trial.startswith("s0001")]

    await until(lambda: fate.made)
    await until(lambda: len(ends()) == 2)
    ended = ends()
    run.run.submit(Command("exclude", ended[0], id="before"))
    fate.at = frozenset({("accumulate", 1)})
    gate.set()
    await waiting.wait()
    run.run.submit(Command("exclude", ended[-1], id="meanwhile"))
    go_on.set()
    assert (await task).status == "finished"
    done = {event.command: event for event in run.events(CommandDone)}
    assert (done["before"].ok, done["meanwhile"].ok) == (True, True)
    assert {e.trial for e in run.events(TrialExcluded)} == {ended[0], ended[-1]}
    last = {event.group: event for event in run.events(GroupScored)}
    left_out = {t for event in last.values() for t, s in event.trials.items() if s.reward is None}
    assert ended[0] in left_out


async def test_commands_that_no_engine_ever_took_are_answered(tmp_path: Path) -> None:
    fate = Fate(frozenset({("start", 1)}), PolicyError)
    run = night(tmp_path / "run", fate)
    run.run.submit(Command("pause", RUN, id="p"))
    run.run.submit(Command("take", RUN, "ada", id="t"))
    assert (await run.run.run()).status == "failed"
    assert [event.command for event in run.events(CommandIssued)] == ["p", "t"]
    done = {event.command: (event.ok, event.result) for event in run.events(CommandDone)}
    assert done == {"p": (False, "the run ended first"), "t": (True, "ada has the controls")}
    assert isinstance(run.whole.entries()[-1].event, RunFinished)


async def test_what_is_asked_of_trials_that_never_come_is_answered_when_the_run_ends(
    tmp_path: Path,
) -> None:
    fate = Fate()
    run = night(tmp_path / "run", fate, eval_every=0, eval_group_size=1)
    run.run.submit(Command("pause", RUN))  # before there is any trial
    task = asyncio.create_task(run.run.run())
    await until(lambda: fate.made)
    await until(lambda: run.events(RunPaused))
    run.run.submit(Command("exclude", "s0001-copy-0-1", id="x"))
    run.run.submit(Command("accept", RUN, id="a"))
    await until(lambda: len(run.events(CommandIssued)) == 3)
    task.cancel()
    assert (await task).status == "interrupted"
    assert [(event.command, event.ok, event.result) for event in run.events(CommandDone)][1:] == [
        ("x", False, "the run ended first"),
        ("a", False, "the run ended first"),
    ]
    assert isinstance(run.whole.entries()[-1].event, RunFinished)


async def test_a_monitor_that_breaks_is_said_and_costs_the_run_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def status(policy: FatedPolicy) -> PolicyStatus:
        raise RuntimeError("no such counter")

    monkeypatch.setattr("tbtui.engines.monitor.PERIOD_SEC", 0)
    monkeypatch.setattr(FatedPolicy, "status", status)
    run = night(tmp_path / "run", Fate(), max_steps=1)
    assert (await run.run.run()).status == "finished"
    (warning,) = [note.text for note in run.events(Noted) if note.level == "warning"]
    assert warning == (
        "the policy's queue and memory are not measured any more:"
        " RuntimeError: no such counter (see log.txt)"
    )


# With a review open

FRESH, AHEAD, TRAINING = "a fresh trial", "a step sampled ahead", "a step in training"
WHOLE_TIMEOUT = 3600.0


def opened(run: Night, step: int) -> list[ReviewOpened]:
    return [event for event in run.events(ReviewOpened) if event.step == step]


async def reviewed(where: Path, case: str, *, lost: bool, meanwhile: bool = False) -> Night:
    """Two steps under review; of the first one trial is left out, and one gets another reward.

    `meanwhile`: the first is accepted while there is no policy, and until its time is up.
    """
    fate, gate = Fate(), asyncio.Event()
    accept = Command("accept", RUN, "ada", arguments={"step": 1})

    async def between() -> None:
        if meanwhile:
            run.run.submit(accept)

    run = night(
        where, fate, while_waiting=between, review="always", eval_every=0, eval_group_size=1,
        save_every=1, max_steps=2, group_size=3, max_steps_off_policy=0 if case == FRESH else 1,
        review_timeout_sec=WHOLE_TIMEOUT,
    )  # fmt: skip

    def script(pool: FakePool, spec: TrialSpec) -> object:
        if case != AHEAD or not spec.trial.startswith("s0002"):
            return by_what_it_says(pool, spec)
        return pool.later(gate, by_what_it_says, spec)

    run.whole.script = script
    task = asyncio.create_task(run.run.run())

    async def opens(step: int, times: int = 1) -> ReviewOpened:
        await until(lambda: len(opened(run, step)) == times)
        return opened(run, step)[-1]

    async def ask(command: Command) -> None:
        run.run.submit(command)
        await until(lambda: command.id in [done.command for done in run.events(CommandDone)])

    await until(lambda: fate.made)
    first, second, third = (await opens(1)).groups[0].trials
    await ask(Command("exclude", first, "ada"))
    await ask(Command("relabel", second, "ada", "odd", {"reward": 0.25}))
    if case == TRAINING:
        await opens(2)
    if meanwhile:
        timeout = {"review_timeout_sec": 0.001}
        await ask(Command("set", RUN, "ada", arguments=timeout))
    if lost:
        call = "accumulate" if case == TRAINING else "sample"
        fate.at = frozenset({(call, fate.asked[call] + 1)})
    if case == FRESH:
        await ask(Command("retry", third, "ada"))
        await opens(1, times=2)
    elif case == AHEAD:
        gate.set()
        await opens(2)
        await opens(1, times=1 + lost)
    if not meanwhile:
        await ask(accept)
        await opens(2, times=1 + (lost and case == TRAINING))
        await ask(Command("accept", RUN, "ada", arguments={"step": 2}))
    assert (await task).status == "finished"
    return run


@pytest.mark.parametrize("case", [FRESH, AHEAD, TRAINING])
async def test_lost_while_a_review_is_open_it_opens_again_as_it_was(
    tmp_path: Path, case: str
) -> None:
    alone = await reviewed(tmp_path / "alone", case, lost=False)
    run = await reviewed(tmp_path / "lost", case, lost=True)
    assert len(run.events(PolicyLost)) == len(run.events(RunContinued)) == 1
    require_order(run.whole)
    assert run.whole.outcome() == alone.whole.outcome()
    assert run.weights == alone.weights
    assert [event.step for event in run.events(ReviewClosed)] == [1, 2]
    assert all(event.ok for event in run.events(CommandDone))
    # It says again what had been decided, and of nothing more.
    told = [e for e in run.whole.entries() if isinstance(e.event, ReviewOpened | ReviewChanged)]
    (continued,) = [e.seq for e in run.whole.entries() if isinstance(e.event, RunContinued)]
    after = next(entry.event for entry in told if entry.seq > continued)
    before = [e.event for e in told if e.seq < continued and e.event.step == after.step][-1]
    if case == FRESH:
        assert list(after.groups[0].trials)[2].endswith("-retry2")
    else:
        assert (after.groups, after.undecided) == (before.groups, before.undecided)
    # Nor does its time begin anew, unless there is something new to be looked at.
    times = [event.timeout_sec for event in opened(run, after.step)]
    assert times[0] == WHOLE_TIMEOUT
    assert times[1] is not None
    assert times[1] == WHOLE_TIMEOUT if case == FRESH else times[1] < WHOLE_TIMEOUT


async def test_a_step_is_accepted_while_there_is_no_policy(tmp_path: Path) -> None:
    run = await reviewed(tmp_path / "run", AHEAD, lost=True, meanwhile=True)
    require_order(run.whole)
    closed = [(event.step, event.how) for event in run.events(ReviewClosed)]
    assert closed == [(1, "accepted"), (2, "timeout")]
    # It opens again first: nobody accepts what is not there to be looked at.
    assert len(opened(run, 1)) == 2
    assert all(event.ok for event in run.events(CommandDone))
