"""Starts the app's own run, waits for its end, stops it, and leaves the app."""

from __future__ import annotations

import asyncio
import time
from math import inf
from typing import TYPE_CHECKING, Any, Literal

from textual.worker import Worker, WorkerState

from tbtui.invocation import to_type
from tbtui.journal.commands import RUN, Command
from tbtui.journal.database import JournalError
from tbtui.ui.context import ControllerContext
from tbtui.ui.screens.base import LiveScreen
from tbtui.ui.services import RunEnd
from tbtui.view.times import Outlook
from tbtui.view.waiting import waiting_for

if TYPE_CHECKING:
    from tbtui.ui.screens.dialogs import Leaving
    from tbtui.ui.screens.finale import Next

FINISHED, FAILED, REFUSED, INTERRUPTED = 0, 1, 2, 130
"""Exit codes."""
_SAME_SIGNAL_SEC = 1.0
"""A signal to all of a shell's job comes once more from each process that passes it on."""


class Lifecycle:
    """Starts, stops and leaves the app's own run. The engine has ended when the app ends, unless a
    person insists on leaving at once."""

    ENGINE = "engine"
    """Name of the worker that waits for it."""

    def __init__(self, app: ControllerContext) -> None:
        self.left = False
        """The person left while the run went on, or was over before."""
        self.insisted = False
        """The person left before the engine had cleaned up."""
        self.unattended = False
        """The app leaves, and its own run goes on: the terminal has gone, or a person detached."""
        self.detached = False
        """A person detached: the terminal is still there."""
        self.follow_up: Literal["", "eval", "replay"] = ""
        """Command on the run that takes the app's place when it has been left."""
        self._app = app
        self._own = app.own
        self._leaving = False
        self._signalled_at = -inf
        self._engine: asyncio.Future[RunEnd] | None = None

    @property
    def end(self) -> RunEnd | None:
        """How the run ended; None while it goes on."""
        return self._own.end

    @property
    def exit_code(self) -> int:
        if self.detached or (self.left and self._own.host.outlives):
            # Nobody wanted it to end.
            return FINISHED
        if self.insisted or self.end is None:
            return INTERRUPTED
        codes = {"finished": FINISHED, "failed": FAILED, "refused": REFUSED}
        return codes.get(self.end.status, INTERRUPTED)

    # Its engine

    def begin(self) -> None:
        """Start the engine."""
        self._own.host.start()
        self._engine = asyncio.ensure_future(self._own.host.ended())
        # In a group of its own: an exclusive worker of the app cancels the others of its group.
        self._app.run_worker(
            self._watch(), name=self.ENGINE, group=self.ENGINE, exit_on_error=False
        )

    async def _watch(self) -> RunEnd:
        assert self._engine is not None
        # Textual cancels its workers when the app ends; the wait for the engine goes on.
        return await asyncio.shield(self._engine)

    def engine_worker_changed(self, worker: Worker[Any]) -> None:
        """Handle the end of the worker that waits for the engine."""
        if worker.state is WorkerState.SUCCESS:
            assert isinstance(worker.result, RunEnd)
            self._ended(worker.result)
        elif worker.state is WorkerState.ERROR:
            self._ended(RunEnd("failed", f"the engine broke: {worker.error!r}"))

    def _ended(self, end: RunEnd) -> None:
        app = self._app
        self._own.has_ended(end)
        if self._leaving or end.status == "refused":
            self._leave_now()
            return
        app.tick()
        app.call_for_attention()
        if end.status == "failed":
            app.notify(
                end.reason, title="The run has failed", severity="error", timeout=12, markup=False
            )
        elif end.status == "finished":
            app.run_worker(self._show_finale(), name="finale")

    async def _show_finale(self) -> None:
        """Show what a run has come to, if it has trained and the person is at no dialog."""
        from tbtui.ui.screens.finale import FinaleDialog, finale
        from tbtui.view.ending import read_ending

        app, run = self._app, self._own.run
        try:
            ending = await asyncio.to_thread(read_ending, self._own.host.directory)
        except JournalError:
            ending = None  # the notes have it
        found = ending and finale(ending, Outlook(run.state, run.now))
        if found and isinstance(app.screen, LiveScreen) and app.shown is self._own:
            app.push_screen(FinaleDialog(found), self._go_on)
        else:
            quits = f"{app.user.keys.name_of('quit')} quits"
            app.notify(f"Look around; {quits}.", title="The run has finished", markup=False)

    def _go_on(self, what: Next | None) -> None:
        """Carry out what was chosen when the run had ended."""
        if what == "compare":
            self._app.call_later(self._app.action_runs)
        elif what is not None:
            self.follow_up = "" if what == "quit" else what
            self._leave_now()

    async def clean_up(self) -> None:
        """End the engine after the app has ended, for whatever reason."""
        if self._engine is None or self.insisted or self.unattended:
            return
        if not self._engine.done():
            self._own.host.interrupt()
        self._own.has_ended(await self._engine)

    # Leaving it

    def leave(self) -> None:
        """Leave the app; where a run would be stopped, ask first."""
        if self.end is not None or self._own.host.outlives:
            self._leave_now()
        elif not self._leaving:
            from tbtui.ui.screens.dialogs import LeaveDialog

            def running() -> int:
                return len(self._own.run.state.running_trials())

            self._app.push_screen(
                LeaveDialog(running, self._has_ended, self._detachable, self._other_way),
                self._answered,
            )

    def _detachable(self) -> bool:
        """Whether the run can go on without the app; one that hasn't begun may yet be refused."""
        return self._app.services.detach is not None and self._own.run.state.started_at is not None

    def _other_way(self) -> str:
        """How to leave a run that is to go on, where no key does and its settings let it."""
        if self._detachable() or self._own.run.state.settings.get("on_hangup") != "detach":
            return ""
        return (
            "To keep it running, close this terminal's window instead;"
            f" {to_type('attach', self._own.run.directory.path)} joins it."
        )

    def _has_ended(self) -> bool:
        return self.end is not None

    def _answered(self, answer: Leaving | None) -> None:
        if answer == "stop":
            self._stop()
        elif answer == "detach":
            self._detach()

    def _detach(self) -> None:
        """Leave, and let the run go on."""
        if self.end is None and not self._leaving:
            self.unattended = self.detached = True
            state, host = self._own.run.state, self._own.host
            if state.step < 1 and state.settings.get("pace_sec") and not host.read_only:
                # It is slow for people who watch.
                arguments = {"pace_sec": 0}
                host.submit(Command("set", RUN, reason="detached", arguments=arguments))
        self._leave_now()

    def interrupt(self) -> None:
        """Stop without asking; a second time leave without waiting."""
        if self.end is not None or self._own.host.outlives:
            self._leave_now()
        elif self._leaving:
            self.insisted = True
            self._leave_now()
        else:
            self._stop()

    def ask_again(self) -> None:
        """Leave as a person asks for it again and again: ask, then stop, then don't wait."""
        from tbtui.ui.screens.dialogs import LeaveDialog

        if self._leaving:
            self.interrupt()
        elif isinstance(dialog := self._app.screen, LeaveDialog):
            dialog.dismiss("stop")
        else:
            self.leave()

    def interrupt_from_outside(self) -> None:
        """End the run for a signal: who sends one can't be asked."""
        now = time.monotonic()
        if now - self._signalled_at > _SAME_SIGNAL_SEC:
            self._signalled_at = now
            self._app.call_later(self.interrupt)

    def hang_up(self) -> None:
        """Leave because the terminal has gone. Idempotent."""
        if self._engine is not None and not self._engine.done() and not self.unattended:
            # A run that is being stopped is not detached.
            self.unattended = not self._leaving and self._own.host.hang_up()
            if not self.unattended:
                self._own.host.interrupt()
        self._app.exit(INTERRUPTED, return_code=INTERRUPTED)

    def _stop(self) -> None:
        self._leaving = True
        if self.end is not None:
            self._leave_now()
            return
        self._own.host.interrupt()
        self._app.redraw_all()

    def _leave_now(self) -> None:
        self.left = self.end is None
        self._app.exit(self.exit_code, return_code=self.exit_code)

    # What the status line says of it

    @property
    def badge(self) -> str:
        if self.end is not None:
            return ""
        host = self._own.host
        return host.read_only or ("attached" if host.outlives else "")

    @property
    def ending(self) -> str:
        """How the run is ending, and which key quits; empty while it goes on."""
        keys, run = self._app.user.keys, self._own.run
        if self.end is not None:
            quits = f"{keys.name_of('quit')} quits"
            return " · ".join(filter(None, (self._own.ending, quits)))
        if self._leaving:
            quits = f"{keys.name_of('interrupt')} quits at once"
            if run.state.status is not None:
                return quits
            trials = len(run.state.live_trials())
            what = f"{trials} trials" if trials else waiting_for(Outlook(run.state, run.now))
            return f"cleaning up: {what} ({quits})"
        return ""
