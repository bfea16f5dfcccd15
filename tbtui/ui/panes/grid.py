"""The grid of live trials: one widget that joins cached Strips, from 1 to 64 tiles and more."""

from __future__ import annotations

import re
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from textual import events
from textual.geometry import Region, Size
from textual.message import Message
from textual.strip import Strip

from tbtui.ui.drawing.rows import Span, row, split_row
from tbtui.ui.drawing.text import clip_name, elapsed, rate, wrap
from tbtui.ui.input.keys import bindings
from tbtui.ui.panes.pane import MOMENT, Frame, Pane
from tbtui.ui.textual_seam import cropped
from tbtui.ui.theme.glyphs import LEFT_OUT_MARK, RELABELLED_MARK, trial_glyph
from tbtui.view.current import Tally, active_seconds, tallies
from tbtui.view.estimate import remaining_sec, time_left
from tbtui.view.listing import ORDER_WORDS
from tbtui.view.state import TrialView
from tbtui.view.waiting import doing, retry_wait, verb_words

NARROWEST = 24
"""Columns of a tile that shows more than its glyph and label."""
GLYPH = 3
"""Cells of a tile before its label."""
_LABELS_ALONE = 14
"""Columns of a tile that has no room but for its glyph and label: only where the others would
not fit."""
_TALLEST = 12


@dataclass(frozen=True, slots=True)
class TileLayout:
    """Equal tiles, row by row."""

    columns: int
    width: int
    """A tile's width, with the gap to its right."""
    height: int

    def place(self, index: int) -> tuple[int, int]:
        """Column and row of a tile's upper left cell."""
        return index % self.columns * self.width, index // self.columns * self.height


