"""The grid of groups: a row a group, and below it tiles with its trials' terminals when open."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

from rich.cells import cell_len
from textual import events
from textual.geometry import Region, Size
from textual.message import Message
from textual.strip import Strip

from tbtui.ui.drawing.group_rows import FOLD, RowLayout, group_row, heading_row, row_key, row_layout
from tbtui.ui.drawing.rows import row
from tbtui.ui.input.keys import bindings
from tbtui.ui.panes.pane import MOMENT, Frame, Pane
from tbtui.ui.panes.tiles import (
    TileLayout,
    draw_tile,
    label_of,
    shared_layout,
    tile_key,
    tile_layout,
)
from tbtui.view.current import Tally, tallies
from tbtui.view.groups import ORDER_WORDS, GroupKey, TrialGroup, grouped
from tbtui.view.state import TrialView

_LOWEST = 2
"""Lines of a tile that shows something of its terminal."""
_OPENED = 6
"""Lines at least for the tiles of a group that a person opens."""


_OTHER_BATCHES = {"eval": "held out", "probe": "probe"}


def _by_batch(batches: Sequence[Tally]) -> str:
    """`step 3 30/32 · step 4 2/32`: how many of each batch are done."""
    return " · ".join(
        f"{_OTHER_BATCHES.get(each.purpose, f'step {each.step}')} {each.words}" for each in batches
    )


@dataclass(slots=True)
class _Block:
    """A group on the screen: its row, and its tiles while it is open."""

    group: TrialGroup
    first: int
    """Place of its first trial among all."""
    top: int
    """The line of its row."""
    tiles: TileLayout | None
    """None: it is closed."""
    row: Strip = field(default_factory=lambda: Strip.blank(0))
    row_key: Hashable = None

    @property
    def size(self) -> int:
        return len(self.group.listed)

    @property
    def lines(self) -> int:
        return 1 + (self.tiles.lines(self.size) if self.tiles is not None else 0)

    def place(self, index: int) -> tuple[int, int]:
        """Column and line of a trial's tile, or of the row where it has none."""
        if self.tiles is None:
            return 0, self.top
        x, y = self.tiles.place(index)
        return x, self.top + 1 + y

    def sibling(self, index: int | None) -> int | None:
        """Place in the row of a listed trial."""
        return None if index is None else self.group.trials.index(self.group.listed[index])

    def at(self, column: int, *, last: bool) -> int:
        """The trial in a column: of the first row of tiles, or of the last one."""
        start = 0
        if last and self.tiles is not None:
            start = (self.size - 1) // self.tiles.columns * self.tiles.columns
        return min(start + column, self.size - 1)


_TITLE_ENDS = 2
"""Cells of the border beside a title, within the pane's width."""


