"""A group's trials side by side, turn by turn: where their histories part. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Literal

from tbtui.view.transcript import Transcript, TurnView


@dataclass(frozen=True, slots=True)
class TurnCell:
    """One turn of one sibling, compared with the same turn of the others."""

    turn: TurnView
    alike: int
    """Siblings whose history up to and with this turn is the same, itself included."""
    first: bool
    """It is the leftmost of those."""
    of: int
    """Siblings that have had this turn."""
    against: int | None = None
    """Index of the sibling from which it parts in this turn: the leftmost of those that go on
    alike in the largest number. None: it doesn't part, or the others part from it."""
    where: Literal["action", "answer"] = "action"
    """What differs: what the agent did, or only what the terminal answered."""

    @property
    def repeated(self) -> bool:
        """Shared by all, or to be read further left already."""
        return self.alike > 1 and (self.alike == self.of or not self.first)


def aligned(transcripts: Sequence[Transcript]) -> list[list[TurnCell]]:
    """The turns of each sibling, in the order given.

    A turn is the same as another one if the keystrokes (or what could not be read), the claim to
    be done and the terminal's answer are; what the agent thought about it may differ. A turn
    without an answer yet is compared with none.
    """
    turns = [[turn for turn in each.turns if turn.purpose == "turn"] for each in transcripts]
    cells: list[list[TurnCell]] = [[] for _ in transcripts]
    branch: list[Hashable] = [()] * len(transcripts)
    for place in range(max(map(len, turns), default=0)):
        here = [index for index, each in enumerate(turns) if len(each) > place]
        complete = {
            index: turns[index][place]
            for index in here
            if place + 1 < len(turns[index])
            or turns[index][place].observation
            or transcripts[index].finished is not None
        }
        before = list(branch)
        for index in here:
            turn = complete.get(index)
            branch[index] = (
                (before[index], index) if turn is None else (before[index], _whole(turn))
            )
        for index in here:
            same = [other for other in here if branch[other] == branch[index]]
            peers = [other for other in complete if before[other] == before[index]]
            against = _trunk(peers, branch)
            if index not in complete or against is None or branch[against] == branch[index]:
                against = None
            mine = turns[index][place]
            agreed = against is not None and _action(turns[against][place]) == _action(mine)
            cells[index].append(
                TurnCell(
                    mine,
                    alike=len(same),
                    first=same[0] == index,
                    of=len(here),
                    against=against,
                    where="answer" if agreed else "action",
                )
            )
    return cells


def _trunk(peers: Sequence[int], branch: Sequence[Hashable]) -> int | None:
    """The leftmost of the largest number of peers that go on alike; others part from them."""
    sizes = Counter(branch[peer] for peer in peers)
    return max(peers, key=lambda peer: sizes[branch[peer]], default=None)


def first_divergence(cells: Sequence[Sequence[TurnCell]]) -> int | None:
    """The place (from 0) of the first turn in which any two siblings part."""
    places = [
        place for each in cells for place, cell in enumerate(each) if cell.against is not None
    ]
    return min(places, default=None)


def first_difference(mine: Sequence[str], other: Sequence[str]) -> int | None:
    """Index of the first token in which two completions differ; None: they don't, or one of them
    is not known."""
    if not mine or not other:
        return None
    for index, (a, b) in enumerate(zip(mine, other, strict=False)):
        if a != b:
            return index
    return min(len(mine), len(other)) if len(mine) != len(other) else None


def _action(turn: TurnView) -> Hashable:
    keystrokes = tuple(command.keystrokes for command in turn.commands)
    return keystrokes, turn.task_complete, turn.text if turn.error else ""


def _whole(turn: TurnView) -> Hashable:
    return _action(turn), turn.observation
