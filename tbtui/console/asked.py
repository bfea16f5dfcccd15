"""What people, scripts and rules ask for, and what came of it."""

from __future__ import annotations

from collections.abc import Iterator

from tbtui.console.texts import given, reward_text
from tbtui.journal.commands import is_rule
from tbtui.journal.events import (
    CommandDone,
    CommandIssued,
    Entry,
    TrialExcluded,
    TrialRelabelled,
)

_TOLD_WITH_ARGUMENTS = frozenset({"set", "relabel", "accept"})


class AskedLines:
    """Fold every event of the journal in."""

    def __init__(self) -> None:
        self._asked: dict[str, str] = {}
        """Command that is not done -> what it asks."""
        self._ruled: dict[str, str] = {}
        """Of those, the ones of a review's rules -> their target."""

    def lines(self, entry: Entry) -> Iterator[tuple[str, str]]:
        """Head and text of each line. A rule's decision is one line, unless it is refused."""
        event = entry.event
        match event:
            case CommandIssued():
                self._asked[event.command] = f"{event.verb} {event.target}"
                if is_rule(event.actor):
                    self._ruled[event.command] = event.target
                told = event.arguments if event.verb in _TOLD_WITH_ARGUMENTS else {}
                what = f" {given(told)}" if told else ""
                why = f" ({event.reason})" if event.reason else ""
                yield "asked", f"{event.actor}: {event.verb} {event.target}{what}{why}"
            case CommandDone():
                what = self._asked.pop(event.command, "")
                if not (self._ruled.pop(event.command, "") and event.ok):
                    yield "done" if event.ok else "refused", event.result or what
            case TrialExcluded() | TrialRelabelled() if event.trial in self._ruled.values():
                pass
            case TrialExcluded():
                left_out = "is left out of" if event.excluded else "counts for"
                again = "" if event.excluded else " again"
                why = f": {event.reason}" if event.reason else ""
                yield "trial", f"{event.trial} {left_out} training{again}{why}"
            case TrialRelabelled():
                yield "trial", _relabelled(event)
            case _:
                pass


def _relabelled(event: TrialRelabelled) -> str:
    reward = reward_text(event.reward)
    if event.taken_back:
        return f"{event.trial} has the verifier's reward again: {reward}"
    return f"{event.trial} has reward {reward}, not {reward_text(event.before)}: {event.reason}"
