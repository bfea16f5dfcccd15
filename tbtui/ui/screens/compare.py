"""Two runs compared."""

from __future__ import annotations

import asyncio
from typing import ClassVar

from textual.app import ComposeResult

from tbtui.journal.rundir import RunDirectory
from tbtui.ui.input.keys import Scope, bindings
from tbtui.ui.panes.bars import StatusLine
from tbtui.ui.panes.comparison import (
    ComparedCurves,
    ComparedPane,
    ComparedSettings,
    ComparedTasks,
)
from tbtui.ui.panes.key_bar import KeyBar
from tbtui.ui.panes.pane import Redraw
from tbtui.ui.screens.base import LiveScreen
from tbtui.ui.textual_seam import Columns, Rows


class CompareScreen(LiveScreen):
    """Two runs side by side: `second` compared with `first`."""

    SCOPES: ClassVar[tuple[Scope, ...]] = ("compare", "everywhere")
    BINDINGS = bindings("compare")
    AUTO_FOCUS = "#compared-tasks"
    OVERVIEW = ("compared-curves", "compared-tasks")
    PANES: ClassVar[dict[int, tuple[str, ...]]] = {
        1: ("compared-curves",),
        2: ("compared-tasks",),
        3: ("compared-settings",),
    }
    COLUMNS: ClassVar[dict[str, tuple[str, ...]]] = {
        "compared-left": ("compared-curves", "compared-settings"),
        "compared-right": ("compared-tasks",),
    }

    def __init__(self, first: RunDirectory, second: RunDirectory) -> None:
        super().__init__()
        self._runs = first, second

    def compose_panes(self) -> ComposeResult:
        yield StatusLine("status")
        with Columns(id="compared"):
            with Rows(id="compared-left"):
                yield ComparedCurves("compared-curves")
                yield ComparedSettings("compared-settings")
            with Rows(id="compared-right"):
                yield ComparedTasks("compared-tasks")
        yield KeyBar("keys", *self.SCOPES)

    def on_mount(self) -> None:
        super().on_mount()
        self.run_worker(self._read(), name="compare", exclusive=True)

    async def _read(self) -> None:
        from tbtui.journal.database import JournalError
        from tbtui.view.reading import compare_runs

        try:
            comparison = await asyncio.to_thread(compare_runs, *self._runs)
        except JournalError as error:
            for pane in self.query(ComparedPane):
                pane.trouble = str(error)
        else:
            for pane in self.query(ComparedPane):
                pane.comparison = comparison
            for trouble in comparison.troubles:
                self.app.notify(trouble, severity="warning", markup=False)
        self.post_message(Redraw())

    def action_back(self) -> None:
        if self.full:
            self.action_full(0)
        else:
            self.dismiss()
