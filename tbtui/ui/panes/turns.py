"""The turns of one trial: what it thought, planned, typed and saw."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import TYPE_CHECKING

from rich.style import Style
from textual import events
from textual.message import Message
from textual.strip import Strip

from tbtui.ui.drawing.rows import Span, row, split_row
from tbtui.ui.drawing.text import level, number, visible, visible_lines, wrap
from tbtui.ui.input.keys import bindings
from tbtui.ui.panes.pane import MOMENT, Frame, GrowingPane
from tbtui.ui.theme.glyphs import LEFT_OUT_MARK, TYPIST_MARK
from tbtui.ui.theme.palette import Palette
from tbtui.view.transcript import PERSON, TO_AGENT, Transcript, TurnView

if TYPE_CHECKING:
    from tbtui.journal.events import AgentCommand, TurnsValued

_MOST_ROWS = 200
"""The most rows of one text; the rest is counted."""
_THINKING_ROWS = 5
"""Rows of folded thinking: an answer should not have to be looked for below it."""
_EVERY_ROW = (" │ ", " ┊ ")
"""Marks that every row of a text bears."""
_CACHED_WIDTH = 64
"""From here on, a turn's line has room for how much of its prompt was cached."""


class TurnPane(GrowingPane):
    """One line a turn; the chosen turn is open. While it follows that is the newest one."""

    BINDINGS = bindings("turns")
    EVERY = MOMENT

    class Chosen(Message):
        """Another turn or command was chosen."""

    def __init__(self, id: str) -> None:
        super().__init__(id)
        self.transcript = Transcript()
        self.chosen = 0
        self.command: int | None = None
        """The chosen one of the chosen turn's commands."""
        self.thinking_open = False
        self._starts: list[int] = []
        self._commands: list[tuple[int, int]] = []
        """First row and number of each of the chosen turn's commands."""
        self._shown: Hashable = None
        """The cursor as it was shown last."""

    def count(self, frame: Frame) -> int:
        return len(self.transcript.turns)

    def title(self, frame: Frame) -> str:
        count = len(self.transcript.turns)
        return f"turns {self.chosen + 1}/{count}" if count else "turns"

    def key(self, frame: Frame) -> Hashable:
        valued = self._valued(frame)
        seen = valued and (valued.search, len(valued.values), valued.turning_point)
        return self.transcript.seq, self.chosen, self.command, self.thinking_open, seen

    @staticmethod
    def _valued(frame: Frame) -> TurnsValued | None:
        return frame.state.turn_values.get(frame.selected.trial) if frame.selected else None

    def build(self, frame: Frame, width: int, height: int) -> list[Strip]:
        palette = frame.palette
        rows: list[Strip] = []
        self._starts, self._commands = [], []
        if not self.transcript.turns:
            return [row(width, (" after the policy's first answer", palette.faint))]
        valued = self._valued(frame)
        for index, turn in enumerate(self.transcript.turns):
            self._starts.append(len(rows))
            chosen = index == self.chosen
            value = _value(turn, valued, palette)
            rows.append(_heading(turn, palette, width, chosen, value))
            if chosen:
                opens = "" if self.thinking_open else frame.keys.name_of("thinking")
                rows.extend(_thinking(turn, palette, width, opens))
                rows.extend(_said(turn, palette, width))
                for number_, command in enumerate(turn.commands):
                    self._commands.append((len(rows), number_))
                    rows.extend(_command(command, palette, width, number_ == self.command))
                rows.extend(_seen(turn, palette, width))
        if self.transcript.finished:
            rows.extend(_verdict(self.transcript, palette, width))
        return rows

    def show(self, frame: Frame) -> None:
        super().show(frame)
        cursor = (self.chosen, self.command, self.size.width)
        if self.follow or cursor == self._shown or self.chosen >= len(self._starts):
            self._shown = cursor
            return
        self._shown = cursor
        if self.command is not None and self.command < len(self._commands):
            self.reveal(self._commands[self.command][0])
        else:
            self.move_to(self._starts[self.chosen])

    @property
    def at_newest(self) -> bool:
        # The end of another turn than the last one is no place to follow from: the turn that is
        # being read would close.
        return self.chosen >= len(self.transcript.turns) - 1 and super().at_newest

    def to_newest(self) -> None:
        if self.transcript.finished and self.chosen < len(self._starts):
            self.move_to(self._starts[self.chosen])
        else:
            super().to_newest()

    def action_newest(self) -> None:
        self.choose(len(self.transcript.turns) - 1)
        super().action_newest()

    def restart(self) -> None:
        """Read the turns anew: the time has gone back."""
        self.transcript = Transcript()
        self.chosen, self.command, self.follow = 0, None, True

    @property
    def turn(self) -> TurnView | None:
        """The chosen turn."""
        turns = self.transcript.turns
        return turns[min(self.chosen, len(turns) - 1)] if turns else None

    def choose(self, index: int) -> None:
        last = len(self.transcript.turns) - 1
        index = min(max(0, index), max(0, last))
        self.follow = index == last
        self.chosen, self.command = index, None
        self.post_message(self.Chosen())

    def choose_command(self, index: int, command: int) -> None:
        """Choose one of a turn's commands."""
        self.point(index, command)
        self.post_message(self.Chosen())

    def point(self, index: int, command: int | None = None) -> None:
        """Choose a turn without sending a message."""
        self.chosen, self.command, self.follow = index, command, False

    def step_command(self, direction: int) -> bool:
        """Go to the next command or the one before, of any turn; False: there is none."""
        places = [
            (index, command)
            for index, turn in enumerate(self.transcript.turns)
            for command in range(len(turn.commands))
        ]
        here = (self.chosen, -1 if self.command is None else self.command)
        found = (
            [place for place in places if place > here]
            if direction > 0
            else [place for place in reversed(places) if place < here]
        )
        if found:
            self.choose_command(*found[0])
        return bool(found)

    @property
    def contents(self) -> str:
        """The chosen turn as text."""
        turn = self.turn
        if turn is None:
            return ""
        keys = [f"$ {command.keystrokes.removesuffix(chr(10))}" for command in turn.commands]
        parts = [
            f"turn {turn.turn}",
            turn.thinking.strip(),
            turn.analysis or ("" if turn.plan or turn.commands else turn.text),
            turn.plan,
            f"parse error: {turn.error}\n\n{turn.text}" if turn.error else "",
            "\n".join(keys),
            turn.observation.strip("\n"),
        ]
        return "\n\n".join(part for part in parts if part)

    def choose_turn(self, number: int) -> None:
        """The turn of this number, where there is one."""
        for index, turn in enumerate(self.transcript.turns):
            if (turn.turn, turn.purpose) == (number, "turn"):
                self.choose(index)

    def action_step(self, turns: int) -> None:
        self.choose(self.chosen + turns)

    def on_click(self, event: events.Click) -> None:
        at = self.place_of(event)
        if at is None or at.y >= len(self._rows):
            return
        line = at.y
        chosen = self._starts[self.chosen] if self.chosen < len(self._starts) else 0
        after = [start for start in self._starts if start > chosen]
        if chosen < line < (after[0] if after else len(self._rows)):
            above = [command for start, command in self._commands if start <= line]
            if above:
                self.choose_command(self.chosen, above[-1])
                return
        for index in reversed(range(len(self._starts))):
            if self._starts[index] <= line:
                self.choose(index)
                return


