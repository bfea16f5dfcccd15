"""Tokens of one completion, coloured by negative log-probability."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.style import Style
from textual import events
from textual.message import Message
from textual.strip import Strip

from tbtui.ui.drawing.rows import Span, row, split_row
from tbtui.ui.drawing.text import clip, number, take, visible, visible_lines, wrap
from tbtui.ui.input.keys import bindings
from tbtui.ui.panes.pane import Frame, GrowingPane
from tbtui.ui.theme.palette import HEAT_LEVELS, Palette
from tbtui.view.state import TrialView

_BOUNDS = (0.05, 0.1, 0.2, 0.35, 0.5, 0.8, 1.2, 1.8, 2.5, 3.5, 5.0)
"""Upper ends of the buckets, of the negative log-probability, in nats."""
UNLIKELY = 1.8
"""Nats: the policy gave the token less than a sixth of the probability."""
_IN_SPAN = Style(underline=True, bold=True)
_AS_IDS = "Ids only: the model's tokenizer was missing where this was recorded; see the notes."
_TAB = "⇥"
_RETURN = "⏎"

Token = tuple[str, float]
"""Text and log-probability."""


def heat_level(logprob: float) -> int:
    """Return the bucket of a log-probability: 0 (likely) to 11 (unlikely)."""
    return bisect_right(_BOUNDS, -logprob)


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a token on one row."""

    text: str
    token: int


def flow(tokens: Sequence[Token], width: int) -> list[list[Piece]]:
    """Tokens in rows of at most `width` cells; a line break in a token ends its row."""
    rows: list[list[Piece]] = [[]]
    room = width

    def put(text: str, token: int) -> None:
        nonlocal room
        while text:
            part = take(text, room)
            if not part:
                if room == width:
                    part = text[0]
                else:
                    rows.append([])
                    room = width
                    continue
            rows[-1].append(Piece(part, token))
            room -= cell_len(part)
            text = text[len(part) :]

    for index, (text, _) in enumerate(tokens):
        lines = text.replace("\t", _TAB).split("\n")
        for number_, line in enumerate(lines):
            put(visible(line), index)
            if number_ < len(lines) - 1:
                put(_RETURN, index)
                rows.append([])
                room = width
    return rows


def unlikely_tokens(tokens: Sequence[Token]) -> list[int]:
    """Return the places of the unlikely tokens."""
    return [index for index, (_, logprob) in enumerate(tokens) if -logprob >= UNLIKELY]


