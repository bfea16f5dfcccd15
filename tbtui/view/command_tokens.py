"""Which tokens of a completion say which command."""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tbtui.journal.events import AgentCommand

_LIST = '"commands"'


def command_tokens(pieces: Sequence[str], commands: Sequence[AgentCommand]) -> list[range | None]:
    """The tokens of each command's keystrokes; None: they don't stand there as they are.

    `pieces`: the text of each token.
    """
    text = "".join(pieces)
    ends = list(accumulate(len(piece) for piece in pieces))
    # What the agent plans may quote a command.
    place = max(0, text.find(_LIST))
    found: list[range | None] = []
    for command in commands:
        span = _span(text, command.keystrokes, place)
        if span is None:
            found.append(None)
            continue
        place = span[1]
        found.append(range(bisect_right(ends, span[0]), bisect_left(ends, span[1]) + 1))
    return found


def _span(text: str, keystrokes: str, start: int) -> tuple[int, int] | None:
    """Where a string stands in a JSON text, however that writes what is not ASCII."""
    if not keystrokes:
        return None
    for ascii_only in (False, True):
        written = json.dumps(keystrokes, ensure_ascii=ascii_only)
        at = text.find(written, start)
        if at >= 0:
            return at + 1, at + len(written) - 1
    return None