class SelectedTurnPane(TurnPane, can_focus=False):
    """The turns of the trial that is selected in the cockpit; the newest one is open."""

    def __init__(self, id: str) -> None:
        super().__init__(id)
        self._trial = ""
        self._rewound = 0
        """How often the run had gone back in time when the turns were read."""
        self._version = -1

    def show(self, frame: Frame) -> None:
        if not self.display:
            return
        trial = frame.selected
        name = trial.trial if trial is not None else ""
        if (name, frame.run.rewound) != (self._trial, self._rewound):
            self._trial, self._rewound = name, frame.run.rewound
            self._version = -1
            self.restart()
        if frame.state.version != self._version:
            self._version = frame.state.version
            if trial is not None and (trial.live or self.transcript.finished is None):
                frame.run.read_on(name, self.transcript)
        self.chosen = max(0, len(self.transcript.turns) - 1)
        super().show(frame)


def _value(turn: TurnView, valued: TurnsValued | None, palette: Palette) -> list[Span]:
    """The chance to solve the task from the turn on, where it was measured."""
    if valued is None or turn.purpose != "turn":
        return []
    spans: list[Span] = []
    if turn.turn == valued.turning_point:
        spans.append(("▼ ", palette.attention))
    for each in valued.values:
        if each.turn == turn.turn and each.scored:
            value = each.passed / each.scored
            spans.append((f"V {value:.0%} {level(value)}  ", palette.reward(value)))
    return spans


def _heading(
    turn: TurnView, palette: Palette, width: int, chosen: bool, value: Sequence[Span] = ()
) -> Strip:
    right: list[Span] = []
    if turn.sample is not None or turn.mean_logprob is not None:
        right = [
            (f"{turn.completion_tokens} tok  ", palette.muted),
            (f"{number(turn.model_seconds)} s ", palette.muted),
        ]
        if turn.mean_logprob:  # a mean of 0 is of none that is known
            right.insert(0, (f"{number(-turn.mean_logprob)} nats  ", palette.muted))
        if turn.cached_tokens is not None and turn.prompt_tokens and width >= _CACHED_WIDTH:
            cached = turn.cached_tokens / turn.prompt_tokens
            right.insert(-2, (f"{cached:.0%} cached  ", palette.muted))
    right = [*value, *right]
    shared = "┆ " if turn.of else ""
    said = turn.plan or turn.analysis or turn.text or turn.writing or "…"
    if turn.purpose == PERSON:
        typed = "wrote " if turn.text.startswith(TO_AGENT) else "typed: "
        said = f"{turn.plan} {typed}{turn.text}"
    elif turn.purpose != "turn":
        said = f"({turn.purpose}) {said}"
    elif turn.side:
        said = f"(side call) {said}"
    mark = "▾" if chosen else "▸"
    name = TYPIST_MARK if turn.purpose == PERSON else f"{turn.turn}"
    left: list[Span] = [
        (f" {mark} {name} ", palette.accent if chosen else palette.muted),
        (shared, palette.faint),
    ]
    if turn.error:
        left.append(("parse error ", palette.bad))
    left.append((said.strip().split("\n", 1)[0], palette.strong if chosen else palette.text))
    return split_row(width, left, right, palette.on_raised if chosen else None)


