"""What a run needs a person for: the one answer for the header, the notes, the title and the bell.

Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from tbtui.journal.commands import RUN
from tbtui.journal.vocabulary import Purpose
from tbtui.outcomes import ADVICE, Outcome
from tbtui.view.estimate import Outlook
from tbtui.view.state import RunState, TrialView
from tbtui.view.waiting import duration, held_by_people

_FEW = 8
"""Trials of a batch from which on it says something that none of them came to an end of its own."""
_FEWEST = 4
"""Trials below which a batch in which all failed says nothing."""
_OWN_ENDS = frozenset({Outcome.SOLVED, Outcome.FAILED})

NeedKind = Literal["over", "failed", "policy", "paused", "review", "trial", "failing"]


@dataclass(frozen=True, slots=True)
class Need:
    """Something for which the run needs a person, to act or to know."""

    kind: NeedKind
    text: str
    calls: bool = True
    """It is worth a bell: nobody here has asked for it."""
    held: Literal["", "paused", "frozen"] = ""
    """How the trial that the run waits for is held."""
    since: float = 0.0
    """When that began."""

    def words(self, now: float) -> str:
        """The text, with how long a held trial has been so."""
        return f"{self.text} {duration(now - self.since)}" if self.held else self.text

    @property
    def news(self) -> str:
        """The need's identity: that the next step's trials all fail, too, is no news."""
        return self.kind if self.kind == "failing" else self.text


def needs(outlook: Outlook) -> tuple[Need, ...]:
    """All needs of the run, the most important first; none while it goes on as it should."""
    return tuple(_needs(outlook))


def _needs(outlook: Outlook) -> Iterator[Need]:
    state = outlook.state
    if state.status is not None:
        failed = state.status == "failed"
        yield Need("failed", "the run has failed") if failed else Need("over", "the run is over")
        return
    if state.policy_lost is not None:
        yield Need("policy", "the run has lost its policy")
    if state.paused and state.paused_for:
        what = state.paused_for.partition("; ")[0]
        yield Need("paused", f"the run has paused itself: {what}")
    elif state.paused:
        asked = _asked_to_pause(state)
        words = "the run is paused" if asked else "the run has paused itself"
        yield Need("paused", words, calls=not asked)
    if state.reviews:
        yield Need("review", f"step {next(iter(state.reviews))} waits for a review")
    if held := held_by_people(state):
        yield _held(held)
    if words := _all_failing(state):
        yield Need("failing", words)


def _asked_to_pause(state: RunState) -> bool:
    """Whether a person paused the run, who then knows that it waits."""
    asked = [each.verb for each in state.commands if each.target == RUN]
    return [verb for verb in asked if verb in ("pause", "resume")][-1:] == ["pause"]


def _held(trials: list[TrialView]) -> Need:
    first, more = trials[0], len(trials) - 1
    if first.typist:
        return Need("trial", f"{first.typist} types in {first.label}", calls=False)
    others = f" and {more} more" if more else ""
    state: Literal["frozen", "paused"] = "frozen" if first.frozen else "paused"
    what = f"{first.label}{others} {'hold' if more else 'holds'} the step up, {state}"
    return Need("trial", what, held=state, since=first.phase_since)


def _all_failing(state: RunState) -> str:
    """`all 24 trials of step 3 failed: context overflow, raise context_limit`, of the newest batch
    that says as much.

    A batch of which a few have ended says so where none of those had a verdict of its own; one
    whose trials were all verified, and all without success, once it is through.
    """
    batches: dict[tuple[int, Purpose], list[TrialView]] = {}
    for trial in state.trials.values():
        if trial.outcome is not Outcome.CANCELLED:
            batches.setdefault((trial.step, trial.purpose), []).append(trial)
    for (step, purpose), trials in reversed(batches.items()):
        ended = [trial for trial in trials if not trial.live]
        if any(trial.reward for trial in ended):
            return ""
        outcomes = Counter(trial.outcome for trial in ended if trial.outcome is not None)
        through = len(ended) == len(trials) >= _FEWEST
        if through or (len(ended) >= _FEW and not _OWN_ENDS & outcomes.keys()):
            held_out = f"held-out trials after step {step}"
            of = held_out if purpose == "eval" else f"trials of step {step}"
            so_far = "" if through else " so far"
            ((most, count), *others) = outcomes.most_common()
            share = f"{count} " if others else ""
            why = "" if most is Outcome.FAILED else f": {share}{most.replace('_', ' ')}"
            if most in ADVICE:
                why += f", {ADVICE[most]}"
            return f"all {len(ended)} {of} failed{so_far}{why}"
        if through:
            return ""
    return ""
