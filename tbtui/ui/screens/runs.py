"""The list of runs: opens one, compares two, searches all."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import ClassVar

from textual.app import ComposeResult
from textual.message import Message
from textual.widgets import Input
from textual.worker import Worker

from tbtui.journal.rundir import RunDirectory, is_live
from tbtui.journal.summaries import RunSummary, find_runs, newest_first, summarise
from tbtui.ui.input.keys import Scope, bindings
from tbtui.ui.panes.bars import StatusLine
from tbtui.ui.panes.key_bar import KeyBar, WayBack, WordsLine, filter_line
from tbtui.ui.panes.pane import Redraw
from tbtui.ui.panes.runs import ORDERS, RunsPane
from tbtui.ui.screens.base import LiveScreen
from tbtui.ui.textual_seam import Rows

_AGAIN_SEC = 3.0
"""Between two looks at the runs."""


class RunsScreen(LiveScreen):
    """The list of runs, read on a thread every few seconds while it is shown."""

    SCOPES: ClassVar[tuple[Scope, ...]] = ("runs-list", "runs", "everywhere")
    BINDINGS = bindings("runs")
    AUTO_FOCUS = "#runs"
    OVERVIEW = ("runs",)
    COLUMNS: ClassVar[dict[str, tuple[str, ...]]] = {"list": ("runs",)}

    class Wanted(Message):
        """This run is to be shown."""

        def __init__(self, directory: RunDirectory) -> None:
            super().__init__()
            self.directory = directory

    def __init__(self, logs_dirs: Sequence[Path]) -> None:
        super().__init__()
        self._logs_dirs = logs_dirs
        self._known: dict[RunDirectory, tuple[Hashable, RunSummary]] = {}
        """What is known of each, and as what its journal stood then."""
        self._reading: Worker[None] | None = None

    def compose_panes(self) -> ComposeResult:
        yield StatusLine("status")
        with Rows(id="list"):
            yield RunsPane("runs")
        yield KeyBar("keys", *self.SCOPES, back=WayBack("runs-back", "show all"))

    def on_mount(self) -> None:
        super().on_mount()
        self._look()
        self.set_interval(_AGAIN_SEC, self._look)

    def _look(self) -> None:
        if self.is_current and (self._reading is None or self._reading.is_finished):
            self._reading = self.run_worker(self._read(), name="runs")

    async def _read(self) -> None:
        pane = self.query_one(RunsPane)
        pane.take(newest_first(await asyncio.to_thread(self._summaries)))
        self.post_message(Redraw())

    def _summaries(self) -> list[RunSummary]:
        """On a thread. What is known of a run stays true until its journal grows, or its writer
        goes."""
        runs = list(find_runs(self._logs_dirs))
        for run in runs:
            stands = _stands(run)
            if run not in self._known or self._known[run][0] != stands:
                self._known[run] = stands, summarise(run)
        return [self._known[run][1] for run in runs]

    def action_order(self) -> None:
        pane = self.query_one(RunsPane)
        pane.order = ORDERS[(ORDERS.index(pane.order) + 1) % len(ORDERS)]
        self.post_message(Redraw())

    async def action_filter(self) -> None:
        if not self.query(WordsLine):
            line = filter_line(
                self.query_one(RunsPane).words, "words of a name, model, engine, policy or state"
            )
            await self.query_one("#list").mount(line, before="#runs")
        self.query_one("#filter").focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        self.query_one(RunsPane).words = event.value.strip()
        self.post_message(Redraw())

    def on_input_submitted(self) -> None:
        self._close_box()

    def _close_box(self) -> None:
        self.query(WordsLine).remove()
        self.set_focus(self.query_one(RunsPane))

    def action_mark(self) -> None:
        """Mark a run; with another one marked, compare the two."""
        from tbtui.ui.screens.compare import CompareScreen

        pane = self.query_one(RunsPane)
        chosen, marked = pane.chosen, pane.marked
        if chosen is None:
            return
        if marked is None:
            pane.marked = chosen
        else:
            pane.marked = None
            if marked.directory != chosen.directory:
                self.app.push_screen(CompareScreen(marked.directory, chosen.directory))
        self.post_message(Redraw())

    def action_search(self) -> None:
        from tbtui.ui.screens.search import SearchScreen

        listed = self.query_one(RunsPane).listed
        runs = [each.directory for each in listed if each.standing != "unreadable"]
        if not runs:
            self.notify("No run that can be read is listed.", severity="warning")
            return
        self.app.push_screen(SearchScreen(runs))

    def on_runs_pane_opened(self, event: RunsPane.Opened) -> None:
        if event.summary.standing == "unreadable":
            self.notify(event.summary.reason, severity="error", markup=False)
        else:
            self.post_message(self.Wanted(event.summary.directory))

    def action_back(self) -> None:
        pane = self.query_one(RunsPane)
        if self.query(WordsLine) or pane.words:
            pane.words = ""
            self._close_box()
            self.post_message(Redraw())
        elif pane.marked is not None:
            pane.marked = None
            self.post_message(Redraw())
        else:
            self.dismiss()


def _stands(run: RunDirectory) -> Hashable:
    """Another value than before where the journal has grown, or somebody has begun or ceased to
    write it."""
    sizes = []
    for path in (run.database, run.database.with_name(f"{run.database.name}-wal")):
        with contextlib.suppress(OSError):
            found = path.stat()
            if found.st_size:
                sizes.append((found.st_size, found.st_mtime_ns))
    return is_live(run), *sizes
