"""Which trials belong together on the screen, and where recent trials' time went. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tbtui.view.state import RunState, TrialView
from tbtui.vocabulary import Purpose, RunPhase


def current_trials(state: RunState) -> list[TrialView]:
    """The trials of the batch under way, finished ones included, each in its lasting place.

    Trials of other batches are there while they live. A retried trial's place is taken by its
    successor.
    """
    batches = batches_under_way(state)
    chosen = [
        trial
        for trial in state.trials.values()
        if trial.live or (trial.step, trial.purpose) in batches
    ]
    names = places((trial.trial for trial in chosen), state.trials)
    return [state.trials[name] for name in names]


def batches_under_way(state: RunState) -> set[tuple[int, Purpose]]:
    """Step and purpose of each: of steps that are not trained yet, of which there may be several
    at once, and of the newest trial."""
    batches: set[tuple[int, Purpose]] = {(step.step, "train") for step in state.open_steps()}
    if state.trials:
        newest = next(reversed(state.trials.values()))
        batches.add((newest.step, newest.purpose))
    return batches


def last_attempt(trial: str, known: Mapping[str, TrialView]) -> str:
    """The trial, or the last of those that have taken its place."""
    while (view := known.get(trial)) and (successor := view.successor) and successor in known:
        trial = successor
    return trial


def places(trials: Iterable[str], known: Mapping[str, TrialView]) -> list[str]:
    """Each place once, in the order of the first attempts, by the last attempt at it."""
    return list(dict.fromkeys(last_attempt(trial, known) for trial in trials))


def awaited(state: RunState) -> tuple[int, Purpose] | None:
    """The batch that the run goes on with next: an evaluation, or the first step under way."""
    if state.phase is RunPhase.EVALUATING:
        if state.probe is not None:
            return 1, "probe"
        return state.step, "fork" if state.settings.get("fork_from") else "eval"
    first = next(iter(state.open_steps()), None)
    return None if first is None else (first.step, "train")


@dataclass(frozen=True, slots=True)
class Tally:
    """How many trials of a batch have ended."""

    step: int
    purpose: Purpose
    done: int
    total: int

    @property
    def words(self) -> str:
        return f"{self.done}/{self.total}"


def tallies(trials: Iterable[TrialView], state: RunState) -> list[Tally]:
    """How far each batch of these trials is; the one that the run goes on with next comes first."""
    batches: dict[tuple[int, Purpose], list[TrialView]] = {}
    for trial in trials:
        batches.setdefault((trial.step, trial.purpose), []).append(trial)
    first = awaited(state)
    return [
        Tally(*batch, sum(not trial.live for trial in batches[batch]), len(batches[batch]))
        for batch in sorted(batches, key=lambda batch: (batch != first, batch))
    ]


def siblings(trial: TrialView, state: RunState) -> list[TrialView]:
    """The members of a trial's group that are kept, each in its lasting place.

    A retried trial's place is taken by its successor.
    """
    group = state.groups.get(trial.group)
    if group is not None:
        names = [name for name in group.trials if name in state.trials]
    else:
        # Evaluations have groups that no step has announced.
        alike = (trial.group, trial.task)
        names = [t.trial for t in state.trials.values() if (t.group, t.task) == alike]
    return [state.trials[name] for name in places(names, state.trials)]


def attempts(trial: TrialView, state: RunState) -> list[TrialView]:
    """Every kept attempt of one place in a group, the first one first."""
    first = trial
    while first.predecessor is not None and first.predecessor in state.trials:
        first = state.trials[first.predecessor]
    chain = [first]
    while (successor := chain[-1].successor) is not None and successor in state.trials:
        chain.append(state.trials[successor])
    return chain


def active_seconds(trial: TrialView, now: float) -> float:
    """How long a trial has been at work, pauses and what a pace holds it left out."""
    if trial.started_at is None:
        return 0.0
    end = trial.finished_at
    if end is None:
        since = trial.phase_since if trial.hold.paused else trial.held_since
        end = now if since is None else since
    return max(0.0, end - trial.started_at - trial.paused_sec)
