"""The list of runs: opens one, compares two, searches all."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Iterable, Sequence
from pathlib import Path
from typing import ClassVar

from textual.app import ComposeResult
from textual.message import Message
from textual.widgets import Input
from textual.worker import Worker

from tbtui.journal.rundir import (
    RunDirectory,
    RunDirectoryError,
    add_note,
    journal_stands,
    notes_file,
    rename_run,
)
from tbtui.ui.context import run_app_of
from tbtui.ui.input.keys import Scope, bindings
from tbtui.ui.panes.bars import StatusLine
from tbtui.ui.panes.key_bar import KeyBar, WayBack, WordsLine, filter_line
from tbtui.ui.panes.pane import Frame, Redraw
from tbtui.ui.panes.run_preview import RunPreviewPane
from tbtui.ui.panes.runs import ORDERS, RunsPane
from tbtui.ui.screens.base import LiveScreen
from tbtui.ui.textual_seam import Columns, Rows
from tbtui.view.preview import RunPreview, read_preview
from tbtui.view.runs import RunList

_AGAIN_SEC = 3.0
"""Between two looks at the runs."""


class RunsScreen(LiveScreen):
    """The list of runs, read on a thread every few seconds while it is shown."""

    SCOPES: ClassVar[tuple[Scope, ...]] = ("runs-list", "runs", "everywhere")
    BINDINGS = bindings("runs")
    AUTO_FOCUS = "#runs"
    OVERVIEW = ("runs", "run-preview")
    PANES: ClassVar[dict[int, tuple[str, ...]]] = {1: ("runs",), 2: ("run-preview",)}
    COLUMNS: ClassVar[dict[str, tuple[str, ...]]] = {
        "list": ("runs",),
        "preview": ("run-preview",),
    }

    class Wanted(Message):
        """This run is to be shown."""

        def __init__(self, directory: RunDirectory) -> None:
            super().__init__()
            self.directory = directory

    def __init__(self, logs_dirs: Sequence[Path]) -> None:
        super().__init__()
        self._list = RunList(logs_dirs)
        self._reading: Worker[None] | None = None
        self._previews: dict[RunDirectory, tuple[Hashable, RunPreview]] = {}
        """What was read of each, and as what its journal and notes stood then."""
        self._previewing: Worker[None] | None = None

    def compose_panes(self) -> ComposeResult:
        yield StatusLine("status")
        with Columns(id="runs-columns"):
            with Rows(id="list"):
                yield RunsPane("runs")
            with Rows(id="preview"):
                yield RunPreviewPane("run-preview", run_app_of(self).services.defaults)
        yield KeyBar("keys", *self.SCOPES, back=WayBack("runs-back", "show all"))

    def on_mount(self) -> None:
        super().on_mount()
        self._look()
        self.set_interval(_AGAIN_SEC, self._look)

    def _look(self) -> None:
        if self.is_current and (self._reading is None or self._reading.is_finished):
            self._reading = self.run_worker(self._read(self.query_one(RunsPane)), name="runs")

    async def _read(self, pane: RunsPane) -> None:
        found = await asyncio.to_thread(self._list.read)
        pane.take(found)
        self._preview()
        self.post_message(Redraw())

    def show(self, frame: Frame, beat: int) -> None:
        if self.query_one(RunsPane).chosen != self.query_one(RunPreviewPane).summary:
            self._preview()
        super().show(frame, beat)

    def _preview(self) -> None:
        """Show what is known of the chosen run, and read it again if it has changed."""
        pane, chosen = self.query_one(RunPreviewPane), self.query_one(RunsPane).chosen
        if pane.summary is None or chosen is None or pane.summary.directory != chosen.directory:
            known = self._previews.get(chosen.directory) if chosen is not None else None
            pane.preview = known and known[1]
        pane.summary = chosen
        if chosen is not None and (self._previewing is None or self._previewing.is_finished):
            self._previewing = self.run_worker(self._read_preview(pane), name="preview")

    async def _read_preview(self, pane: RunPreviewPane) -> None:
        """Read until it is the chosen run that has been read."""
        while (summary := pane.summary) is not None:
            preview = await asyncio.to_thread(self._read_one, summary.directory)
            if pane.summary == summary:
                if preview is not pane.preview:
                    pane.preview = preview
                    self.post_message(Redraw())
                return

    def _read_one(self, run: RunDirectory) -> RunPreview:
        """On a thread."""
        notes = notes_file(run)
        stands = journal_stands(run), notes.stat().st_mtime_ns if notes.is_file() else 0
        if run not in self._previews or self._previews[run][0] != stands:
            self._previews[run] = stands, read_preview(run)
        return self._previews[run][1]

    def idle_keys(self) -> Iterable[str]:
        pane = self.query_one(RunsPane)
        chosen = pane.chosen
        if chosen is None:
            yield from ("open-run", "runs-note", "runs-rename", "runs-compare", "runs-chart")
            yield "runs-search"
        elif chosen.standing == "live":
            yield "runs-rename"
        elif chosen.standing == "unreadable":
            yield from ("open-run", "runs-chart")

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
        self.set_focus(self.query_one("#filter"))

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

    def action_chart_mark(self) -> None:
        """Draw the chosen run in charts beside the shown one, or no more."""
        chosen, marked = self.query_one(RunsPane).chosen, run_app_of(self).marked_runs
        if chosen is None or chosen.standing == "unreadable":
            return
        if chosen.directory in marked:
            marked.remove(chosen.directory)
        else:
            marked.append(chosen.directory)
        self.query_one(RunsPane).action_move(1)
        self.post_message(Redraw())

    def action_note(self) -> None:
        """Add a note to the chosen run."""
        if (chosen := self.query_one(RunsPane).chosen) is None:
            return
        from tbtui.ui.screens.dialogs import ReasonDialog

        def add(text: str | None) -> None:
            if text:
                self._keep(lambda: add_note(chosen.directory, text))

        dialog = ReasonDialog(
            f"A note on {chosen.directory.name}", f"kept in {notes_file(chosen.directory)}", "note"
        )
        self.app.push_screen(dialog, add)

    def action_rename(self) -> None:
        """Give the chosen run another name."""
        if (chosen := self.query_one(RunsPane).chosen) is None:
            return
        from tbtui.ui.screens.dialogs import ReasonDialog

        if chosen.standing == "live":
            self.notify("A live run keeps its name: rename it when it is over.", markup=False)
            return

        def rename(name: str | None) -> None:
            if name:
                self._keep(lambda: self._rename(chosen.directory, name))

        dialog = ReasonDialog(
            f"Rename {chosen.directory.name}",
            "The old name stays as a link, so that what refers to the run finds it.",
            "new name",
        )
        self.app.push_screen(dialog, rename)

    def _rename(self, run: RunDirectory, name: str) -> None:
        marked = run_app_of(self).marked_runs
        renamed = rename_run(run, name)
        marked[:] = [renamed if each == run else each for each in marked]
        self.query_one(RunsPane).choose(renamed)

    def _keep(self, change: Callable[[], None]) -> None:
        """Make a change to a run's directory; say why it can't be made."""
        try:
            change()
        except RunDirectoryError as error:
            self.notify(str(error), severity="error", markup=False)
        self._look()

    def action_search(self) -> None:
        from tbtui.ui.screens.search import SearchScreen

        listed = self.query_one(RunsPane).listed
        runs = [each.directory for each in listed if each.standing != "unreadable"]
        if not runs:
            self.notify("No readable run is listed.", severity="warning")
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
        elif self.full:
            self.action_full(0)
        else:
            self.dismiss()
