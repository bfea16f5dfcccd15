"""Where time goes: of a trial, of a step's wait, of the run; and how long a trial will still take.
Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from tbtui.journal.events import PhaseSeconds
from tbtui.view.current import active_seconds, awaited
from tbtui.view.state import (
    ACTIVITIES,
    SPENDINGS,
    Activity,
    Duration,
    RunState,
    Spending,
    StepView,
    Stretch,
    TrialView,
)
from tbtui.vocabulary import RunPhase, TrialPhase

_SPENDING: dict[TrialPhase, Spending] = {
    TrialPhase.QUEUED: "queue",
    TrialPhase.MODEL: "sampling",
    TrialPhase.ACTING: "commands",
    TrialPhase.PAUSED: "paused",
    TrialPhase.VERIFYING: "verifying",
    TrialPhase.TEARDOWN: "teardown",
    TrialPhase.FINISHED: "teardown",
}


def spending_of(phase: TrialPhase, detail: str) -> Spending:
    """What the time of a phase counts as; set-up is distinguished by its detail."""
    if phase is TrialPhase.SETUP:
        return "build" if detail.partition(":")[0] == "sandbox" else "setup"
    return _SPENDING[phase]


def spend(trial: TrialView, spending: Spending, now: float) -> None:
    """From `now` on the trial's time goes to `spending`."""
    since = trial.spent.get(trial.spending, 0.0)
    trial.spent[trial.spending] = since + max(0.0, now - trial.spent_until)
    trial.spending, trial.spent_until = spending, now


def breakdown(trial: TrialView, now: float) -> dict[Spending, float]:
    """Seconds by what they went to, in the order of a trial's life; zeros are left out.

    Of a finished trial it is what was measured where the trial ran, of a live one what its
    changes of phase say so far.
    """
    if trial.seconds is not None:
        seconds = _measured(trial.seconds)
        if any(seconds.values()):
            return {name: value for name, value in seconds.items() if value > 0}
    seconds = dict(trial.spent)
    if trial.live:
        so_far = seconds.get(trial.spending, 0.0)
        seconds[trial.spending] = so_far + max(0.0, now - trial.spent_until)
    return {name: seconds[name] for name in SPENDINGS if seconds.get(name, 0.0) > 0}


def agent_seconds(trial: TrialView, now: float) -> float:
    """How much of its time the agent has had: the model's answers and its commands."""
    seconds = breakdown(trial, now)
    return seconds.get("sampling", 0.0) + seconds.get("commands", 0.0)


def time_shares(trials: Iterable[TrialView], latest: int = 64) -> dict[Spending, float]:
    """Where the wall time of the latest finished trials went; waiting in the queue left out.

    Shares from 0 to 1, in the order of a trial's life.
    """
    sums: dict[Spending, float] = {}
    for trial in [trial for trial in trials if trial.seconds is not None][-latest:]:
        for name, seconds in breakdown(trial, 0.0).items():
            if name != "queue":
                sums[name] = sums.get(name, 0.0) + seconds
    total = sum(sums.values())
    return {name: sums[name] / total for name in SPENDINGS if name in sums} if total else {}


def _measured(seconds: PhaseSeconds) -> dict[Spending, float]:
    return {
        "queue": seconds.queue,
        "build": seconds.build,
        "setup": seconds.setup,
        "sampling": seconds.sampling,
        "commands": seconds.commands,
        "delayed": seconds.delayed,
        "paused": seconds.paused,
        "verifying": seconds.verifying,
        "teardown": seconds.teardown,
    }


@dataclass(frozen=True, slots=True)
class StepTimes:
    """Where a step's wall time went, in the order of `ACTIVITIES`."""

    step: int
    seconds: dict[Activity, float]
    live: bool

    @property
    def total(self) -> float:
        return sum(self.seconds.values())


def step_times(stretches: deque[Stretch], now: float, latest: int) -> list[StepTimes]:
    """Times of the latest steps, the last one last."""
    steps: dict[int, dict[Activity, float]] = {}
    live = -1
    for stretch in reversed(stretches):
        if stretch.step not in steps and len(steps) == latest:
            break
        if stretch.until is None:
            live = stretch.step
        spent = steps.setdefault(stretch.step, {})
        spent[stretch.activity] = spent.get(stretch.activity, 0.0) + stretch.seconds(now)
    return [
        StepTimes(step, {name: spent[name] for name in ACTIVITIES if name in spent}, step == live)
        for step, spent in sorted(steps.items())
    ]


