"""The turns of a group's trials in columns, aligned; what is the same is dimmed."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

from rich.cells import cell_len
from rich.style import Style
from textual import events
from textual.message import Message
from textual.strip import Strip

from tbtui.ui.drawing.rows import Span, row
from tbtui.ui.drawing.text import number, visible, visible_lines, wrap
from tbtui.ui.input.keys import bindings
from tbtui.ui.panes.pane import Frame, GrowingPane
from tbtui.ui.theme.palette import Palette
from tbtui.view.current import last_attempt
from tbtui.view.groups import TurnCell, aligned, first_difference, first_divergence
from tbtui.view.state import TrialView
from tbtui.view.transcript import Transcript, TurnView

_NARROWEST = 38
"""Cells of a column."""
_CLOSED = (2, 6)
"""Rows that a turn which is not chosen has for its commands, and for the answer: where room is
short, and where there is enough."""
_OPEN = 12
"""The same for the chosen one, and for what it thought."""
_CONTEXT = 14
"""Characters shown before a differing token."""


@dataclass(slots=True)
class Spread:
    """The siblings side by side, and the chosen sibling and turn."""

    names: list[str] = field(default_factory=list)
    chosen: int = 0
    turn: int = 0
    """Place of the chosen turn, from 0."""
    first: int = 0
    """The leftmost sibling that can be seen."""

    def columns(self, width: int) -> list[tuple[int, int]]:
        """Index and width of each visible sibling, the chosen one among them."""
        count = max(1, min(len(self.names), width // _NARROWEST))
        self.first = min(max(self.first, self.chosen - count + 1), self.chosen)
        self.first = max(0, min(self.first, len(self.names) - count))
        shown = range(self.first, min(self.first + count, len(self.names)))
        return [
            (index, width // count + (place < width % count)) for place, index in enumerate(shown)
        ]

    @property
    def key(self) -> Hashable:
        return tuple(self.names), self.chosen, self.turn, self.first


class SiblingsPane(GrowingPane):
    """One row of blocks a turn, one column a sibling. The chosen turn is open.

    It opens at the first turn; at its end it follows what the siblings do.
    """

    BINDINGS = bindings("siblings")

    class Opened(Message):
        """The chosen sibling is to be opened."""

    def __init__(self, id: str, spread: Spread) -> None:
        super().__init__(id)
        self.spread = spread
        self.cells: list[list[TurnCell]] = []
        self._transcripts: dict[str, Transcript] = {}
        self._read: dict[str, Hashable] = {}
        """Sibling -> how it stood when its transcript was read."""
        self._version = 0
        """Grows with every transcript that was read."""
        self._rewound = 0
        """How often its run had gone back in time by then."""
        self._starts: list[int] = []
        """First row of each turn."""
        self._blocks: dict[Hashable, list[Strip]] = {}
        self._shown: Hashable = None
        """The cursor as it was shown last."""
        self.follow = False

    def count(self, frame: Frame) -> int:
        return sum(map(len, self.cells))

    def read_on(self, frame: Frame, members: Sequence[TrialView]) -> None:
        """Read the siblings' new events."""
        if frame.run.rewound != self._rewound:
            self._rewound = frame.run.rewound
            self._restart()
        names = [each.trial for each in members]
        changed = self.spread.names != names or not self.cells
        for each in members:
            stands = (each.phase, each.turn, len(each.samples), each.outcome)
            if self._read.get(each.trial) != stands:
                self._read[each.trial] = stands
                transcript = self._transcripts.setdefault(each.trial, Transcript())
                changed |= frame.run.read_on(each.trial, transcript)
        if not names or not changed:
            return
        chosen = last_attempt(self.spread.names[self.spread.chosen], frame.state.trials)
        if chosen in names:
            self.spread.chosen = names.index(chosen)
        self.spread.chosen = min(self.spread.chosen, len(names) - 1)
        self.spread.names = names
        self.cells = aligned([self._transcripts[name] for name in names])
        self._version += 1

    def _restart(self) -> None:
        """Read the turns anew: the time has gone back."""
        self._transcripts.clear()
        self._read.clear()
        self._blocks.clear()
        self.cells = []
        self._version += 1

    @property
    def turns(self) -> int:
        return max(map(len, self.cells), default=0)

    def title(self, frame: Frame) -> str:
        names, room = self.spread.names, self.scrollable_content_region.width
        seen = self.spread.columns(room)
        title = "turns side by side"
        if len(seen) < len(names):
            title += f" · siblings {seen[0][0] + 1}–{seen[-1][0] + 1} of {len(names)}"
        parts = first_divergence(self.cells)
        if parts is not None:
            title += f" · they diverge at turn {parts + 1}"
        return title

    def key(self, frame: Frame) -> Hashable:
        return self._version, self.spread.key

    def build(self, frame: Frame, width: int, height: int) -> list[Strip]:
        palette = frame.palette
        if not self.turns:
            return [row(width, (" once one of them has finished a turn", palette.faint))]
        self.spread.turn = min(self.spread.turn, self.turns - 1)
        columns = self.spread.columns(width)
        fits = (height - 2 * _OPEN) // (2 * self.turns) - 1
        closed = min(max(_CLOSED[0], fits), _CLOSED[1])
        rows: list[Strip] = []
        self._starts = []
        for place in range(self.turns):
            self._starts.append(len(rows))
            blocks = [self._block(frame, index, place, cells, closed) for index, cells in columns]
            rows.extend(
                Strip.join(
                    block[line] if line < len(block) else Strip.blank(cells)
                    for block, (_, cells) in zip(blocks, columns, strict=True)
                )
                for line in range(max(map(len, blocks)))
            )
        return rows

    def show(self, frame: Frame) -> None:
        super().show(frame)
        cursor = (self.spread.turn, self.size)
        if cursor != self._shown and self.spread.turn < len(self._starts):
            self._shown = cursor
            start = self._starts[self.spread.turn]
            following = self._starts[self.spread.turn + 1 :]
            end = following[0] if following else len(self._rows)
            self.reveal(min(end - 1, start + self.scrollable_content_region.height - 1))
            self.reveal(start)

    def _block(self, frame: Frame, index: int, place: int, width: int, closed: int) -> list[Strip]:
        if place >= len(self.cells[index]):
            return []
        cell = self.cells[index][place]
        chosen = place == self.spread.turn
        here = chosen and index == self.spread.chosen
        name = self.spread.names[index]
        complete = (cell.turn.sample, bool(cell.turn.observation), len(cell.turn.commands))
        compared = (cell.alike, cell.first, cell.of, cell.against, cell.where)
        most = _OPEN if chosen else closed
        key = (frame.palette.name, width, name, place, most, here, complete, compared)
        if key not in self._blocks:
            if len(self._blocks) > 4096:
                self._blocks.clear()
            difference = self._difference(frame, index, place)
            self._blocks[key] = _block(cell, frame.palette, width, most, here, difference)
        return self._blocks[key]

    def _difference(self, frame: Frame, index: int, place: int) -> _Difference | None:
        """Return the difference in the turn at which a sibling diverges from another."""
        cell = self.cells[index][place]
        if cell.against is None or cell.where == "answer":
            return None
        other = self.cells[cell.against][place].turn
        if cell.turn.sample is None or other.sample is None:
            return None
        mine = frame.run.tokens(cell.turn.sample)
        pieces = [piece for piece, _ in mine]
        at = first_difference(pieces, [piece for piece, _ in frame.run.tokens(other.sample)])
        if at is None:
            return None
        piece, logprob = mine[at] if at < len(mine) else ("(ends here)", None)
        if not any(known for _, known in mine):
            logprob = None
        return _Difference(at, "".join(pieces[max(0, at - _CONTEXT) : at]), piece, logprob)

    def action_choose(self, siblings: int, turns: int) -> None:
        spread = self.spread
        if turns:
            self.follow = False
        spread.chosen = min(max(0, spread.chosen + siblings), max(0, len(spread.names) - 1))
        spread.turn = min(max(0, spread.turn + turns), max(0, self.turns - 1))
        self.redraw()

    @property
    def divergences(self) -> list[tuple[int, int]]:
        """Turn and sibling of each place at which one diverges, in order."""
        return sorted(
            (place, index)
            for index, cells in enumerate(self.cells)
            for place, cell in enumerate(cells)
            if cell.against is not None
        )

    def action_divergence(self) -> None:
        """Go to the next turn at which a sibling diverges, cyclically."""
        places = self.divergences
        here = (self.spread.turn, self.spread.chosen)
        if places:
            self.follow = False
            later = [place for place in places if place > here]
            self.spread.turn, self.spread.chosen = (later or places)[0]
            self.redraw()

    def on_click(self, event: events.Click) -> None:
        at = self.place_of(event)
        if at is None:
            return
        left = 0
        for index, width in self.spread.columns(self.scrollable_content_region.width):
            if left <= at.x < left + width:
                self.spread.chosen = index
            left += width
        turns = [place for place, start in enumerate(self._starts) if start <= at.y]
        if turns:
            self.spread.turn = turns[-1]
        self.redraw()
        if event.chain > 1:
            self.post_message(self.Opened())


