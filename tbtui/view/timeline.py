"""What the run did when: stretches of sampling, waiting, training, evaluating. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from tbtui.journal.vocabulary import RunPhase
from tbtui.view.state import ACTIVITIES, Activity, RunState, StepView, Stretch


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
    """Of the latest steps, the last one last."""
    steps: dict[int, dict[Activity, float]] = {}
    live = -1
    for stretch in reversed(stretches):
        if stretch.step not in steps and len(steps) == latest:
            break
        if stretch.until is None:
            live = stretch.step
        seconds = (now if stretch.until is None else stretch.until) - stretch.since
        spent = steps.setdefault(stretch.step, {})
        spent[stretch.activity] = spent.get(stretch.activity, 0.0) + max(0.0, seconds)
    return [
        StepTimes(step, {name: spent[name] for name in ACTIVITIES if name in spent}, step == live)
        for step, spent in sorted(steps.items())
    ]


def note(state: RunState, now: float) -> None:
    """After anything that may have changed what the run does."""
    doing = _doing(state)
    open_stretch = state.timeline[-1] if state.timeline else None
    if open_stretch is not None and open_stretch.until is None:
        if doing == (open_stretch.activity, open_stretch.step):
            return
        open_stretch.until = now
    if doing is not None:
        state.timeline.append(Stretch(*doing, now))


def cut_off(state: RunState, gaps: Iterable[tuple[float, float]]) -> None:
    """In the `gaps` there was no process, without a word; another one goes on."""
    for since, until in gaps:
        for stretch in reversed(state.timeline):
            if stretch.until is not None and stretch.until <= since:
                break
            if stretch.since < until:
                stretch.until = max(since, stretch.since)


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
    if state.paused:
        activity = "paused"
    elif state.policy_lost is not None:
        activity = "waiting"
    return activity, step


def _last_ones(step: StepView) -> bool:
    """At least three quarters of what was queued has ended, and not all."""
    return step.ended < step.queued <= step.ended / 3 * 4
