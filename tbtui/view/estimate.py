"""How long a running trial will still take, and which trials a step waits for. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from statistics import median

from tbtui.journal.vocabulary import TrialPhase
from tbtui.view.current import active_seconds, awaited
from tbtui.view.state import Activity, Duration, RunState, TrialView

_ENOUGH = 2
"""Trials of the same task that say more than all trials do."""
_LATEST_STEPS = 8
"""Finished steps that a forecast is made from, at most."""
_RESTS: frozenset[Activity] = frozenset({"starting", "paused"})
"""What is no part of a step's work."""


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
    if trial.phase in (TrialPhase.VERIFYING, TrialPhase.TEARDOWN) or trial.budget_sec <= elapsed:
        return expected
    return min(expected, trial.budget_sec - elapsed)


def run_remaining_sec(state: RunState, now: float) -> float | None:
    """Seconds until the last step is expected to end; None: nobody knows, or the run rests.

    A step to come takes the median of the latest finished ones, and its share of what evaluations
    have taken; what the step under way has had already is taken off.
    """
    if state.status is not None or state.paused or not state.max_steps:
        return None
    finished = {step.step for step in list(state.steps)[-_LATEST_STEPS:] if step.finished_at}
    if not finished:
        return None
    work = dict.fromkeys(finished, 0.0)
    evaluating = under_way = 0.0
    for stretch in reversed(state.timeline):
        if stretch.step < min(finished):
            break  # the cost does not grow with the run
        seconds = (now if stretch.until is None else stretch.until) - stretch.since
        if stretch.activity == "evaluating":
            evaluating += seconds if stretch.step in work else 0.0
        elif stretch.activity in _RESTS:
            continue
        elif stretch.step in work:
            work[stretch.step] += seconds
        elif stretch.step > max(finished):
            under_way += seconds
    each = median(work.values()) + evaluating / len(work)
    left = each * (state.max_steps - state.step)
    return left - min(under_way, each) if left > 0 else None


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
        live = (trial for trial in self.state.trials.values() if trial.live and not trial.paused)
        first = awaited(self.state)

        def wait(trial: TrialView) -> tuple[bool, bool, bool, float, float]:
            later = first is not None and (trial.step, trial.purpose) != first
            if trial.started_at is None:
                return later, True, False, 0.0, trial.queued_at
            remaining = remaining_sec(trial, self.state, self.now)
            return later, False, remaining is not None, -(remaining or 0.0), trial.started_at

        return sorted(live, key=wait)
