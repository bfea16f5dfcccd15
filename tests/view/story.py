"""A short run as events, for tests of what reads them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping

from tbtui.journal.events import (
    AgentCommand,
    AnyEvent,
    Entry,
    EvalStarted,
    Outcome,
    PhaseSeconds,
    RunFinished,
    RunPhase,
    RunPhaseChanged,
    RunStarted,
    StepFinished,
    StepStarted,
    TaskRecord,
    TrialFinished,
    TrialPaused,
    TrialPhase,
    TrialPhaseChanged,
    TrialQueued,
    TrialScore,
    TurnObserved,
    TurnStarted,
)
from tbtui.view.fold import Fold
from tbtui.view.state import RunState
from tbtui.view.times import Outlook
from tests.events import (
    eval_finished,
    group_scored,
    run_started,
    trial_finished,
    trial_queued,
    turn_parsed,
    turn_sampled,
)


def entries(events: Iterator[AnyEvent] | list[AnyEvent], start: float = 1000.0) -> list[Entry]:
    """One event a second."""
    return [Entry(seq, start + seq, event) for seq, event in zip(itertools.count(1), events)]


def folded(*events: AnyEvent) -> RunState:
    """What a run looks like after these."""
    fold = Fold()
    fold.apply_all(entries([*events]))
    return fold.state


def outlook(events: Iterator[AnyEvent] | list[AnyEvent]) -> Outlook:
    """The same at the time of the last of them."""
    state = folded(*events)
    return Outlook(state, state.time)


def started(max_steps: int = 2) -> RunStarted:
    return run_started(
        run="demo",
        parameters=770_000,
        environment_reason="user namespaces work here",
        tasks_dir="/tasks/starter",
        tasks=(
            TaskRecord(name="copy-01", kind="copy", difficulty="easy", split="train"),
            TaskRecord(name="move-07", kind="move", difficulty="easy", split="eval"),
        ),
        settings={"max_steps": max_steps},
    )


def queued(trial: str, task: str = "copy-01", group: str = "g", step: int = 1) -> TrialQueued:
    return trial_queued(
        trial,
        label=f"{task}/1",
        task=task,
        group=group,
        step=step,
        purpose="eval" if group == "e" else "train",
    )


def finished(trial: str, reward: float | None, outcome: Outcome | None = None) -> TrialFinished:
    seconds = PhaseSeconds(setup=0.1, sampling=0.2)
    changes = {} if outcome is None else {"outcome": outcome}
    return trial_finished(trial, reward, reason="because", seconds=seconds, **changes)


def turn(trial: str, number: int, text: str = "{}") -> Iterator[AnyEvent]:
    yield TrialPhaseChanged(trial=trial, phase=TrialPhase.MODEL)
    yield TurnStarted(trial=trial, turn=number)
    yield turn_sampled(
        trial,
        turn=number,
        sample=number,
        text=text,
        prompt_tokens=40,
        completion_tokens=10,
        min_logprob=-3.0,
    )
    yield turn_parsed(
        trial,
        turn=number,
        analysis="The file is there.",
        plan="Copy it.",
        commands=(AgentCommand(keystrokes="cp a b\n", duration_sec=0.1),),
    )
    yield TrialPhaseChanged(trial=trial, phase=TrialPhase.ACTING)
    yield TurnObserved(trial=trial, turn=number, observation="root@box:/app# ", seconds=0.2)


def one_step_run() -> Iterator[AnyEvent]:
    """One evaluation, one step of one group of three, one of them lost."""
    yield RunPhaseChanged(phase=RunPhase.STARTING, step=0, detail="loading the policy")
    yield started()
    yield RunPhaseChanged(phase=RunPhase.EVALUATING, step=0)
    yield EvalStarted(step=0, tasks=1, trials=1, temperature=1.0)
    yield queued("e1", "move-07", "e", 0)
    yield TrialPhaseChanged(trial="e1", phase=TrialPhase.SETUP)
    yield finished("e1", 0.0)
    yield eval_finished(0, 0.0, scored=1, by_kind={"move": 0.0})
    yield RunPhaseChanged(phase=RunPhase.SAMPLING, step=0)
    yield StepStarted(step=1, groups={"g": "copy-01"})
    for name in ("t1", "t2", "t3"):
        yield queued(name)
    yield from turn("t1", 1)
    yield finished("t1", 1.0)
    yield finished("t2", 0.0)
    yield finished("t3", None)
    yield RunPhaseChanged(phase=RunPhase.TRAINING, step=0)
    yield group_scored(
        "g",
        {
            "t1": TrialScore(reward=1.0, advantage=0.5, tokens=10),
            "t2": TrialScore(reward=0.0, advantage=-0.5, tokens=10),
            "t3": TrialScore(reward=None, advantage=None, tokens=0),
        },
    )
    yield StepFinished(
        step=1,
        weights_version=1,
        metrics={
            "env/all/reward/total": 0.5,
            "time/total": 3.0,
            "time/sampling": 2.5,
            "time/training": 0.5,
        },
    )
    yield RunFinished(status="finished", reason="1 step, held-out pass rate 0.00 -> 0.50")


STANDINGS = ("solved", "failed", "lost", "acting", "paused", "queued")


def standing(groups: Mapping[str, str], *more: AnyEvent) -> RunState:
    """A run with a trial for each name in `groups` (name -> group), then `more` events.

    A trial that is called as one of `STANDINGS` stands so; the others wait in the queue.
    """

    def events() -> Iterator[AnyEvent]:
        yield started()
        yield StepStarted(step=1, groups=dict.fromkeys(groups.values(), "copy-01"))
        for name, group in groups.items():
            yield queued(name, group=group)
        for name in STANDINGS[:-1]:
            yield from turn(name, 1)
        yield finished("failed", 0.0)
        yield finished("solved", 1.0)
        yield finished("lost", None)
        yield TrialPaused(trial="paused")
        yield from more

    return folded(*events())
