"""Opens other runs, trials' screens and the task browser."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from tbtui.errors import UserError
from tbtui.journal.rundir import RunDirectory
from tbtui.ui.context import ControllerContext
from tbtui.ui.runs import LiveRun, OpenRun
from tbtui.ui.services import RecordedRun, RunHost

if TYPE_CHECKING:
    from tbtui.ui.base_app import BaseApp, Look
    from tbtui.ui.library import Start, TaskLibrary
    from tbtui.ui.screens.trial import TrialScreen


class OpenRuns:
    """The run on the screen and the app's own, which goes on meanwhile."""

    def __init__(
        self,
        app: ControllerContext,
        own: OpenRun,
        join: Callable[[RunDirectory], RunHost],
        clock: Callable[[], float],
    ) -> None:
        """`join` makes the host of another live run; `clock` gives seconds since the epoch."""
        self.own = own
        """The run that the app was started for."""
        self.shown = own
        """That one, or another one that was opened."""
        self._app = app
        self._join = join
        self._clock = clock

    @property
    def showing_other(self) -> bool:
        """Whether another run than the app's own is shown."""
        return self.shown is not self.own

    def open(self, directory: RunDirectory) -> None:
        """Show another run: a live one is joined, another shown as it ended."""
        from tbtui.journal.rundir import writer
        from tbtui.ui.runs import ReplayedRun

        if directory.path == self.own.run.directory.path:
            self.show(self.own)
        elif directory.path == self.shown.run.directory.path and not self.shown.over:
            self.show(self.shown)
        else:
            try:
                recorded = None if writer(directory) is not None else ReplayedRun(directory)
            except UserError as error:
                self._app.notify(str(error), severity="error", markup=False)
                return
            if recorded is None:
                self._join_live(directory)
            else:
                recorded.playback.go_to(recorded.playback.end)
                self.show(OpenRun(recorded, RecordedRun(directory)))

    def _join_live(self, directory: RunDirectory) -> None:
        opened = OpenRun(LiveRun(directory, self._clock), self._join(directory))
        opened.host.start()
        self.show(opened)
        watch = partial(self._watch, opened)
        self._app.run_worker(watch, name="joined", exclusive=True, group="joined")

    async def _watch(self, opened: OpenRun) -> None:
        """Wait until another run that was joined has ended, or has been left."""
        end = await opened.host.ended()
        if opened is self.shown:
            opened.has_ended(end)
            self._app.notify(
                end.reason, title=f"{opened.run.directory.name} has ended", markup=False
            )

    def show(self, opened: OpenRun) -> None:
        """Show a run from the cockpit on; the one before is left, unless it is the app's own."""
        before, self.shown = self.shown, opened
        if before is not opened and before is not self.own:
            _leave(before)
        self._app.start_over(another=before is not opened)

    async def end(self) -> None:
        """Close all runs, as the app ends."""
        self.own.run.close()
        if self.showing_other:
            _leave(self.shown)
            await self.shown.host.ended()


def _leave(opened: OpenRun) -> None:
    """Another run goes on without us, and others may have its controls."""
    opened.host.interrupt()
    opened.run.close()


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


def browse_tasks(app: ControllerContext, task: str = "") -> None:
    """Open the task browser over what is known of the shown run's tasks, at the named one."""
    if (library := app.services.library) is not None:
        browse = partial(_browse, app, library, task)
        app.run_worker(browse, name="browse", group="browse", exclusive=True)


async def _browse(
    app: ControllerContext, make_library: Callable[[RunDirectory], TaskLibrary], task: str
) -> None:
    from tbtui.ui.screens.tasks import TaskBrowser

    def offer(start: Start) -> None:
        """Copy the command of another run: this app shows one run and starts none."""
        if app.own.end is None and app.own.run.replay is None:
            when = "a run is still going on"
        else:
            when = f"{app.user.keys.name_of('quit')} quits, then start it"
        app.copy_to_clipboard(start.command)
        app.notify(start.command, title=f"Copied: {when}", timeout=15, topic="start")

    try:
        library = await asyncio.to_thread(make_library, app.live_run.directory)
    except UserError as error:
        app.notify(str(error), severity="warning", timeout=8, markup=False)
        return
    if not isinstance(app.screen, TaskBrowser):
        app.push_screen(TaskBrowser(library, lambda: app.palette, offer, starts=False, task=task))
