"""Opens, joins, shows and leaves other runs than the app's own."""

from __future__ import annotations

from collections.abc import Callable

from tbtui.journal.rundir import RunDirectory
from tbtui.ui.context import ControllerContext
from tbtui.ui.host import RecordedRun, RunHost
from tbtui.ui.runs import LiveRun, OpenRun


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
        """That one, or another one that somebody opened."""
        self._app = app
        self._join = join
        self._clock = clock

    @property
    def showing_other(self) -> bool:
        """Whether another run than the app's own is shown."""
        return self.shown is not self.own

    def open(self, directory: RunDirectory) -> None:
        """Show another run: a live one is joined, another shown as it ended."""
        from tbtui.journal.database import JournalError
        from tbtui.journal.rundir import RunDirectoryError, writer
        from tbtui.ui.runs import ReplayedRun

        if directory.path == self.own.run.directory.path:
            self.show(self.own)
        elif directory.path == self.shown.run.directory.path and not self.shown.over:
            self.show(self.shown)
        else:
            try:
                run = None if writer(directory) is not None else ReplayedRun(directory)
            except (JournalError, RunDirectoryError) as error:
                self._app.notify(str(error), severity="error", markup=False)
                return
            if run is None:
                self._join_live(directory)
            else:
                run.playback.go_to(run.playback.end)
                self.show(OpenRun(run, RecordedRun(directory)))

    def _join_live(self, directory: RunDirectory) -> None:
        visit = OpenRun(LiveRun(directory, self._clock), self._join(directory))
        visit.host.start()
        self.show(visit)
        self._app.run_worker(self._watch(visit), name="joined", exclusive=True, group="joined")

    async def _watch(self, visit: OpenRun) -> None:
        """Wait until another run that was joined has ended, or has been left."""
        end = await visit.host.ended()
        if visit is self.shown:
            visit.has_ended(end)
            self._app.notify(end.reason, title=f"{visit.run.directory.name} is over", markup=False)

    def show(self, visit: OpenRun) -> None:
        """Show a run from the cockpit on; the one before is left, unless it is the app's own."""
        before, self.shown = self.shown, visit
        if before is not visit and before is not self.own:
            _leave(before)
        self._app.start_over(another=before is not visit)

    async def end(self) -> None:
        """Close all runs, as the app ends."""
        self.own.run.close()
        if self.showing_other:
            _leave(self.shown)
            await self.shown.host.ended()


def _leave(visit: OpenRun) -> None:
    """Another run goes on without us, and others may have its controls."""
    visit.host.interrupt()
    visit.run.close()
