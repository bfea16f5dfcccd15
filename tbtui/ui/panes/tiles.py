"""Tiles: a trial's heading and the end of its terminal, and how many fit side by side."""

from __future__ import annotations

import re
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from textual.strip import Strip

from tbtui.ui.drawing.rows import Span, row, split_row
from tbtui.ui.drawing.text import clip_name, elapsed, rate, visible, wrap
from tbtui.ui.panes.pane import Frame
from tbtui.ui.textual_seam import cropped
from tbtui.ui.theme.glyphs import LEFT_OUT_MARK, RELABELLED_MARK, trial_glyph
from tbtui.view.current import active_seconds
from tbtui.view.state import TrialView
from tbtui.view.times import remaining_sec, time_left
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

    def lines(self, count: int) -> int:
        """Lines of so many tiles."""
        return -(-count // self.columns) * self.height


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


_FEWEST_LINES = 3
"""A tile's, with its heading, where the tiles of all groups are shown at once."""


def shared_layout(counts: Sequence[int], width: int, height: int) -> TileLayout | None:
    """Equal tiles for several groups, each of which begins a new row of tiles; None: not all of
    them fit with a few lines of their terminals."""
    best: tuple[int, TileLayout] | None = None
    for columns in range(1, min(max(counts), width // NARROWEST) + 1):
        rows = sum(-(-count // columns) for count in counts)
        tile = TileLayout(columns, width // columns, min(_TALLEST, height // rows))
        worth = min(tile.width, 72) * (tile.height - 1)
        if tile.height >= _FEWEST_LINES and (best is None or worth > best[0]):
            best = worth, tile
    return None if best is None else best[1]


_WORTH_SHOWING = 8
"""Columns below which a command beside a label is not worth showing."""
_PROMPT = re.compile(r"[\w.-]+@[\w.-]+:\S*[#$] ")
_LOOK_BACK = 4


def _written(text: str, width: int) -> str:
    """The end of what a model has written so far, in one line."""
    return visible(" ".join(text.split())[-max(1, width) :])


def _is_bare_prompt(line: str) -> bool:
    return not line.strip() or _PROMPT.fullmatch(line.rstrip() + " ") is not None


def label_of(trial: TrialView) -> str:
    """Return the trial's label, with its attempt and the decisions on it."""
    label = trial.label if trial.attempt == 1 else f"{trial.label} #{trial.attempt}"
    if trial.excluded:
        return f"{label} {LEFT_OUT_MARK}"
    return f"{label} {RELABELLED_MARK}" if trial.relabelled else label


def _room(right: Sequence[Span], width: int) -> int:
    """Return the cells for a tile's label, beside what stands at its right end."""
    taken = sum(len(text) for text, _ in right)
    return width - GLYPH - (taken + 1 if taken else 0)


def tile_key(trial: TrialView, frame: Frame, layout: TileLayout, selected: bool) -> Hashable:
    """What the tile's picture depends on."""
    screen = frame.run.recordings.screen(trial.trial)
    return (
        trial.trial,
        trial.phase,
        trial.hold,
        trial.turn,
        trial.pending,
        trial.excluded,
        trial.relabelled,
        retry_wait(trial, frame.now),
        _left(trial, frame),
        trial.outcome,
        trial.reward,
        trial.last_command if layout.height == 1 else "",
        int(active_seconds(trial, frame.now)),
        screen.version if screen and layout.height > 1 else None,
        trial.writing if layout.height > 1 else "",
        selected,
        frame.palette.name,
    )


def draw_tile(trial: TrialView, frame: Frame, layout: TileLayout, selected: bool) -> list[Strip]:
    """The tile's rows, each as wide as the layout has it, with the gap."""
    width = layout.width - 1 if layout.columns > 1 else layout.width
    gap = layout.width - width
    rows = [_heading(trial, frame, width, layout.height == 1, selected)]
    # With room to spare, a blank row keeps the tiles apart.
    body = layout.height - (2 if layout.height >= 5 else 1)
    if body > 0:
        rows.extend(_body(trial, frame, width, body))
    rows.extend(Strip.blank(width) for _ in range(layout.height - len(rows)))
    return [Strip.join([strip, Strip.blank(gap)]) for strip in rows] if gap else rows


def _heading(trial: TrialView, frame: Frame, width: int, alone: bool, selected: bool) -> Strip:
    palette = frame.palette
    glyph = trial_glyph(trial, palette)
    dim = palette.muted if trial.phase != "queued" else palette.faint
    label = label_of(trial)
    left: list[Span] = [
        (f" {glyph.char} ", glyph.style),
        (label, palette.text if trial.live and trial.phase != "queued" else dim),
    ]
    right: list[Span] = []
    if trial.armed:
        words = f"{doing(trial)} "
        fits = cell_len(label) + len(words) < width - GLYPH
        right.append((words if fits else "pauses ", palette.attention))
    elif trial.pending:
        right.append((f"{verb_words(trial.pending)}… ", palette.attention))
    if trial.turn:
        right.append((f"t{trial.turn} ", dim))
    if trial.reward is not None and 0 < trial.reward < 1:
        # The glyph tells all from nothing, not what lies between.
        right.append((f"{rate(trial.reward)} ", palette.reward(trial.reward)))
    if trial.started_at is not None:
        right.append((f"{elapsed(active_seconds(trial, frame.now))} ", dim))
    if left_time := _left(trial, frame):
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


def _left(trial: TrialView, frame: Frame) -> str:
    remaining = None if trial.hold.paused else remaining_sec(trial, frame.state, frame.now)
    return "" if remaining is None else time_left(remaining)


def _body(trial: TrialView, frame: Frame, width: int, height: int) -> list[Strip]:
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
        words = doing(trial) if trial.armed or trial.phase != "queued" else "queued"
        if trial.live and trial.phase == "setup":
            _, _, step = trial.detail.partition("sandbox: ")
            words = f"building the sandbox: {step}" if step else "creating the sandbox"
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
        if not said and trial.live and trial.writing:
            shown = ()
    bare = all(_is_bare_prompt(screen.plain(y)) for y in shown)
    for y in shown:
        # A tile is narrow: of a prompt only its last character is worth the room, beside others.
        prompt = None if bare else _PROMPT.match(screen.plain(y) + " ")
        left = prompt.end() - 2 if prompt else 0
        line = cropped(screen.row(y, palette), left, width - 1, palette.terminal)
        rows.append(Strip.join([pad, line]))
    if trial.live and trial.writing and len(rows) < height:
        words = _written(trial.writing, width - 2)
        rows.append(row(width, (f" {words}", palette.muted), base=palette.terminal))
    return rows + [blank] * (height - len(rows))
