"""Choosing tasks while a run is on, for the run after it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from tbtui.journal.rundir import RunDirectory

if TYPE_CHECKING:
    from tbtui.ui.application import TbtuiApp
    from tbtui.ui.library import Start, TaskLibrary


class Choosing:
    """Opens the task browser over what is known of the shown run's tasks."""

    def __init__(
        self, app: TbtuiApp, library: Callable[[RunDirectory], TaskLibrary] | None
    ) -> None:
        """`library` is called on a thread; without it there are no tasks to browse."""
        self._app = app
        self._library = library

    @property
    def possible(self) -> bool:
        return self._library is not None

    def begin(self) -> None:
        if self._library is not None:
            self._app.run_worker(self._browse(self._library), name="browse", exclusive=True)

    async def _browse(self, library: Callable[[RunDirectory], TaskLibrary]) -> None:
        from tbtui.ui.library import LibraryError
        from tbtui.ui.screens.tasks import TaskBrowser

        app = self._app
        try:
            made = await asyncio.to_thread(library, app.live_run.directory)
        except LibraryError as error:
            app.notify(str(error), severity="warning", timeout=8, markup=False)
            return
        if not isinstance(app.screen, TaskBrowser):
            app.push_screen(TaskBrowser(made, lambda: app.palette, self._offer))

    def _offer(self, start: Start) -> None:
        """A run is on already: its successor's command is copied, not carried out."""
        self._app.copy_to_clipboard(start.command)
        self._app.notify(
            start.command, title="Copied: a run is on already", timeout=15, markup=False
        )