class TokenPane(GrowingPane):
    """Shows a completion's tokens, coloured by negative log-probability.

    Where it follows the selection, it shows the newest completion of the selected trial, or the
    least likely one once the trial has ended, until it is scrolled or the cursor is put on a token.
    """

    BINDINGS = bindings("tokens")
    EVERY = 1

    class Pointed(Message):
        """The cursor was put on a token."""

    def __init__(self, id: str, *, follows_selection: bool = True) -> None:
        super().__init__(id)
        self.follows_selection = follows_selection
        self.tokens: list[Token] = []
        self.cursor: int | None = None
        """The token that a person has jumped to."""
        self.span = range(0)
        """The tokens of the chosen command."""
        self._as_ids = False
        """Their text was not recorded."""
        self._writing = ""
        """What the model has written of an answer that is under way."""
        self._drawn = 0
        self._known = True
        """There are log-probabilities: a server that gives none leaves zeros."""
        self._sample: int | None = None
        self._turn: int | None = None
        self.of_least_likely = False
        """The turn that is shown is the one that the policy found least likely, of several."""
        self._trial = ""
        self._flow: tuple[int | None, int, list[list[Piece]]] = (None, 0, [])

    def load(self, frame: Frame, sample: int | None) -> None:
        """Show a completion by its sample's id."""
        if sample == self._sample:
            return
        # The reader has it by now; the first frame needs it not.
        from tbtui.journal.samples import only_ids

        self._sample, self.cursor, self.span = sample, None, range(0)
        self._turn = frame.run.turn_of(sample) if sample is not None else None
        self.tokens = frame.run.tokens(sample) if sample is not None else []
        self._as_ids = only_ids([text for text, _ in self.tokens])
        self._known = any(logprob for _, logprob in self.tokens)
        self.move_to(0)

    def count(self, frame: Frame) -> int:
        """The completions; where it is given them, that is for others to count."""
        trial = frame.selected
        return len(trial.samples) if trial and self.follows_selection else 0

    @property
    def at_newest(self) -> bool:
        return self.cursor is None and round(self.scroll_y) == 0

    def to_newest(self) -> None:
        """Scroll to the beginning of the newest completion."""
        if self.cursor is None:
            self.move_to(0)

    def action_newest(self) -> None:
        self.cursor = None
        super().action_newest()

    def jump(self, direction: int) -> bool:
        """Move the cursor to the next unlikely token; False when there is no further one."""
        here = self.cursor
        places = unlikely_tokens(self.tokens)[::direction]
        further = [place for place in places if here is None or (place - here) * direction > 0]
        if further:
            self.place(further[0])
        return bool(further)

    def place(self, token: int, *, announce: bool = True) -> None:
        """Put the cursor on a token."""
        self.follow = False
        self.cursor = min(max(0, token), len(self.tokens) - 1)
        self.reveal_token(self.cursor)
        if announce:
            self.post_message(self.Pointed())

    def reveal_token(self, token: int) -> None:
        """Scroll to the cursor's token once the rows have been laid out."""
        self.call_after_refresh(self._reveal_token, token)

    def _reveal_token(self, token: int) -> None:
        for index, pieces in enumerate(self._flow[2]):
            if any(piece.token == token for piece in pieces):
                self.reveal(index + 1)
                break

    def action_move(self, tokens: int) -> None:
        """Move the cursor by tokens; without one, start at the first."""
        if self.tokens:
            self.place(0 if self.cursor is None else self.cursor + tokens)
            self.redraw()

    def on_click(self, event: events.Click) -> None:
        at = self.place_of(event)
        # A row above the tokens is the legend, a column before them is free.
        if at is None or not 0 < at.y <= len(self._flow[2]):
            return
        x = at.x - 1
        for piece in self._flow[2][at.y - 1]:
            x -= cell_len(piece.text)
            if x < 0:
                self.place(piece.token)
                self.redraw()
                return

    @property
    def contents(self) -> str:
        """The policy's text."""
        return "".join(text for text, _ in self.tokens)

    def title(self, frame: Frame) -> str:
        if self._writing:
            return f"{self._drawn:,} token{'s' * (self._drawn != 1)} so far"
        if not self.tokens:
            return "tokens"
        ids = " · as ids" if self._as_ids else ""
        count = len(self.tokens)
        why = ", highest -log p" if self.of_least_likely else ""
        return f"{count:,} token{'s' * (count != 1)} · turn {self._turn}{why}{ids}"

    def key(self, frame: Frame) -> Hashable:
        return self._sample, self.cursor, self.span, self._writing

    def show(self, frame: Frame) -> None:
        if self.follows_selection:
            self._show_selected(frame)
        super().show(frame)

    def _show_selected(self, frame: Frame) -> None:
        trial = frame.selected
        if trial is not None and trial.trial != self._trial:
            self._trial, self.follow = trial.trial, True
        self.write()
        if self.follow or not self.tokens:
            self.load(frame, self._telling(frame, trial) if trial and trial.samples else None)
            # How likely its tokens are comes with the whole answer.
            if trial is not None and trial.live:
                self.write(trial.writing, trial.drawn)

    def write(self, text: str = "", drawn: int = 0) -> None:
        """Show what the model has written of an answer that is under way, if that is anything."""
        self._writing, self._drawn = text, drawn

    def _telling(self, frame: Frame, trial: TrialView) -> int:
        """The newest completion while the trial runs; then that of its least likely turn."""
        self.of_least_likely = False
        if not trial.live and len(trial.samples) > 1:
            transcript = frame.run.stories.transcript(trial)
            place = transcript.least_likely
            if place is not None and (sample := transcript.turns[place].sample) is not None:
                self.of_least_likely = True
                return sample
        return trial.samples[-1]

    def build(self, frame: Frame, width: int, height: int) -> list[Strip]:
        palette = frame.palette
        if self._writing:
            lines = (
                part for line in visible_lines(self._writing) for part in wrap(line, width - 2)
            )
            return [row(width, (f" {line}", palette.muted)) for line in lines]
        if not self.tokens:
            hint = "the policy's tokens, coloured by negative log-probability"
            return [row(width, (f" {hint}", palette.faint))]
        if self._flow[:2] != (self._sample, width):
            self._flow = (self._sample, width, flow(self.tokens, width - 2))
        rows = [row(width, (" ", None), *self._spans(each, palette)) for each in self._flow[2]]
        if self._as_ids:
            rows.append(row(width, (f" {_AS_IDS}", palette.faint)))
        return [self._legend(palette, width), *rows]

    def _legend(self, palette: Palette, width: int) -> Strip:
        costs = [-logprob for _, logprob in self.tokens]
        mean = sum(costs) / len(costs)
        scale: list[Span] = [(" likely ", palette.muted)]
        scale += [(" ", style) for style in palette.heat]
        scale += [(" unlikely", palette.muted)]
        if not self._known:
            where: list[Span] = [("without log-probabilities ", palette.faint)]
        elif self.cursor is not None:
            text, logprob = self.tokens[self.cursor]
            chance = 2.718281828459045**logprob
            said = visible(text.replace("\n", _RETURN).replace("\t", _TAB))
            where = [
                (f"“{clip(said, 16)}” ", palette.strong),
                (f"p={number(chance)}  {number(-logprob)} nats ", palette.muted),
            ]
        else:
            where = [
                ("mean ", palette.muted),
                (number(mean), palette.text),
                (" · max ", palette.muted),
                (number(max(costs)), palette.text),
                (" nats ", palette.muted),
            ]
        return split_row(width, scale, where)

    def _spans(self, pieces: list[Piece], palette: Palette) -> list[Span]:
        """Neighbours of equal heat become one span."""
        spans: list[tuple[str, Style | None]] = []
        for piece in pieces:
            logprob = self.tokens[piece.token][1]
            style = palette.heat[heat_level(logprob)] if self._known else palette.muted
            if piece.token == self.cursor:
                style = palette.selected
            elif piece.token in self.span:
                style = style + _IN_SPAN
            elif piece.text in (_RETURN, _TAB):
                style = style + palette.muted if style.bgcolor is None else style
            if spans and spans[-1][1] == style:
                spans[-1] = (spans[-1][0] + piece.text, style)
            else:
                spans.append((piece.text, style))
        return list(spans)


assert len(_BOUNDS) == HEAT_LEVELS - 1