def _thinking(turn: TurnView, palette: Palette, width: int, opens: str) -> list[Strip]:
    """What the model thought before it answered: read last, so folded and muted.

    `opens`: the key that opens it; empty where it is open.
    """
    style = palette.muted + Style(italic=True)
    rows = _text(turn.thinking.strip(), style, width, " ┊ ")
    if not opens or len(rows) <= _THINKING_ROWS + 1:
        return rows
    hidden = len(rows) - _THINKING_ROWS
    hint = f"  {opens} opens"
    more = row(width, (f" ┊ … {hidden} more rows of thinking", style), (hint, palette.faint))
    return [*rows[:_THINKING_ROWS], more]


def _said(turn: TurnView, palette: Palette, width: int) -> list[Strip]:
    """Rows of a turn before its commands."""
    rows: list[Strip] = []
    if turn.purpose == PERSON:
        return _text(turn.text, palette.attention, width, " ✎ ")
    if turn.analysis:
        rows.extend(_text(turn.analysis, palette.text, width, "   "))
    if turn.plan:
        rows.extend(_text(turn.plan, palette.muted, width, "   "))
    if turn.purpose != "turn" or turn.writing:
        rows.extend(_text(turn.text or turn.writing.strip(), palette.muted, width, "   "))
    if turn.error:
        rows.extend(_text(turn.error, palette.bad, width, " ✗ "))
        rows.extend(_text(turn.text, palette.muted, width, "   "))
    if turn.warning:
        rows.extend(_text(turn.warning, palette.attention, width, " ! "))
    return rows


def _command(command: AgentCommand, palette: Palette, width: int, chosen: bool) -> list[Strip]:
    keys = visible(command.keystrokes.removesuffix("\n").replace("\n", "⏎"))
    end = "" if command.keystrokes.endswith("\n") else "  (no enter)"
    rows = _text(keys + end, palette.accent, width, " ▸ " if chosen else " $ ")
    return [strip.apply_style(palette.on_raised) for strip in rows] if chosen else rows


def _seen(turn: TurnView, palette: Palette, width: int) -> list[Strip]:
    """Rows of a turn after its commands."""
    rows: list[Strip] = []
    if turn.task_complete:
        rows.extend(_text("declares the task complete", palette.good, width, " ✓ "))
    if turn.observation:
        rows.extend(_text(turn.observation.strip("\n"), palette.muted, width, " │ "))
        times = f"model {number(turn.model_seconds)} s · terminal {number(turn.command_seconds)} s"
        rows.append(row(width, (f" └ {times}", palette.faint)))
    return rows


def _verdict(transcript: Transcript, palette: Palette, width: int) -> Iterable[Strip]:
    finished = transcript.finished
    if finished is None:
        return []
    style = palette.reward(finished.reward)
    if finished.reward is not None:
        glyph = "✓" if finished.reward >= 1 else "✗" if finished.reward <= 0 else "◐"
    elif finished.outcome.infrastructure:
        glyph = "!"
    else:
        glyph, style = ("–" if finished.outcome == "cancelled" else LEFT_OUT_MARK), palette.muted
    rows = [
        split_row(
            width,
            [
                (f" {glyph} {str(finished.outcome).replace('_', ' ')}", style),
                (" · ", palette.faint),
                (finished.reason, palette.text),
            ],
            [],
            palette.on_raised,
        )
    ]
    rows.extend(_text(finished.verifier_output.strip("\n"), palette.muted, width, " │ "))
    return rows


def _text(text: str, style: Style, width: int, lead: str) -> list[Strip]:
    rows: list[Strip] = []
    if not text:
        return rows
    shown = 0
    for line in visible_lines(text):
        for part in wrap(line, width - len(lead) - 1) if line else [""]:
            if len(rows) == _MOST_ROWS:
                rest = f"{len(text) - shown:,} more characters"
                return [*rows, row(width, (f"{lead}… {rest}", style))]
            rows.append(row(width, (lead, style), (part, style)))
            shown += len(part)
            # Only the first row of a command bears its mark.
            lead = lead if lead in _EVERY_ROW else "   "
    return rows