def tile_layout(count: int, width: int, height: int, label: int = 0) -> TileLayout:
    """The columns that show the most of `count` terminals; one-line tiles when they are many,
    narrow ones when they are very many.

    `label` are the cells that the longest label needs: it is cut only where that lets all tiles
    be seen at once.
    """
    roomy = min(NARROWEST, GLYPH + label + 1)
    best: tuple[float, TileLayout] | None = None
    for columns in range(1, max(1, min(count, width // _LABELS_ALONE)) + 1):
        rows = -(-max(1, count) // columns)
        tile = TileLayout(columns, width // columns, max(1, min(_TALLEST, height // rows)))
        if tile.width < NARROWEST and columns > 1 and tile.height > 1:
            continue
        # A tile of one line shows a little of the terminal beside its label.
        lines = tile.height - 1 if tile.height > 1 else 0.4
        worth = min(tile.width, 72) * lines
        if tile.height * rows > max(1, height):
            # Some have to be scrolled to: the fewer the better.
            worth = (0.001 if tile.width >= roomy else 0.0001) * columns
        if best is None or worth > best[0]:
            best = (worth, tile)
    assert best is not None
    return best[1]


_WORTH_SHOWING = 8
"""Columns below which a command beside a label is not worth showing."""
_PROMPT = re.compile(r"[\w.-]+@[\w.-]+:\S*[#$] ")
_LOOK_BACK = 4


def _is_bare_prompt(line: str) -> bool:
    return not line.strip() or _PROMPT.fullmatch(line.rstrip() + " ") is not None


def _label(trial: TrialView) -> str:
    """Return the trial's label, with its attempt and the decisions on it."""
    label = trial.label if trial.attempt == 1 else f"{trial.label} #{trial.attempt}"
    if trial.excluded:
        return f"{label} {LEFT_OUT_MARK}"
    return f"{label} {RELABELLED_MARK}" if trial.relabelled else label


def _room(right: Sequence[Span], width: int) -> int:
    """Return the cells for a tile's label, beside what stands at its right end."""
    taken = sum(len(text) for text, _ in right)
    return width - GLYPH - (taken + 1 if taken else 0)


def _by_batch(batches: Sequence[Tally]) -> str:
    """`step 3 30/32 · step 4 2/32`: how many of each batch are done."""
    return " · ".join(
        f"{'held out' if each.purpose == 'eval' else f'step {each.step}'} {each.words}"
        for each in batches
    )


class TrialGrid(Pane):
    """The grid; the selection stays with its trial while others come and go."""

    BINDINGS = bindings("trials")
    EVERY = MOMENT

    class Selected(Message):
        """Another trial was chosen."""

        def __init__(self, trial: str) -> None:
            super().__init__()
            self.trial = trial

    class Opened(Message):
        """The selected trial was clicked."""

    def __init__(self, id: str) -> None:
        super().__init__(id)
        self._tiles: list[list[Strip]] = []
        self._tile_keys: list[Hashable] = []
        self._layout_now = TileLayout(1, 1, 1)
        self._room = Size(0, 0)
        """That the tiles were laid out for."""
        self._trials: list[TrialView] = []
        self._index = 0
        self._message: list[Strip] = []
        self._seen, self._unseen = 0, 0
        self._seen_with: str | None = None
        """The trial that was selected then."""

    def title(self, frame: Frame) -> str:
        title = self._counts(frame)
        if order := ORDER_WORDS[frame.listing.order]:
            title += f" · {order}"
        if self._unseen:
            title += f" · {self._unseen} ended meanwhile ({frame.keys.name_of('follow')} follows)"
        return title

    def _counts(self, frame: Frame) -> str:
        if frame.listing.filter:
            what = "earlier trials" if frame.listing.earlier else "trials"
            of = "" if frame.listing.earlier else f" of {len(frame.shown)}"
            count = f"{len(frame.listed)}{of} · {frame.keys.name_of('overview')} all"
            return f"{what} · {frame.listing.filter.in_words} · {count}"
        running = len(frame.state.running_trials())
        if not frame.shown:
            return "trials"
        first, *more = tallies(frame.shown, frame.state)
        held_out = "held-out " if first.purpose == "eval" else ""
        title = f"{held_out}trials · {running} running · {first.words} done"
        if more:
            title = f"trials · {running} running · {_by_batch([first, *more])}"
        frozen = sum(1 for trial in frame.shown if trial.frozen)
        paused = sum(1 for trial in frame.shown if trial.paused) - frozen
        left_out = sum(1 for trial in frame.shown if trial.left_out in ("excluded", "masked"))
        for some, word in ((paused, "paused"), (frozen, "frozen"), (left_out, "left out")):
            if some:
                title += f" · {some} {word}"
        return title

    def show(self, frame: Frame) -> None:
        size = self.scrollable_content_region.size
        if not self.display or not size:
            return
        self._count_unseen(frame)
        self.retitle(self.title(frame))
        self.lay_ground(frame.palette)
        if not frame.listed:
            self._show_nothing(frame, size)
            return
        self._message, self._key = [], None
        label = max(cell_len(_label(trial)) for trial in frame.listed)
        layout = tile_layout(len(frame.listed), size.width, size.height, label)
        chosen = frame.selected.trial if frame.selected else None
        self._trials = frame.listed
        keys = [
            self._tile_key(trial, frame, layout, trial.trial == chosen) for trial in frame.listed
        ]
        moved = (layout, size) != (self._layout_now, self._room)
        if moved or len(keys) != len(self._tile_keys):
            self._layout_now, self._room = layout, size
            self._tile_keys, self._tiles = [None] * len(keys), [[] for _ in keys]
            height = -(-len(keys) // layout.columns) * layout.height
            self.extend(Size(size.width, height))
            self.refresh()
        for index, (trial, key) in enumerate(zip(frame.listed, keys, strict=True)):
            if trial.trial == chosen and (moved or index != self._index):
                self._index = index
                self._reveal_tile()
            if key != self._tile_keys[index]:
                self._tile_keys[index] = key
                self._tiles[index] = self._tile(trial, frame, layout, trial.trial == chosen)
                x, y = layout.place(index)
                self.refresh(Region(x, y - round(self.scroll_y), layout.width, layout.height))

    def _count_unseen(self, frame: Frame) -> None:
        """Count the trials that ended since following was stopped."""
        chosen = frame.selected.trial if frame.selected is not None else None
        if frame.following or chosen != self._seen_with:
            self._seen, self._seen_with = frame.state.trials_finished, chosen
        self._unseen = frame.state.trials_finished - self._seen

    def _show_nothing(self, frame: Frame, size: Size) -> None:
        palette = frame.palette
        words = "no trials yet" if frame.state.started_at is not None else "starting the engine"
        hint = f"the run is {frame.state.phase}: {frame.state.phase_detail or 'about 6 s'}"
        if frame.listing.filter:
            words = f"no trial matches {frame.listing.filter.in_words}"
            hint = f"those that start appear here; {frame.keys.name_of('overview')} shows all"
        elif frame.state.status is not None:
            words, hint = "the run is over", "no trial was started"
        key = (words, hint, size, palette.name)
        if key != self._key:
            self._key = key
            self._trials, self._tiles, self._tile_keys = [], [], []
            self._message = [
                row(size.width, (f" {words}", palette.muted)),
                row(size.width, (f" {hint}", palette.faint)),
            ]
            self.extend(Size(size.width, len(self._message)))
            self.refresh()

    def _tile_key(
        self, trial: TrialView, frame: Frame, layout: TileLayout, selected: bool
    ) -> Hashable:
        screen = frame.run.recordings.screen(trial.trial)
        return (
            trial.trial,
            trial.phase,
            trial.paused,
            trial.frozen,
            trial.turn,
            trial.pending,
            trial.excluded,
            trial.relabelled,
            retry_wait(trial, frame.now),
            self._left(trial, frame),
            trial.outcome,
            trial.reward,
            trial.last_command if layout.height == 1 else "",
            int(active_seconds(trial, frame.now)),
            screen.version if screen and layout.height > 1 else None,
            selected,
            frame.palette.name,
        )

    def _tile(
        self, trial: TrialView, frame: Frame, layout: TileLayout, selected: bool
    ) -> list[Strip]:
        width = layout.width - 1 if layout.columns > 1 else layout.width
        gap = layout.width - width
        rows = [self._heading(trial, frame, width, layout.height == 1, selected)]
        # With room to spare, a blank row keeps the tiles apart.
        body = layout.height - (2 if layout.height >= 5 else 1)
        if body > 0:
            rows.extend(self._body(trial, frame, width, body))
        rows.extend(Strip.blank(width) for _ in range(layout.height - len(rows)))
        return [Strip.join([strip, Strip.blank(gap)]) for strip in rows] if gap else rows

    def _heading(
        self, trial: TrialView, frame: Frame, width: int, alone: bool, selected: bool
    ) -> Strip:
        palette = frame.palette
        glyph = trial_glyph(trial, palette)
        dim = palette.muted if trial.phase != "queued" else palette.faint
        label = _label(trial)
        left: list[Span] = [
            (f" {glyph.char} ", glyph.style),
            (label, palette.text if trial.live and trial.phase != "queued" else dim),
        ]
        right: list[Span] = []
        if trial.pending:
            right.append((f"{verb_words(trial.pending)}… ", palette.attention))
        if trial.turn:
            right.append((f"t{trial.turn} ", dim))
        if trial.reward is not None and 0 < trial.reward < 1:
            # The glyph tells all from nothing, not what lies between.
            right.append((f"{rate(trial.reward)} ", palette.reward(trial.reward)))
        if trial.started_at is not None:
            right.append((f"{elapsed(active_seconds(trial, frame.now))} ", dim))
        if left_time := self._left(trial, frame):
            right.append((f"{left_time} ", dim))
        if wait := retry_wait(trial, frame.now):
            right.append((f"{wait} ", palette.attention))
        fewest = 1 if width >= NARROWEST - 1 else 0
        while (room := _room(right, width)) < cell_len(label) and len(right) > fewest:
            # The label matters more than the turn, and the newest more than what came before.
            right.pop(0)
        left[1] = (clip_name(label, room), left[1][1])
        if alone and trial.last_command and room >= len(label) + _WORTH_SHOWING:
            left.append((f"  {trial.last_command}", palette.muted))
        # Headings stand out from the terminals below them; without those there is no need.
        base = palette.ground if alone else palette.on_raised
        if selected:
            # Colours of their own would be illegible on the accent: the glyph says it.
            left, right = [(t, None) for t, _ in left], [(t, None) for t, _ in right]
            base = palette.selected
        return split_row(width, left, right, base)

    @staticmethod
    def _left(trial: TrialView, frame: Frame) -> str:
        remaining = None if trial.paused else remaining_sec(trial, frame.state, frame.now)
        return "" if remaining is None else time_left(remaining)

    def _body(self, trial: TrialView, frame: Frame, width: int, height: int) -> list[Strip]:
        palette = frame.palette
        if trial.unscored:
            text = trial.reason or str(trial.outcome)
            lines = list(wrap(text, width - 1))[:height]
            style = palette.infrastructure if trial.infrastructure else palette.muted
            return [row(width, (f" {line}", style), base=palette.on_surface) for line in lines] + [
                row(width, base=palette.on_surface)
            ] * (height - len(lines))
        screen = frame.run.recordings.screen(trial.trial)
        if screen is None:
            words = doing(trial) if trial.phase != "queued" else "queued"
            if trial.live and trial.phase == "setup":
                words = "creating the sandbox"
            first = row(width, (f" {words}", palette.faint), base=palette.on_surface)
            return [first] + [row(width, base=palette.on_surface)] * (height - 1)
        blank = row(width, base=palette.terminal)
        pad = row(1, base=palette.terminal)
        rows: list[Strip] = []
        shown: Sequence[int] = screen.window(height)
        if height == 1:
            # One line: better what was last typed or said than a prompt that waits.
            said = [y for y in screen.window(_LOOK_BACK) if not _is_bare_prompt(screen.plain(y))]
            shown = said[-1:] or shown
        for y in shown:
            # A tile is narrow: of a prompt only its last character is worth the room.
            prompt = _PROMPT.match(screen.plain(y) + " ")
            left = prompt.end() - 2 if prompt else 0
            line = cropped(screen.row(y, palette), left, width - 1, palette.terminal)
            rows.append(Strip.join([pad, line]))
        return rows + [blank] * (height - len(rows))

    def render_line(self, y: int) -> Strip:
        if self._message:
            strip = self._message[y] if y < len(self._message) else Strip.blank(self.size.width)
            return strip.apply_style(self._ground)
        layout = self._layout_now
        line = y + round(self.scroll_y)
        first = line // layout.height * layout.columns
        strips = [
            tile[line % layout.height]
            for tile in self._tiles[first : first + layout.columns]
            if tile
        ]
        line_strip = Strip.join(strips).adjust_cell_length(self.size.width)
        return line_strip.apply_style(self._ground)

    @property
    def text(self) -> str:
        height = self.virtual_size.height
        return "\n".join(
            self.render_line(y - round(self.scroll_y)).text.rstrip() for y in range(height)
        )

    def visible_trials(self) -> list[str]:
        """Return the trials whose tiles are visible."""
        layout = self._layout_now
        if layout.height < 2:
            # One-line tiles show no terminal.
            return []
        top = round(self.scroll_y) // layout.height
        bottom = (round(self.scroll_y) + self.size.height) // layout.height + 1
        chosen = self._trials[top * layout.columns : bottom * layout.columns]
        return [trial.trial for trial in chosen]

    def action_move(self, columns: int, rows: int) -> None:
        index = self._index + columns + rows * self._layout_now.columns
        if 0 <= index < len(self._trials):
            self._choose(index)

    def action_newest(self) -> None:
        if self._trials:
            self._choose(len(self._trials) - 1)

    def action_oldest(self) -> None:
        if self._trials:
            self._choose(0)

    def _choose(self, index: int) -> None:
        self._index = index
        self._reveal_tile()
        self.post_message(self.Selected(self._trials[index].trial))

    def _reveal_tile(self) -> None:
        _, y = self._layout_now.place(self._index)
        top, room = round(self.scroll_y), self.scrollable_content_region.height
        if not top <= y <= top + room - self._layout_now.height:
            self.move_to(max(0, y - room // 2))

    def on_click(self, event: events.Click) -> None:
        at, layout = self.place_of(event), self._layout_now
        if at is None or at.x >= layout.width * layout.columns:
            return
        index = at.y // layout.height * layout.columns + at.x // layout.width
        if not 0 <= index < len(self._trials):
            return
        if index == self._index and event.chain > 1:
            self.post_message(self.Opened())
        else:
            self._choose(index)