def note_activity(state: RunState, now: float) -> None:
    """Begin another stretch if the run does something else now."""
    doing = _doing(state)
    open_stretch = state.timeline[-1] if state.timeline else None
    if open_stretch is not None and open_stretch.until is None:
        if doing == (open_stretch.activity, open_stretch.step):
            return
        open_stretch.until = now
        state.worked_sec += open_stretch.seconds(now) if open_stretch.work else 0.0
    if doing is not None:
        state.timeline.append(Stretch(*doing, now))


def leave_out(state: RunState, until: float) -> None:
    """What the run has done since its last event is no part of a stretch; `until` may be before."""
    if not state.timeline or (doing := state.timeline[-1]).until is not None:
        return
    doing.until = state.time
    state.worked_sec += doing.seconds(until) if doing.work else 0.0
    state.timeline.append(Stretch(doing.activity, doing.step, until, paced=doing.paced))


def evaluation_seconds(state: RunState, step: int, now: float) -> tuple[float | None, float]:
    """Seconds of work of an evaluation that ends now, and of the run up to now.

    None for the evaluation's: a pace has held its trials.
    """
    own = []
    for stretch in reversed(state.timeline):
        if stretch.step != step or stretch.activity not in ("evaluating", "paused"):
            break
        if stretch.activity == "evaluating":
            own.append(stretch)
    open_ones = [each for each in own if each.until is None and each.work]
    worked = state.worked_sec + sum(each.seconds(now) for each in open_ones)
    paced = any(each.paced for each in own)
    return None if paced or not own else sum(each.seconds(now) for each in own), worked


def cut_off(state: RunState, gaps: Iterable[tuple[float, float]]) -> None:
    """End the stretches where a `gap` without a process began."""
    for since, until in gaps:
        for stretch in reversed(state.timeline):
            if stretch.until is not None and stretch.until <= since:
                break
            if stretch.since < until:
                before = stretch.seconds(since) if stretch.until is not None else 0.0
                stretch.until = max(since, stretch.since)
                state.worked_sec += stretch.seconds(since) - before if stretch.work else 0.0


def _doing(state: RunState) -> tuple[Activity, int] | None:
    under_way = state.open_steps()
    match state.phase:
        case RunPhase.STOPPING | RunPhase.FINISHED:
            return None
        case RunPhase.STARTING:
            activity: Activity = "starting"
            step = state.step
        case RunPhase.EVALUATING:
            activity, step = "evaluating", state.step
        case RunPhase.SAVING:
            activity, step = "saving", state.step
        case RunPhase.REVIEWING:
            activity, step = "reviewing", state.phase_step + 1
        case RunPhase.TRAINING:
            # The next step may begin a moment before the phase ends.
            activity, step = "training", state.phase_step + 1
        case RunPhase.SAMPLING:
            step = under_way[0].step if under_way else state.step + 1
            last_ones = bool(under_way) and _last_ones(under_way[0])
            activity = "waiting" if last_ones else "sampling"
    if state.paused or _held(state):
        activity = "paused"
    elif state.policy_lost is not None:
        activity = "waiting"
    return activity, step


def _held(state: RunState) -> bool:
    """Whether people hold all the trials at work of the batch that the run goes on with."""
    if not state.held or state.phase not in (RunPhase.SAMPLING, RunPhase.EVALUATING):
        return False
    if (batch := awaited(state)) is None:
        return False
    # The newest first: as a rule one of them is not held, which ends the search.
    at_work = (
        trial.hold.paused
        for trial in reversed(state.trials.values())
        if trial.finished_at is None
        and trial.started_at is not None
        and (trial.step, trial.purpose) == batch
    )
    return next(at_work, False) and all(at_work)


def _last_ones(step: StepView) -> bool:
    """Whether at least three quarters of what was queued has ended, but not all."""
    return step.ended < step.queued <= step.ended / 3 * 4


METRIC = "time/wait/"
"""Before the name of a spending, in a step's metrics; seconds."""


@dataclass(frozen=True, slots=True)
class StepWait:
    """The time of the trial that a step waited for longest, earlier attempts included."""

    step: int
    seconds: dict[Spending, float]
    """Seconds of the critical path by what they went to, in the order of a trial's life."""
    live: bool
    """The step is still being sampled."""

    @property
    def shares(self) -> dict[Spending, float]:
        """From 0 to 1."""
        total = sum(self.seconds.values())
        return {name: seconds / total for name, seconds in self.seconds.items()} if total else {}