@dataclass(frozen=True, slots=True)
class _Difference:
    """The first difference of two completions."""

    token: int
    before: str
    piece: str
    logprob: float | None
    """None: it isn't known."""


def _block(
    cell: TurnCell,
    palette: Palette,
    width: int,
    most: int,
    here: bool,
    difference: _Difference | None,
) -> list[Strip]:
    turn, parts = cell.turn, cell.against is not None
    dim = palette.faint if cell.repeated else None
    body, chosen = width - 1, most == _OPEN
    mark = "≠" if parts else "=" if cell.alike > 1 else " "
    said = turn.plan or turn.analysis or turn.text or "…"
    heading: list[Span] = [
        (f" {mark}", palette.attention if parts else palette.faint),
        (f" {turn.turn} ", palette.accent if chosen else palette.muted),
        (said.split("\n", 1)[0], dim or (palette.strong if chosen else palette.text)),
    ]
    if here:
        heading = [(text, None) for text, _ in heading]
    rows = [row(body, *heading, base=palette.selected if here else palette.on_raised)]
    if parts and cell.where == "action" and difference is not None:
        rows.append(_difference_row(difference, palette, body))
    # Without a plan the heading has said it, unless it was cut.
    whole = turn.analysis == heading[-1][0] and sum(cell_len(text) for text, _ in heading) <= body
    if chosen and turn.analysis and not whole:
        rows += _text(turn.analysis, dim or palette.muted, body, "   ", most)
    if turn.error:
        rows += _text(turn.error, dim or palette.bad, body, " ✗ ", most)
    rows += _commands(turn, dim or palette.accent, body, most)
    if turn.task_complete:
        rows.append(row(body, (" ✓ declares the task complete", dim or palette.good)))
    if parts and cell.where == "answer":
        rows.append(row(body, (" ≠ different answer", palette.attention)))
    rows += _text(turn.observation.strip("\n"), dim or palette.muted, body, " │ ", most)
    if chosen:
        rows.append(row(body))
    return [Strip.join([each, Strip.blank(width - body)]) for each in rows]


