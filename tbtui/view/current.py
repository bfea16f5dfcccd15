"""Which trials belong together on the screen, and where recent trials' time went. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tbtui.view.state import RunState, TrialView


def current_trials(state: RunState) -> list[TrialView]:
    """The trials of the batch under way, finished ones included, each in its lasting place.

    The batch is that of the newest trial (its step and purpose); trials of other batches are
    there while they live. A retried trial's place is taken by its successor.
    """
    if not state.trials:
        return []
    newest = next(reversed(state.trials.values()))
    batch = (newest.step, newest.purpose)
    chosen = [
        trial
        for trial in state.trials.values()
        if trial.live or (trial.step, trial.purpose) == batch
    ]
    successors = {trial.successor for trial in chosen if trial.successor in state.trials}
    places: list[TrialView] = []
    for trial in chosen:
        if trial.trial in successors:
            continue
        while trial.successor and trial.successor in state.trials:
            trial = state.trials[trial.successor]
        places.append(trial)
    return places


@dataclass(frozen=True, slots=True)
class TimeShare:
    name: str
    seconds: float
    share: float
    """Of all the time that the trials had a place to run in; 0 to 1."""


def time_shares(trials: Iterable[TrialView], latest: int = 64) -> list[TimeShare]:
    """Where the wall time of the latest finished trials went; waiting in the queue left out."""
    finished = [trial.seconds for trial in trials if trial.seconds is not None][-latest:]
    sums = [
        ("set-up", sum(seconds.setup for seconds in finished)),
        ("model", sum(seconds.sampling for seconds in finished)),
        ("shell", sum(seconds.commands for seconds in finished)),
        ("verify", sum(seconds.verifying for seconds in finished)),
        ("paused", sum(seconds.paused for seconds in finished)),
        ("clean-up", sum(seconds.teardown for seconds in finished)),
    ]
    total = sum(seconds for _, seconds in sums)
    return [
        TimeShare(name, seconds, seconds / total)
        for name, seconds in sums
        if total > 0 and (seconds > 0 or name != "paused")
    ]


def active_seconds(trial: TrialView, now: float) -> float:
    """How long a trial has been at work, pauses left out."""
    if trial.started_at is None:
        return 0.0
    end = trial.finished_at
    if end is None:
        end = trial.phase_since if trial.paused else now
    return max(0.0, end - trial.started_at - trial.paused_sec)