def step_wait(outlook: Outlook) -> StepWait | None:
    """What the step under way waits for, or what the latest one waited for."""
    state = outlook.state
    if not state.steps:
        return None
    step = next(iter(state.open_steps()), None)
    if state.phase is RunPhase.SAMPLING and step is not None:
        batch = (step.step, "train")
        members = [t for t in outlook.holding_up if (t.step, t.purpose) == batch]
        if members:
            return StepWait(step.step, _with_earlier_attempts(members[0], state, outlook.now), True)
    return next(
        (
            waited
            for each in reversed(state.steps)
            if (waited := measured_wait(each.step, each.metrics)) is not None
        ),
        None,
    )


def in_words(wait: StepWait, most: int = 2) -> str:
    """`sampling 61%, commands 24%`: the largest shares."""
    largest = sorted(wait.shares.items(), key=lambda share: -share[1])[:most]
    return ", ".join(f"{name} {share:.0%}" for name, share in largest if share >= 0.005)


def measured_wait(step: int, metrics: dict[str, float]) -> StepWait | None:
    """The wait in a finished step's metrics, if it is there."""
    seconds: dict[Spending, float] = {
        name: metrics[METRIC + name] for name in SPENDINGS if metrics.get(METRIC + name, 0) > 0
    }
    return StepWait(step, seconds, False) if seconds else None


def _with_earlier_attempts(trial: TrialView, state: RunState, now: float) -> dict[Spending, float]:
    seconds = breakdown(trial, now)
    while trial.predecessor is not None and (earlier := state.trials.get(trial.predecessor)):
        for name, value in breakdown(earlier, now).items():
            seconds[name] = seconds.get(name, 0.0) + value
        trial = earlier
    return {name: seconds[name] for name in SPENDINGS if name in seconds}


_ENOUGH = 2
"""Trials of the same task that say more than all trials do."""


def remaining_sec(trial: TrialView, state: RunState, now: float) -> float | None:
    """Active seconds until a running trial is expected to end; None where nothing is known.

    The mean of those finished trials that took longer than this one has taken so far and made at
    least as many turns: of its own task where there are enough, else of all. A trial with a
    budget is never expected to overrun it.
    """
    if not trial.live or trial.started_at is None:
        return None
    elapsed = active_seconds(trial, now)
    longer = _longer(state.task_durations.get(trial.task, ()), trial.turn, elapsed)
    if len(longer) < _ENOUGH:
        longer = _longer(state.durations, trial.turn, elapsed) or longer
    if not longer:
        return None
    expected = sum(longer) / len(longer) - elapsed
    budget = trial.budget_sec
    if trial.phase in (TrialPhase.VERIFYING, TrialPhase.TEARDOWN):
        return expected
    if budget is None or budget <= elapsed:
        return expected
    return min(expected, budget - elapsed)


def _longer(durations: Iterable[Duration], turns: int, seconds: float) -> list[float]:
    return [each.seconds for each in durations if each.turns >= turns and each.seconds > seconds]


def time_left(seconds: float) -> str:
    """`~3s`, `~0:40`: rounded to what such an estimate can be worth."""
    if seconds < 9.5:
        return f"~{max(1, round(seconds))}s"
    grain = 5 if seconds < 20 else 10 if seconds < 120 else 30 if seconds < 600 else 60
    whole = max(grain, round(seconds / grain) * grain)
    if whole >= 3600:
        return f"~{whole // 3600}:{whole % 3600 // 60:02d}h"
    return f"~{whole // 60}:{whole % 60:02d}"


@dataclass(frozen=True)
class Outlook:
    """A run at one moment. What is expected of it is worked out once, when it is asked for."""

    state: RunState
    now: float

    @cached_property
    def holding_up(self) -> list[TrialView]:
        """The live trials of the batch under way, the one that is expected to end last first.

        A trial that has already outlasted all that is known comes before any estimate; without
        estimates it is the oldest first. What is still queued comes last, what is paused not at
        all. Trials that are sampled ahead, for a later step, come after all of those.
        """
        live = (
            trial for trial in self.state.trials.values() if trial.live and not trial.hold.paused
        )
        first = awaited(self.state)

        def wait(trial: TrialView) -> tuple[bool, bool, bool, float, float]:
            later = first is not None and (trial.step, trial.purpose) != first
            if trial.started_at is None:
                return later, True, False, 0.0, trial.queued_at
            remaining = remaining_sec(trial, self.state, self.now)
            return later, False, remaining is not None, -(remaining or 0.0), trial.started_at

        return sorted(live, key=wait)
