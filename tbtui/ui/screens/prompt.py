"""The exact prompt of one turn: every token that the policy was given."""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Hashable, Iterable, Sequence
from typing import ClassVar

from rich.style import Style
from textual.app import ComposeResult
from textual.strip import Strip
from textual.widgets import Input

from tbtui.errors import UserError
from tbtui.ui.drawing.rows import Span, row, split_row
from tbtui.ui.drawing.text import visible
from tbtui.ui.input.keys import Scope, bindings
from tbtui.ui.panes.bars import TrialHead
from tbtui.ui.panes.key_bar import KeyBar, WayBack, WordsLine
from tbtui.ui.panes.pane import Frame, Pane, Redraw
from tbtui.ui.panes.tokens import Piece, flow
from tbtui.ui.screens.base import LiveScreen
from tbtui.ui.terminal.tty import copy, page
from tbtui.ui.textual_seam import Rows
from tbtui.ui.theme.palette import Palette
from tbtui.view.prompt import HEADING, PromptPart, instruction_in

_MOST_HITS = 1000


class PromptPane(Pane):
    """Parts below headings of their own; every other token is on a darker ground."""

    BINDINGS = bindings("prompt-text")
    EVERY = 2

    def __init__(self, id: str, turn: int) -> None:
        super().__init__(id)
        self.turn = turn
        self.parts: Sequence[PromptPart] = ()
        self.sought = ""
        self.hits: list[tuple[int, int]] = []
        """Part and character in its text of each place that has what is sought."""
        self.hit: int | None = None
        self._version = 0
        self._stood = 0
        """The topmost row, as long as nobody has scrolled or searched."""
        self._starts: list[int] = []
        self._rows_of: list[list[tuple[int, int, int]]] = []
        """For each part: first and last character of a row, and the row."""

    def load(self, parts: Sequence[PromptPart]) -> None:
        self.parts = parts
        self._version += 1
        self.seek(self.sought)
        self.call_after_refresh(self._to_instruction)

    def _to_instruction(self) -> None:
        """Begin at the task's instruction: above it stand the rules that all tasks share."""
        if self.sought or round(self.scroll_y) != self._stood or not self._rows_of:
            return
        at = shown_text(self.parts[0]).find(HEADING)
        rows = (line for first, last, line in self._rows_of[0] if first <= at < last)
        if at >= 0 and (line := next(rows, None)) is not None:
            self.move_to(line)
            self._stood = line

    def seek(self, text: str) -> None:
        """Find a text, ignoring case, and show the first match."""
        self.sought, self.hits, self.hit = text, [], None
        self._version += 1
        if not text:
            return
        wanted = text.lower()
        for index, part in enumerate(self.parts):
            said = shown_text(part).lower()
            at = said.find(wanted)
            while at >= 0 and len(self.hits) < _MOST_HITS:
                self.hits.append((index, at))
                at = said.find(wanted, at + len(wanted))
        if self.hits:
            self.step(1)

    def step(self, direction: int) -> None:
        """Go to the next match or the previous one, cyclically."""
        if not self.hits:
            return
        if self.hit is None:
            self.hit = 0 if direction > 0 else len(self.hits) - 1
        else:
            self.hit = (self.hit + direction) % len(self.hits)
        self.call_after_refresh(self._reveal_hit)

    @property
    def has_part_below(self) -> bool:
        top = round(self.scroll_y)
        return top < self.max_scroll_y and any(start > top for start in self._starts)

    def step_part(self, direction: int) -> None:
        top = round(self.scroll_y)
        starts = [s for s in self._starts if (s > top if direction > 0 else s < top)]
        if starts:
            to = starts[0] if direction > 0 else starts[-1]
            self.scroll_to(y=min(to, self.max_scroll_y), animate=False)

    def action_scroll(self, rows: int) -> None:
        self.scroll_to(y=round(self.scroll_y) + rows, animate=False)

    def _reveal_hit(self) -> None:
        if self.hit is None or not self._rows_of:
            return
        part, at = self.hits[self.hit]
        for first, last, line in self._rows_of[part]:
            if first <= at < last:
                self.reveal(line)
                return

    def title(self, frame: Frame) -> str:
        count = sum(len(part.ids) for part in self.parts)
        title = f"prompt of turn {self.turn} · {count:,} tokens"
        if not self.sought:
            return title if count else f"prompt of turn {self.turn} · as it was sent"
        if not self.hits:
            return f"{title} · no match: {self.sought}"
        of = f"{len(self.hits):,}" + "+" * (len(self.hits) == _MOST_HITS)
        return f"{title} · {(self.hit or 0) + 1} of {of}: {self.sought}"

    def key(self, frame: Frame) -> Hashable:
        return self._version, self.hit

    @property
    def contents(self) -> str:
        return "".join(
            "".join(part.pieces) if part.pieces is not None else part.text for part in self.parts
        )

    def build(self, frame: Frame, width: int, height: int) -> list[Strip]:
        palette = frame.palette
        rows: list[Strip] = []
        self._starts, self._rows_of = [], []
        for index, part in enumerate(self.parts):
            self._starts.append(len(rows))
            rows.append(_heading(part, palette, width))
            rows_of: list[tuple[int, int, int]] = []
            self._rows_of.append(rows_of)
            marks = self._marks(index)
            asked = _instruction(part) if index == 0 else range(0)
            said = 0
            pieces = part.pieces if part.pieces is not None else (part.text,)
            for line in flow([(piece, 0.0) for piece in pieces], width - 2):
                spans: list[Span] = [(" ", None)]
                first = said
                for piece in line:
                    style = palette.strong if said in asked else palette.text
                    spans += _spans(piece, said, part, marks, palette, style)
                    said += len(piece.text)
                rows_of.append((first, max(said, first + 1), len(rows)))
                rows.append(row(width, *spans))
        return rows

    def _marks(self, part: int) -> list[tuple[int, int, bool]]:
        """First and last character of what was found in a part, and whether it is the place."""
        size = len(self.sought)
        return [
            (at, at + size, number == self.hit)
            for number, (where, at) in enumerate(self.hits)
            if where == part
        ]


