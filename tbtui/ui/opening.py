"""Opens the screens that take long to make: a trial's, and the task browser."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tbtui.journal.rundir import RunDirectory

if TYPE_CHECKING:
    from tbtui.ui.base_app import BaseApp, Look
    from tbtui.ui.context import ControllerContext
    from tbtui.ui.library import Start, TaskLibrary
    from tbtui.ui.screens.trial import TrialScreen


class TrialScreens:
    """Makes a trial's screen before it is asked for: a quarter of what `enter` would wait for.

    One that has been taken is shown once, as any other, and goes when it is left.
    """

    def __init__(self, app: BaseApp[Any]) -> None:
        self._app = app
        self._screen: TrialScreen | None = None
        self._look: Look | None = None
        """That it was styled for."""

    def prepare(self) -> bool:
        """Make a screen if none is ready, and return whether it did: 20 ms of the loop."""
        from tbtui.ui.screens.trial import TrialScreen

        if self._screen is not None and self._look == self._app.styled_for:
            return False
        self._discard()
        self._screen, self._look = TrialScreen(), self._app.styled_for
        self._app.style_screen(self._screen)
        return True

    def take(self) -> TrialScreen:
        """Return the screen that was made, or else a new one."""
        from tbtui.ui.screens.trial import TrialScreen

        if self._look != self._app.styled_for:
            self._discard()
        taken, self._screen = self._screen, None
        return taken or TrialScreen()

    def _discard(self) -> None:
        if self._screen is not None:
            self._screen.remove()
            self._screen = None


class TaskBrowsing:
    """Opens the task browser over what is known of the shown run's tasks."""

    def __init__(self, app: ControllerContext) -> None:
        self._app = app

    def begin(self) -> None:
        if (library := self._app.services.library) is not None:
            self._app.run_worker(self._browse(library), name="browse", exclusive=True)

    async def _browse(self, library: Callable[[RunDirectory], TaskLibrary]) -> None:
        from tbtui.errors import UserError
        from tbtui.ui.screens.tasks import TaskBrowser

        app = self._app
        try:
            made = await asyncio.to_thread(library, app.live_run.directory)
        except UserError as error:
            app.notify(str(error), severity="warning", timeout=8, markup=False)
            return
        if not isinstance(app.screen, TaskBrowser):
            browser = TaskBrowser(made, lambda: app.palette, self._offer, starts=False)
            app.push_screen(browser)

    def _offer(self, start: Start) -> None:
        """The app is one run's: its successor's command is copied, not carried out."""
        app = self._app
        app.copy_to_clipboard(start.command)
        leaves = f"{app.user.keys.name_of('quit')} leaves, then start it"
        app.notify(
            start.command,
            title=f"Copied: {'a run is on already' if self._run_is_on else leaves}",
            timeout=15,
            topic="start",
        )

    @property
    def _run_is_on(self) -> bool:
        return self._app.run_end is None and self._app.own_run.replay is None
