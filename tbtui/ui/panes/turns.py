"""The turns of one trial: what it thought, planned, typed and saw."""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from rich.style import Style
from textual import events
from textual.message import Message
from textual.strip import Strip

from tbtui.ui.draw import Span, row, split_row
from tbtui.ui.glyphs import LEFT_OUT_MARK
from tbtui.ui.keys import bindings
from tbtui.ui.pane import Frame, Pane
from tbtui.ui.text import number, visible, visible_lines, wrap
from tbtui.ui.theme import Palette
from tbtui.view.state import INFRASTRUCTURE
from tbtui.view.transcript import Transcript, TurnView

_MOST_ROWS = 200
"""Of one text; the rest is counted."""
_THINKING_ROWS = 5
"""Of thinking that is folded: an answer should not have to be looked for below it."""
_EVERY_ROW = (" │ ", " ┊ ")
"""Marks that every row of a text bears."""
_CACHED_WIDTH = 64
"""From here on, a turn's line has room for how much of its prompt was cached."""


class TurnPane(Pane):
    """One line a turn; the chosen turn is open."""

    BINDINGS = bindings("turns")
    EVERY = 2

    class Chosen(Message):
        """Another turn by its place in the transcript."""

        def __init__(self, index: int) -> None:
            super().__init__()
            self.index = index

    def __init__(self, id: str) -> None:
        super().__init__(id)
        self.transcript = Transcript()
        self.chosen = 0
        self.follow = True
        """The newest turn is the chosen one until somebody chooses another."""
        self.thinking_open = False
        self._starts: list[int] = []

    def title(self, frame: Frame) -> str:
        count = len(self.transcript.turns)
        unseen = count - 1 - self.chosen
        if not count:
            return "turns"
        following = "" if self.follow or unseen <= 0 else f" · {unseen} newer"
        return f"turns {self.chosen + 1}/{count}{following}"

    def key(self, frame: Frame) -> Hashable:
        return self.transcript.seq, self.chosen, self.thinking_open

    def build(self, frame: Frame, width: int, height: int) -> list[Strip]:
        palette = frame.palette
        rows: list[Strip] = []
        self._starts = []
        if not self.transcript.turns:
            return [row(width, (" when the policy is asked for the first time", palette.faint))]
        for index, turn in enumerate(self.transcript.turns):
            self._starts.append(len(rows))
            chosen = index == self.chosen
            rows.append(_heading(turn, palette, width, chosen))
            if chosen:
                rows.extend(_thinking(turn, palette, width, self.thinking_open))
                rows.extend(_open(turn, palette, width))
        if self.transcript.finished:
            rows.extend(_verdict(self.transcript, palette, width))
        return rows

    def show(self, frame: Frame) -> None:
        before = self._key
        super().show(frame)
        if before != self._key and self.chosen < len(self._starts):
            start = self._starts[self.chosen]
            if self.follow and not self.transcript.finished:
                self.scroll_end(animate=False)
            else:
                self.scroll_to(y=min(start, self.max_scroll_y), animate=False)

    def choose(self, index: int) -> None:
        last = len(self.transcript.turns) - 1
        index = min(max(0, index), max(0, last))
        self.follow = index == last
        if index != self.chosen:
            self.chosen = index
            self.post_message(self.Chosen(index))

    def action_step(self, turns: int) -> None:
        self.choose(self.chosen + turns)

    def on_click(self, event: events.Click) -> None:
        line = event.y - self.gutter.top + round(self.scroll_y)
        for index in reversed(range(len(self._starts))):
            if self._starts[index] <= line:
                self.choose(index)
                return


def _heading(turn: TurnView, palette: Palette, width: int, chosen: bool) -> Strip:
    right: list[Span] = []
    if turn.mean_logprob is not None:
        right = [
            (f"{number(-turn.mean_logprob)} nats  ", palette.muted),
            (f"{turn.completion_tokens} tok  ", palette.muted),
            (f"{number(turn.model_seconds)} s ", palette.muted),
        ]
        if turn.cached_tokens is not None and turn.prompt_tokens and width >= _CACHED_WIDTH:
            cached = turn.cached_tokens / turn.prompt_tokens
            right.insert(1, (f"{cached:.0%} cached  ", palette.muted))
    said = turn.plan or turn.analysis or ("…" if not turn.text else turn.text)
    if turn.purpose != "turn":
        said = f"({turn.purpose}) {said}"
    mark = "▾" if chosen else "▸"
    left: list[Span] = [
        (f" {mark} {turn.turn} ", palette.accent if chosen else palette.muted),
    ]
    if turn.error:
        left.append(("can't be read ", palette.bad))
    left.append((said.split("\n", 1)[0], palette.strong if chosen else palette.text))
    return split_row(width, left, right, palette.on_raised if chosen else None)


def _thinking(turn: TurnView, palette: Palette, width: int, whole: bool) -> list[Strip]:
    """What the model thought before it answered: read last, so folded and quiet."""
    style = palette.muted + Style(italic=True)
    rows = _text(turn.thinking.strip(), style, width, " ┊ ")
    if whole or len(rows) <= _THINKING_ROWS + 1:
        return rows
    hidden = len(rows) - _THINKING_ROWS
    more = row(width, (f" ┊ … {hidden} more rows of thinking", style), ("  o opens", palette.faint))
    return [*rows[:_THINKING_ROWS], more]


def _open(turn: TurnView, palette: Palette, width: int) -> list[Strip]:
    rows: list[Strip] = []
    if turn.analysis:
        rows.extend(_text(turn.analysis, palette.text, width, "   "))
    if turn.plan:
        rows.extend(_text(turn.plan, palette.muted, width, "   "))
    if turn.purpose != "turn":
        rows.extend(_text(turn.text, palette.muted, width, "   "))
    if turn.error:
        rows.extend(_text(turn.error, palette.bad, width, " ✗ "))
        rows.extend(_text(turn.text, palette.muted, width, "   "))
    for command in turn.commands:
        keys = visible(command.keystrokes.removesuffix("\n").replace("\n", "⏎"))
        end = "" if command.keystrokes.endswith("\n") else "  (no enter)"
        rows.extend(_text(keys + end, palette.accent, width, " $ "))
    if turn.task_complete:
        rows.extend(_text("says that the task is complete", palette.good, width, " ✓ "))
    if turn.observation:
        rows.extend(_text(turn.observation.strip("\n"), palette.muted, width, " │ "))
    return rows


def _verdict(transcript: Transcript, palette: Palette, width: int) -> Iterable[Strip]:
    finished = transcript.finished
    if finished is None:
        return []
    style = palette.reward(finished.reward)
    if finished.reward is not None:
        glyph = "✓" if finished.reward >= 1 else "✗" if finished.reward <= 0 else "◐"
    elif finished.outcome in INFRASTRUCTURE:
        glyph = "!"
    else:
        glyph, style = ("–" if finished.outcome == "cancelled" else LEFT_OUT_MARK), palette.muted
    rows = [
        split_row(
            width,
            [
                (f" {glyph} {str(finished.outcome).replace('_', ' ')} ", style),
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