def shown_text(part: PromptPart) -> str:
    """Return the text as the pane shows it, without the marks of line ends and tabs."""
    text = "".join(part.pieces) if part.pieces is not None else part.text
    return "\n".join(visible(line.replace("\t", "⇥")) for line in text.split("\n"))


def _instruction(part: PromptPart) -> range:
    """The characters of the task's instruction, in the first part of a prompt."""
    text = shown_text(part)
    instruction = instruction_in(text)
    begin = text.find(instruction, text.find(HEADING)) if instruction else -1
    return range(begin, begin + len(instruction)) if begin >= 0 else range(0)


def _heading(part: PromptPart, palette: Palette, width: int) -> Strip:
    whose = "completion" if part.origin == "sampled" else "input"
    style = palette.accent if part.origin == "sampled" else palette.strong
    count = len(part.ids)
    # Of a turn without an answer the ids are not recorded yet.
    right: list[Span] = [(f"{count:,} token{'s' * (count != 1)} ", palette.muted)] if count else []
    if part.pieces is None:
        right.insert(0, ("text as sent, tokens unknown · ", palette.attention))
    return split_row(width, [(f" turn {part.turn} · {whose}", style)], right, palette.on_raised)


def _spans(
    piece: Piece,
    start: int,
    part: PromptPart,
    marks: Sequence[tuple[int, int, bool]],
    palette: Palette,
    given: Style,
) -> list[Span]:
    """A token's part on one row, which begins at the part's character `start`; `given`: how
    looks what the policy was given."""
    style: Style = palette.accent if part.origin == "sampled" else given
    if piece.token % 2 and part.pieces is not None:
        style = style + palette.on_raised
    end = start + len(piece.text)
    spans: list[Span] = []
    said = start
    # They don't overlap: both their ends are in order.
    for first, last, here in marks[bisect_right(marks, start, key=lambda mark: mark[1]) :]:
        if first >= end:
            break
        first, last = max(first, said), min(last, end)
        spans.append((piece.text[said - start : first - start], style))
        found = palette.selected if here else style + _FOUND
        spans.append((piece.text[first - start : last - start], found))
        said = last
    spans.append((piece.text[said - start :], style))
    return spans