class TrialGrid(Pane):
    """The grid; the selection stays with its trial while others come and go.

    While all terminals fit, every group is open; while those of one group do, the selected one's
    is. Where there is no room for that, a person opens a group, and closes it again.
    """

    BINDINGS = bindings("trials")
    EVERY = MOMENT

    class Selected(Message):
        """Another trial was chosen."""

        def __init__(self, trial: str) -> None:
            super().__init__()
            self.trial = trial

    class Opened(Message):
        """The selected trial, or its group's row, was clicked."""

    def __init__(self, id: str) -> None:
        super().__init__(id)
        self._blocks: list[_Block] = []
        self._layout: RowLayout | None = None
        self._heading = Strip.blank(0)
        """The names of the columns, where there are several groups."""
        self._shape: Hashable = None
        """What stands where: as it changes, all is drawn anew."""
        self._tiles: dict[str, tuple[Hashable, list[Strip]]] = {}
        """Trial -> what its tile was drawn from, and its rows."""
        self._opened: set[GroupKey] = set()
        """Those that a person has opened."""
        self._trials: list[TrialView] = []
        self._index = 0
        self._clicked: str | None = None
        """The trial that the last click has chosen."""
        self._message: list[Strip] = []
        self._seen, self._unseen = 0, 0
        self._seen_with: str | None = None
        """The trial that was selected then."""

    def title(self, frame: Frame) -> str:
        title = self._counts(frame)
        if order := ORDER_WORDS[frame.listing.order]:
            title += f" · {order}"
        if self._unseen:
            unseen = f" · {self._unseen} ended since you looked"
            follows = f" ({frame.keys.name_of('follow')} follows)"
            wordings = (unseen + follows, unseen, f" · {self._unseen} ended")
            room = self.size.width - _TITLE_ENDS - len(title)
            title += next((words for words in wordings if len(words) <= room), "")
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
        held_out = {"eval": "held-out ", "fork": "forked ", "probe": "probing "}.get(
            first.purpose, ""
        )
        title = f"{held_out}trials · {running} running · {first.words} done"
        if more:
            title = f"trials · {running} running · {_by_batch([first, *more])}"
        frozen = sum(1 for trial in frame.shown if trial.hold.frozen)
        paused = sum(1 for trial in frame.shown if trial.hold.paused) - frozen
        why = Counter(trial.left_out for trial in frame.shown)
        counts = (paused, "paused"), (frozen, "frozen")
        aside = (why["excluded"], "excluded"), (why["masked"], "masked")
        for some, word in (*counts, *aside):
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
        groups = grouped(frame.listed, frame.state)
        self._trials = [trial for group in groups for trial in group.listed]
        chosen = frame.selected.trial if frame.selected else None
        index = next((i for i, t in enumerate(self._trials) if t.trial == chosen), self._index)
        index = min(index, len(self._trials) - 1)
        moved = self._arrange(groups, index, size, frame)
        if moved or index != self._index:
            self._index = index
            self._reveal_chosen()
        for block in self._blocks:
            self._draw(block, frame)
        if moved and self.visible_trials():
            # The terminals of tiles that are shown only now are read before the next frame.
            self.redraw()

    def _arrange(self, groups: Sequence[TrialGroup], chosen: int, size: Size, frame: Frame) -> bool:
        """Say what stands where; whether that has changed."""
        layout = row_layout(groups, size.width)
        heading = int(len(groups) > 1)
        tiles = self._open_tiles(groups, chosen, size, heading)
        of_groups = [(g.key, len(g.listed), each) for g, each in zip(groups, tiles, strict=True)]
        shape = (size, layout, heading, frame.palette.name, *of_groups)
        if shape == self._shape:
            for block, group in zip(self._blocks, groups, strict=True):
                block.group = group
            return False
        self._shape, self._layout = shape, layout
        self._header, self._heading = heading, heading_row(layout, frame.palette)
        self._blocks = []
        first, top = 0, heading
        for group, each in zip(groups, tiles, strict=True):
            self._blocks.append(_Block(group, first, top, each))
            first, top = first + len(group.listed), top + self._blocks[-1].lines
        shown = {t.trial for b in self._blocks if b.tiles is not None for t in b.group.listed}
        self._tiles = {trial: tile for trial, tile in self._tiles.items() if trial in shown}
        self.extend(Size(size.width, top))
        self.refresh()
        return True

    def _open_tiles(
        self, groups: Sequence[TrialGroup], chosen: int, size: Size, heading: int
    ) -> list[TileLayout | None]:
        """The tiles of each group; None: it is closed."""
        counts = [len(group.listed) for group in groups]
        room = size.height - heading - len(groups)
        if len(groups) > 1 and (shared := shared_layout(counts, size.width, room)) is not None:
            return [shared] * len(groups)
        labels = [max(cell_len(label_of(trial)) for trial in group.listed) for group in groups]
        if not any(group.key in self._opened for group in groups):
            here = _group_at(counts, chosen)
            tiles = tile_layout(counts[here], size.width, max(1, room), labels[here])
            fits = tiles.height >= _LOWEST and tiles.lines(counts[here]) <= room
            return [
                tiles if place == here and (fits or len(groups) == 1) else None
                for place in range(len(groups))
            ]
        room = max(_OPENED, size.height - heading - 1)
        return [
            tile_layout(count, size.width, room, label) if group.key in self._opened else None
            for group, count, label in zip(groups, counts, labels, strict=True)
        ]

    def _draw(self, block: _Block, frame: Frame) -> None:
        """Draw what has changed of a group."""
        assert self._layout is not None
        top, palette = round(self.scroll_y), frame.palette
        chosen = self._index - block.first
        chosen_here = chosen if 0 <= chosen < block.size else None
        in_row = block.sibling(chosen_here)
        key = row_key(block.group, self._layout, in_row, frame.now, palette)
        if key != block.row_key:
            block.row_key = key
            opened = block.tiles is not None
            block.row = group_row(
                block.group, self._layout, palette, frame.now, chosen=in_row, opened=opened
            )
            self.refresh(Region(0, block.top - top, self._layout.width, 1))
        if block.tiles is None:
            return
        for place, trial in enumerate(block.group.listed):
            tile = tile_key(trial, frame, block.tiles, place == chosen_here), block.tiles
            if trial.trial in self._tiles and self._tiles[trial.trial][0] == tile:
                continue
            rows = draw_tile(trial, frame, block.tiles, place == chosen_here)
            self._tiles[trial.trial] = tile, rows
            x, y = block.place(place)
            self.refresh(Region(x, y - top, block.tiles.width, block.tiles.height))

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
            self._blocks, self._trials, self._tiles = [], [], {}
            self._shape, self._header = None, 0
            self._message = [
                row(size.width, (f" {words}", palette.muted)),
                row(size.width, (f" {hint}", palette.faint)),
            ]
            self.extend(Size(size.width, len(self._message)))
            self.refresh()

    def render_line(self, y: int) -> Strip:
        if self._message:
            strip = self._message[y] if y < len(self._message) else Strip.blank(self.size.width)
            return strip.apply_style(self._ground)
        strip = self._line(self.row_at(y))
        return strip.adjust_cell_length(self.size.width).apply_style(self._ground)

    def _line(self, line: int) -> Strip:
        if line < self._header:
            return self._heading
        block = self._block_at(line)
        if block is None:
            return Strip.blank(self.size.width)
        if block.tiles is None or line == block.top:
            return block.row
        line -= block.top + 1
        first = line // block.tiles.height * block.tiles.columns
        trials = block.group.listed[first : first + block.tiles.columns]
        rows = (self._tiles[t.trial][1] for t in trials if t.trial in self._tiles)
        return Strip.join(tile[line % block.tiles.height] for tile in rows)

    def _block_at(self, line: int) -> _Block | None:
        """The group that has a line; None: none has."""
        place = bisect_right(self._blocks, line, key=lambda block: block.top) - 1
        if place < 0 or line >= self._blocks[place].top + self._blocks[place].lines:
            return None
        return self._blocks[place]

    @property
    def text(self) -> str:
        rows = self._message or [self._line(y) for y in range(self.virtual_size.height)]
        return "\n".join(strip.text.rstrip() for strip in rows)

    def visible_trials(self) -> list[str]:
        """Return the trials whose tiles are visible."""
        top, end = round(self.scroll_y) + self.header, round(self.scroll_y) + self.size.height
        return [
            trial.trial
            for block in self._blocks
            if block.tiles is not None and block.tiles.height >= _LOWEST
            for place, trial in enumerate(block.group.listed)
            if top - block.tiles.height < block.place(place)[1] < end
        ]

    @property
    def _here(self) -> tuple[int, int]:
        """The group of the selected trial, by its place, and the trial's place in it."""
        here = bisect_right(self._blocks, self._index, key=lambda block: block.first) - 1
        return here, self._index - self._blocks[here].first

    def action_move(self, columns: int, rows: int) -> None:
        """Select a sibling beside the selected one; the tile, or the group, above or below."""
        if not self._blocks:
            return
        here, place = self._here
        block = self._blocks[here]
        if columns:
            target = place + columns
            if 0 <= target < block.size:
                self._choose(block.first + target)
            return
        wide = block.tiles.columns if block.tiles is not None else block.size
        if 0 <= place // wide + rows <= (block.size - 1) // wide:
            self._choose(block.first + min(place + rows * wide, block.size - 1))
        elif 0 <= here + rows < len(self._blocks):
            beside = self._blocks[here + rows]
            self._choose(beside.first + beside.at(place % wide, last=rows < 0))

    def action_newest(self) -> None:
        if self._trials:
            self._choose(len(self._trials) - 1)

    def action_oldest(self) -> None:
        if self._trials:
            self._choose(0)

    def _choose(self, index: int) -> None:
        self._index = index
        self._reveal_chosen()
        self.post_message(self.Selected(self._trials[index].trial))

    def _reveal_chosen(self) -> None:
        """Scroll as little as shows the selected trial, and its group's row if there is room."""
        here, place = self._here
        block = self._blocks[here]
        _, top = block.place(place)
        lines = block.tiles.height if block.tiles is not None else 1
        if top + lines - block.top <= self.scrollable_content_region.height - self.header:
            self.reveal(top + lines - 1)
            self.reveal(block.top)
        self.reveal(top + lines - 1)
        self.reveal(top)

    def open_tiles(self) -> bool:
        """Open the selected trial's group; False: it is open, or can't be seen."""
        if not self.display or not self._blocks:
            return False
        block = self._blocks[self._here[0]]
        if block.tiles is not None:
            return False
        self._opened.add(block.group.key)
        self.redraw()
        return True

    def close_tiles(self) -> bool:
        """Close the selected trial's group if a person has opened it, else all that are; False:
        there are none."""
        opened = {block.group.key for block in self._blocks} & self._opened
        if not opened:
            return False
        here = self._blocks[self._here[0]].group.key
        self._opened -= {here} if here in opened else opened
        self.redraw()
        return True

    def on_click(self, event: events.Click) -> None:
        if event.chain > 1 and self._trials and self._clicked == self._trials[self._index].trial:
            # Whatever lies there now: the first click may have opened a group.
            self.post_message(self.Opened())
            return
        self._clicked = None
        at = self.place_of(event)
        block = None if at is None else self._block_at(at.y)
        if at is None or block is None or self._layout is None:
            return
        chosen = self._index - block.first
        here = chosen if 0 <= chosen < block.size else None
        if at.y == block.top:
            x = at.x - self._layout.siblings_at
            group = block.group
            at_x = self._layout.siblings.at(x, len(group.trials), block.sibling(here))
            clicked = None if at_x is None else group.trials[at_x]
            # Beside the glyphs, and on one that is dimmed, it is the group that is meant.
            place = group.listed.index(clicked) if clicked in group.listed else here or 0
        else:
            assert block.tiles is not None
            if at.x >= block.tiles.width * block.tiles.columns:
                return
            line = (at.y - block.top - 1) // block.tiles.height
            place = line * block.tiles.columns + at.x // block.tiles.width
            if place >= block.size:
                return
        self._choose(block.first + place)
        if at.y == block.top and at.x < FOLD:
            self._fold(block)
        else:
            self._clicked = self._trials[self._index].trial

    def _fold(self, block: _Block) -> None:
        """Open a closed group, or close it again."""
        if block.tiles is None or block.group.key in self._opened:
            self._opened ^= {block.group.key}
            self.redraw()


def _group_at(counts: Sequence[int], index: int) -> int:
    """The group, of so many trials each, that has a trial."""
    for place, count in enumerate(counts):
        if index < count:
            return place
        index -= count
    return len(counts) - 1
