"""Searches the transcripts of runs."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import ClassVar

from rich.cells import cell_len
from textual import events, work
from textual.app import ComposeResult
from textual.message import Message
from textual.strip import Strip
from textual.widgets import Input

from tbtui.journal.database import JournalError
from tbtui.journal.rundir import RunDirectory
from tbtui.journal.search import MOST, Hit, search
from tbtui.ui.drawing.rows import Span, row, split_row
from tbtui.ui.drawing.text import clip, clip_name, visible
from tbtui.ui.input.keys import Scope, bindings
from tbtui.ui.panes.bars import StatusLine
from tbtui.ui.panes.key_bar import KeyBar, WayBack, WordsLine
from tbtui.ui.panes.pane import Frame, Pane, Redraw
from tbtui.ui.screens.base import LiveScreen
from tbtui.ui.stories import story_lines
from tbtui.ui.textual_seam import Rows
from tbtui.ui.theme.palette import Palette


class HitsPane(Pane):
    """A row for each match; `enter` opens the trial at its turn."""

    BINDINGS = bindings("hits")
    EVERY = 1

    class Opened(Message):
        def __init__(self, hit: Hit) -> None:
            super().__init__()
            self.hit = hit

    def __init__(self, id: str, *, one_run: bool) -> None:
        super().__init__(id)
        self._one_run = one_run
        self.text_sought = ""
        self.hits: list[Hit] = []
        self.share = 1.0
        """The share of the runs that has been searched."""
        self.troubles: list[str] = []
        """Why runs can't be looked through."""
        self.stories: dict[tuple[RunDirectory, str], str] = {}
        """Run and trial -> the trial's story, once it has been read."""
        self._by_run: Counter[RunDirectory] = Counter()
        self._chosen = 0
        self._story_below = False
        """The chosen hit's story is in a row of its own."""

    def begin(self, text: str) -> None:
        """Begin a new search."""
        self.text_sought, self.hits, self._chosen, self.troubles = text, [], 0, []
        self._by_run.clear()
        self.share = 0.0 if text else 1.0

    def take(self, hits: Sequence[Hit], share: float, trouble: str) -> None:
        """Add what was found; `trouble` says why a run can't be searched."""
        self.hits.extend(hits)
        self._by_run.update(hit.run for hit in hits)
        self.share = share
        if trouble:
            self.troubles.append(trouble)

    def title(self, frame: Frame) -> str:
        if not self.text_sought:
            return "found"
        count = f"{len(self.hits)}"
        if max(self._by_run.values(), default=0) >= MOST:
            # There may be more.
            count = f"the first {count}" if self._one_run else f"{count}, at most {MOST} of a run"
        looking = f" · searching, {self.share:.0%}" if self.share < 1 else ""
        return f"found {count}{looking}"

    def key(self, frame: Frame) -> Hashable:
        found = len(self.hits), len(self.stories), len(self.troubles)
        return self.text_sought, self.share, self._chosen, found

    def build(self, frame: Frame, width: int, height: int) -> list[Strip]:
        palette = frame.palette
        if not self.text_sought:
            return [
                row(
                    width,
                    (
                        " searches model output, typed commands, terminals and verifier output",
                        palette.faint,
                    ),
                )
            ]
        # Below what was found, whose rows have its numbers.
        troubles = [row(width, (f" ! {visible(each)}", palette.bad)) for each in self.troubles]
        if not self.hits:
            text = " no match" if self.share >= 1 else " no match yet"
            return [row(width, (text, palette.faint)), *troubles]
        run_width = 0 if self._one_run else min(20, max(len(h.run.name) for h in self.hits) + 1)
        label_width = min(24, max(len(hit.label) for hit in self.hits) + 1)
        beside = width >= _STORY_BESIDE
        rows: list[Strip] = []
        for index, hit in enumerate(self.hits):
            story = self.stories.get((hit.run, hit.trial), "")
            rows.append(
                _row(
                    hit,
                    palette,
                    width,
                    run_width,
                    label_width,
                    story if beside else "",
                    chosen=index == self._chosen,
                )
            )
            if index == self._chosen:
                self._story_below = bool(story) and not beside
                if self._story_below:
                    line = clip(story, width - _INDENT - 1)
                    rows.append(row(width, (" " * _INDENT + line, palette.muted)))
        return rows + troubles

    def action_move(self, rows: int) -> None:
        if self.hits:
            self._chosen = min(len(self.hits) - 1, max(0, self._chosen + rows))
            self.reveal(self._chosen)
            self.redraw()

    def action_newest(self) -> None:
        self.action_move(len(self.hits))

    def action_oldest(self) -> None:
        self.action_move(-len(self.hits))

    def action_open(self) -> None:
        if self.hits:
            self.post_message(self.Opened(self.hits[self._chosen]))

    def on_click(self, event: events.Click) -> None:
        at = self.place_of(event)
        if at is None:
            return
        below = self._story_below and at.y > self._chosen
        if (place := at.y - below) < len(self.hits):
            again = place == self._chosen
            self._chosen = place
            if again:
                self.action_open()
            self.redraw()


_STORY_BESIDE = 105
"""Columns from which on each hit has its trial's story beside it; in fewer the chosen one has it
below."""
_INDENT = 4