_FOUND = Style(reverse=True)


class PromptScreen(LiveScreen):
    """Opens with what the journal has of the prompt; the tokenizer then adds the rest."""

    SCOPES: ClassVar[tuple[Scope, ...]] = ("prompt-text", "prompt", "everywhere")
    BINDINGS = bindings("prompt")
    AUTO_FOCUS = "#text"
    OVERVIEW = ("text",)
    COLUMNS: ClassVar[dict[str, tuple[str, ...]]] = {"list": ("text",)}

    def __init__(self, trial: str, sample: int | None, turn: int, text: str = "") -> None:
        """`text`: what is new in the prompt of a turn that has no sample yet."""
        super().__init__()
        self._text = text
        self.trial = trial
        self._sample, self._turn = sample, turn
        self._loaded = False

    def compose_panes(self) -> ComposeResult:
        yield TrialHead("head")
        with Rows(id="list"):
            box = Input(placeholder=f"a text in the prompt of turn {self._turn}", id="filter")
            yield WordsLine("find", box)
            yield PromptPane("text", self._turn)
        yield KeyBar("keys", *self.SCOPES, back=WayBack("prompt-back", "back"))

    def on_mount(self) -> None:
        super().on_mount()
        self.query_one(WordsLine).display = False

    def show(self, frame: Frame, beat: int) -> None:
        if not self._loaded and frame.run.opened:
            self._loaded = True
            if self._sample is None:
                part = PromptPart("given", self._turn, (), text=self._text)
                self.query_one(PromptPane).load([part])
            else:
                parts = frame.run.prompt(self._sample)
                self.query_one(PromptPane).load(parts)
                self.run_worker(self._read(frame, parts), name="prompt")
        super().show(frame, beat)

    async def _read(self, frame: Frame, parts: list[PromptPart]) -> None:
        if self.tools is None or all(part.pieces is not None for part in parts):
            return
        tools = await asyncio.to_thread(self.tools)
        try:
            whole = await asyncio.to_thread(tools.prompt, frame.run.directory, parts)
        except UserError as error:
            self.notify(
                f"{error}. Each turn's new input is shown as the text that the agent sent.",
                title="Not token by token",
                severity="warning",
                markup=False,
            )
            return
        self.query_one(PromptPane).load(whole)
        self.post_message(Redraw())

    def on_input_changed(self, event: Input.Changed) -> None:
        self.query_one(PromptPane).seek(event.value)
        self.post_message(Redraw())

    def on_input_submitted(self) -> None:
        self.set_focus(self.query_one(PromptPane))

    def idle_keys(self) -> Iterable[str]:
        pane = self.query_one(PromptPane)
        if not pane.hits:
            yield "prompt-next"
        if not pane.has_part_below:
            yield "prompt-part"

    def action_search(self) -> None:
        self.query_one(WordsLine).display = True
        self.set_focus(self.query_one("#filter"))

    def action_hit(self, direction: int) -> None:
        self.query_one(PromptPane).step(direction)
        self.post_message(Redraw())

    def action_part(self, direction: int) -> None:
        self.query_one(PromptPane).step_part(direction)

    def action_back(self) -> None:
        """Leave the search, then the screen."""
        line = self.query_one(WordsLine)
        if line.display:
            self.query_one("#filter", Input).value, line.display = "", False
            self.set_focus(self.query_one(PromptPane))
        else:
            self.dismiss()

    def action_copy(self) -> None:
        said = copy(self.app, self.query_one(PromptPane).contents)
        self.notify(said, title="Copied the prompt", markup=False, timeout=3)

    def action_pager(self) -> None:
        if problem := page(self.app, self.query_one(PromptPane).contents):
            self.notify(problem, severity="warning", markup=False)