def _difference_row(difference: _Difference, palette: Palette, width: int) -> Strip:
    before = visible(difference.before.replace("\n", "⏎"))[-_CONTEXT:]
    piece = visible(difference.piece.replace("\n", "⏎"))
    chance = "" if difference.logprob is None else f" p {number(math.exp(difference.logprob))}"
    return row(
        width,
        (f" ≠ token {difference.token + 1} ", palette.attention),
        (f"…{before}", palette.muted),
        (piece or "␣", palette.attention + Style(underline=True)),
        (chance, palette.muted),
    )


def _commands(turn: TurnView, style: Style, width: int, most: int) -> list[Strip]:
    rows: list[Strip] = []
    for command in turn.commands:
        keys = command.keystrokes.removesuffix("\n").replace("\n", "⏎")
        end = "" if command.keystrokes.endswith("\n") else "  (no enter)"
        rows += _text(keys + end, style, width, " $ ", most)
    if len(rows) > most:
        rows = [*rows[: most - 1], row(width, (f" $ … {len(rows) - most + 1} more rows", style))]
    return rows


def _text(text: str, style: Style, width: int, lead: str, most: int) -> list[Strip]:
    """Return at most so many rows; of longer texts the end."""
    if not text:
        return []
    # No more is looked at than can be shown.
    lines = visible_lines(text[-most * width * 2 :])
    parts = [part for line in lines for part in (wrap(line, width - len(lead)) if line else [""])]
    cut = len(parts) > most
    return [
        row(width, (" … " if cut and place == 0 else lead, style), (part, style))
        for place, part in enumerate(parts[-most:])
    ]
