"""Lines for a person on a step under review, and how to answer it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tbtui.console.texts import reward_text
from tbtui.journal.events import (
    Entry,
    GroupUnderReview,
    ReviewChanged,
    ReviewClosed,
    ReviewOpened,
    RunContinued,
    RunStarted,
    SettingsChanged,
)
from tbtui.view.waiting import duration

MOST_TRIALS = 8
"""Trials that are listed; the others are counted."""


class ReviewLines:
    """Fold every event of the journal in."""

    def __init__(self) -> None:
        self._run = ""
        self._settings: Mapping[str, Any] = {}
        self._undecided: dict[int, int] = {}
        """Open review's step -> trials without a decision."""

    def lines(self, entry: Entry) -> Iterator[str]:
        """Lines that this event adds."""
        match entry.event:
            case RunStarted(run=run, settings=settings):
                self._run, self._settings = run, settings
            case RunContinued(settings=settings):
                self._settings = settings
                self._undecided.clear()
            case SettingsChanged(settings=settings):
                self._settings = {**self._settings, **settings}
            case ReviewOpened():
                self._undecided[entry.event.step] = len(entry.event.undecided)
                yield from self._opened(entry.event)
            case ReviewChanged(step=step, undecided=undecided):
                before, left = self._undecided.get(step), len(undecided)
                self._undecided[step] = left
                if before is not None and before != left:
                    yield f"step {step}: {_trials(left)} undecided"
            case ReviewClosed():
                self._undecided.pop(entry.event.step, None)
                yield _closed(entry.event)
            case _:
                pass

    def _opened(self, event: ReviewOpened) -> Iterator[str]:
        scored = sum(len(group.trials) for group in event.groups)
        ends = ""
        if event.timeout_sec is not None:
            left_out = self._settings.get("at_review_timeout") != "accept"
            then = "undecided suspects are excluded" if left_out else "it goes on"
            ends = f"; after {duration(event.timeout_sec)} {then}"
        yield (
            f"step {event.step} waits for a review before it is trained:"
            f" {len(event.undecided)} of {_trials(scored)} undecided{ends}"
        )
        found = [text for group in event.groups for text in _suspects(group, event.undecided)]
        yield from found[:MOST_TRIALS]
        if len(found) > MOST_TRIALS:
            yield f"and {_trials(len(found) - MOST_TRIALS)} more"
        yield f"look: tbtui attach {self._run}, or tbtui ctl group list --run {self._run}"
        yield f"go on: tbtui ctl run accept {self._run}"


def _suspects(group: GroupUnderReview, undecided: tuple[str, ...]) -> Iterator[str]:
    for trial, suspicions in group.suspects.items():
        if trial in undecided:
            score = group.trials.get(trial)
            reward = reward_text(score.reward if score is not None else None)
            why = "; ".join(f"{s.suspect.replace('_', ' ')}: {s.why}" for s in suspicions)
            yield f"{trial}, reward {reward}, {why}"


def _closed(event: ReviewClosed) -> str:
    how = {
        "accepted": f"accepted by {event.actor}",
        "rules": "decided by rules",
        "timeout": "no decision in time",
    }[event.how]
    return f"step {event.step} goes on: {how}" + (f" ({event.reason})" if event.reason else "")


def _trials(count: int) -> str:
    return f"{count} trial" + "s" * (count != 1)