def _row(
    hit: Hit,
    palette: Palette,
    width: int,
    run_width: int,
    label_width: int,
    story: str,
    *,
    chosen: bool,
) -> Strip:
    turn = "verdict" if hit.turn is None else f"t{hit.turn} {hit.where}"
    spans: list[Span] = [(" ", None)]
    if run_width:
        spans.append((f"{clip_name(hit.run.name, run_width - 1):<{run_width}}", palette.muted))
    spans += [
        (f"{clip_name(hit.label, label_width - 1):<{label_width}}", palette.text),
        (f"s{hit.step:<4}", palette.muted),
        (f"{turn:<12}", palette.muted),
    ]
    room = width - sum(len(text) for text, _ in spans)
    right: list[Span] = []
    if story:
        cells = room * 2 // 5
        # Each begins in one column.
        line = clip(story, cells - 3)
        right = [(f"  {line}{' ' * (cells - 2 - cell_len(line))}", palette.muted)]
        room -= cells
    before, found, after = (
        visible(part.replace("\n", " ").replace("\r", ""))
        for part in (hit.before, hit.found, hit.after)
    )
    # What was found stays in sight, with a third of the room before it.
    lead = max(0, min(cell_len(before), room // 3))
    spans += [
        (_ending(before, lead), palette.muted),
        (found, palette.attention),
        (after, palette.muted),
    ]
    return split_row(width, spans, right, palette.on_raised if chosen else None)


def _ending(text: str, cells: int) -> str:
    """The end of a text in at most so many cells, with `…` before it where it is cut."""
    if cell_len(text) <= cells:
        return text
    return f"…{text[len(text) - cells + 1 :]}" if cells > 1 else ""


_PAUSE_SEC = 0.25
"""How long after the last key a search begins."""
_SHORTEST = 2


class SearchScreen(LiveScreen):
    """Searches on a thread for what is typed, and shows hits as they are found."""

    SCOPES: ClassVar[tuple[Scope, ...]] = ("hits", "search", "everywhere")
    BINDINGS = bindings("search")
    AUTO_FOCUS = "#filter"
    OVERVIEW = ("hits",)
    COLUMNS: ClassVar[dict[str, tuple[str, ...]]] = {"list": ("hits",)}

    class Wanted(Message):
        """This match is to be shown."""

        def __init__(self, hit: Hit) -> None:
            super().__init__()
            self.hit = hit

    def __init__(self, runs: Sequence[RunDirectory]) -> None:
        super().__init__()
        self._runs = runs
        self._stop = threading.Event()

    def compose_panes(self) -> ComposeResult:
        yield StatusLine("status")
        with Rows(id="list"):
            one = len(self._runs) == 1
            where = visible(self._runs[0].name) if one else f"{len(self._runs)} runs"
            placeholder = f"a text in the transcripts of {where}"
            yield WordsLine("find", Input(placeholder=placeholder, id="filter", max_length=200))
            yield HitsPane("hits", one_run=one)
        yield KeyBar("keys", *self.SCOPES, back=WayBack("search-back", "back"))

    def on_input_changed(self, event: Input.Changed) -> None:
        self._stop.set()
        self._stop = threading.Event()
        text = event.value if len(event.value.strip()) >= _SHORTEST else ""
        self.query_one(HitsPane).begin(text)
        self.post_message(Redraw())
        if text:
            self._look(text, self._stop)

    def on_input_submitted(self) -> None:
        self.set_focus(self.query_one(HitsPane))

    def on_unmount(self) -> None:
        self._stop.set()

    @work(name="search", exclusive=True)
    async def _look(self, text: str, stop: threading.Event) -> None:
        await asyncio.sleep(_PAUSE_SEC)
        loop, pane = asyncio.get_running_loop(), self.query_one(HitsPane)

        def found(hits: Sequence[Hit], share: float, trouble: str) -> None:
            if not stop.is_set():
                pane.take(hits, share, trouble)

        def tell(hits: Sequence[Hit], share: float, trouble: str) -> None:
            loop.call_soon_threadsafe(found, hits, share, trouble)

        await asyncio.to_thread(_search_all, self._runs, text, tell, stop)
        self.post_message(Redraw())

        def keep_story(run: RunDirectory, trial: str, story: str) -> None:
            loop.call_soon_threadsafe(pane.stories.__setitem__, (run, trial), story)

        trials: dict[RunDirectory, list[str]] = {}
        for run, trial in dict.fromkeys((hit.run, hit.trial) for hit in pane.hits):
            if (run, trial) not in pane.stories:
                trials.setdefault(run, []).append(trial)
        await asyncio.to_thread(_read_stories, trials, keep_story, stop)
        self.post_message(Redraw())

    def on_hits_pane_opened(self, event: HitsPane.Opened) -> None:
        self.post_message(self.Wanted(event.hit))

    def idle_keys(self) -> Iterable[str]:
        if not self.query_one(HitsPane).hits:
            yield "open-hit"

    def action_back(self) -> None:
        self.dismiss()

    def action_edit(self) -> None:
        self.set_focus(self.query_one("#filter"))


def _read_stories(
    trials: Mapping[RunDirectory, Sequence[str]],
    show_story: Callable[[RunDirectory, str, str], None],
    stop: threading.Event,
) -> None:
    """Call `show_story` with each trial's run, id and story until all are read or `stop` is set."""
    for run, names in trials.items():
        # The search has said already what can't be read.
        with contextlib.suppress(JournalError):
            for trial, story in story_lines(run, names):
                if stop.is_set():
                    return
                show_story(run, trial, story)


def _search_all(
    runs: Sequence[RunDirectory],
    text: str,
    tell: Callable[[Sequence[Hit], float, str], None],
    stop: threading.Event,
) -> None:
    """Run after run, until all are done or `stop` is set.

    `tell` is called with what was found, the share of the runs that has been looked through, and
    why the rest of a run can't be.
    """
    for done, run in enumerate(runs, start=1):
        trouble = ""
        try:
            for progress in search(run, text):
                if stop.is_set():
                    return
                tell(progress.hits, (done - 1 + progress.share) / len(runs), "")
        except JournalError as error:
            trouble = str(error)
        tell((), done / len(runs), trouble)
