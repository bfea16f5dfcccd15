"""The Textual app: shows a run and hands commands to it. It knows nothing of what runs it."""

from __future__ import annotations

import asyncio
import gc
import importlib
import sqlite3
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from textual.worker import Worker, WorkerState

from tbtui.journal.rundir import RunDirectory
from tbtui.journal.vocabulary import CommandVerb
from tbtui.ui.attention import Attention
from tbtui.ui.base_app import BaseApp
from tbtui.ui.host import RunEnd, RunHost
from tbtui.ui.keys import bindings
from tbtui.ui.live import LiveRun
from tbtui.ui.pane import Frame, Redraw
from tbtui.ui.panes.grid import TrialGrid
from tbtui.ui.panes.transport import TransportLine
from tbtui.ui.screens.base import LiveScreen, ScopedScreen
from tbtui.ui.screens.cockpit import Cockpit
from tbtui.ui.screens.commands import CommandScreen
from tbtui.ui.screens.trial import TrialScreen
from tbtui.ui.screens.typing import TypingScreen
from tbtui.ui.selection import Selection
from tbtui.ui.settings import frames_per_second
from tbtui.ui.steering import Steering
from tbtui.ui.tour import tour_lines
from tbtui.ui.transport import Go, Transport
from tbtui.view.current import current_trials
from tbtui.view.listing import Listing
from tbtui.view.state import TrialView
from tbtui.view.waiting import waiting_for

if TYPE_CHECKING:
    from tbtui.ui.library import Start, TaskLibrary
    from tbtui.ui.replayed import ReplayedRun
    from tbtui.ui.screens.runs import RunsScreen
    from tbtui.ui.screens.search import SearchScreen
    from tbtui.ui.trial_tools import TrialTools
    from tbtui.ui.user import User

BEATS = 10
"""A second, of which panes are drawn at every nth."""
JOURNAL_BUDGET_SEC = 0.012
CATCH_UP_BUDGET_SEC = 0.06
"""While the journal is far ahead: half of the loop's time."""
TERMINAL_BUDGET_SEC = 0.010
MOVE_BUDGET_SEC = 0.1
"""After somebody has moved the clock of a recorded run: for its journal, and for its terminals."""

FINISHED, FAILED, REFUSED, INTERRUPTED = 0, 1, 2, 130
"""Exit codes."""


class TbtuiApp(BaseApp[int]):
    """Shows the host's run. `return_value` is the process's exit code."""

    BINDINGS = bindings("everywhere", "replay")

    def __init__(
        self,
        host: RunHost,
        *,
        clock: Callable[[], float] = time.time,
        live: bool = True,
        theme_dirs: Sequence[Path] | None = None,
        theme: str | None = None,
        user: User | None = None,
        fps: int | None = None,
        still_at: float | None = None,
        recorded: ReplayedRun | None = None,
        trial: str | None = None,
        monotonic: Callable[[], float] = time.monotonic,
        logs_dirs: Sequence[Path] = (),
        library: Callable[[], TaskLibrary] | None = None,
        trial_tools: Callable[[], TrialTools] | None = None,
    ) -> None:
        """`clock` gives seconds since the epoch. Without `live` no timer runs: call `tick`.

        With `still_at` the run is shown as it stood that many seconds after its start; with
        `recorded` the host's run is replayed by that. `trial` is open from the start.
        `logs_dirs` have the runs that can be opened; the directory that the host's run is in
        always does. `library` makes what the task browser shows; it is called on a thread.
        So is `trial_tools`, for what exports trials and reads prompts. `user` is whose themes,
        keys and settings are used; `fps` frames a second, from 1 to 10, go before theirs.
        """
        super().__init__(user=user, theme_dirs=theme_dirs, theme=theme)
        self.host = host
        self.run_end: RunEnd | None = None
        """How the engine ended; None while it runs."""
        self.left_it = False
        """Somebody left while the run went on, or was over before."""
        self.insisted = False
        """Somebody left before the engine had cleaned up."""
        self.own_run = recorded or LiveRun(host.directory, clock, still_at=still_at)
        """The host's."""
        self.live_run = self.own_run
        """What is shown: the host's run, or another one that somebody opened."""
        self.transport = Transport(self)
        self.logs_dirs = tuple(dict.fromkeys((host.directory.path.parent, *logs_dirs)))
        self._clock = clock
        self._monotonic = monotonic
        self._first_trial = trial
        self._library = library
        self.trial_tools = trial_tools
        self.selection = Selection()
        self.listing = Listing(order=self.user.preferences.order)
        self.steering = Steering(self)
        self.attention = Attention(
            self._write_escape, self.user.settings.notify, from_start=not host.outlives
        )
        self._live = live
        self._beat = 0
        self._fps = fps or frames_per_second(str(self.user.settings.fps))
        self._leaving = False
        self._readable = not live
        """What reads the journal has been imported."""
        self._terminals = not live
        """What shows terminals has been imported."""
        self._engine: asyncio.Future[RunEnd] | None = None

    # Life

    def on_mount(self) -> None:
        self.push_screen(Cockpit(self.listing))
        if self._first_trial is not None:
            self.push_screen(TrialScreen(self._first_trial))
        self.report_problems()
        if self.user.remembered_in is not None and not self.user.preferences.toured:
            self.action_tour()
            self.remember(toured=True)
        self.call_after_refresh(self._begin)

    def _begin(self) -> None:
        """After the first frame: start the engine and the clock."""
        self.host.start()
        self._engine = asyncio.ensure_future(self.host.ended())
        self.run_worker(self._watch_engine(), name="engine", exit_on_error=False)
        if self._live:
            self.run_worker(self._prepare(), name="prepare", exit_on_error=False)
            self.set_interval(1 / self._fps, self.tick)
            # What has been made by now stays: let the collector look at new things only.
            gc.enable()
            gc.collect()
            gc.freeze()
            gc.set_threshold(50_000, 20, 50)

    async def _watch_engine(self) -> RunEnd:
        assert self._engine is not None
        # Textual cancels its workers when the app ends; the wait for the engine goes on.
        return await asyncio.shield(self._engine)

    async def end_engine(self) -> None:
        """After the app has ended, for whatever reason: no engine is left behind."""
        if self._engine is None or self.insisted:
            return
        if not self._engine.done():
            self.host.interrupt()
        self.run_end = await self._engine

    def interrupt_from_outside(self) -> None:
        """A signal came: the same as ctrl-c."""
        self.call_later(self.action_interrupt)

    def hang_up(self) -> None:
        """The terminal has gone: nobody is left to show anything to."""
        if self._engine is not None and not self._engine.done():
            self.host.interrupt()
        self.exit(INTERRUPTED, return_code=INTERRUPTED)

    @property
    def crash(self) -> Exception | None:
        """What broke the app itself."""
        return self._exception

    async def _prepare(self) -> None:
        """Import what the first frame could do without; a thread keeps the screen responsive."""
        await asyncio.to_thread(importlib.import_module, "tbtui.journal.reader")
        await asyncio.to_thread(importlib.import_module, "tbtui.view.fold")
        self._readable = True
        await asyncio.to_thread(importlib.import_module, "tbtui.ui.emulator")
        self._terminals = True

    def on_worker_state_changed(self, event: Worker.StateChanged) -> None:
        worker: Worker[Any] = event.worker
        if worker.name != "engine":
            if event.state is WorkerState.ERROR and worker.error is not None:
                raise worker.error
            return
        if event.state is WorkerState.SUCCESS:
            assert isinstance(worker.result, RunEnd)
            self._engine_ended(worker.result)
        elif event.state is WorkerState.ERROR:
            self._engine_ended(RunEnd("failed", f"the engine broke: {worker.error!r}"))

    def _engine_ended(self, end: RunEnd) -> None:
        self.run_end = end
        if self._leaving or end.status == "refused":
            self._leave_now()
            return
        self.tick()
        self._call_for_attention()
        if end.status == "failed":
            self.notify(
                end.reason, title="The run has failed", severity="error", timeout=12, markup=False
            )
        elif end.status == "finished":
            self.notify("Look around; q leaves.", title="The run is finished", markup=False)

    def _leave_now(self) -> None:
        self.left_it = self.run_end is None
        self.exit(self.exit_code, return_code=self.exit_code)

    @property
    def exit_code(self) -> int:
        if self.left_it and self.host.outlives:
            # Nobody wanted it to end.
            return FINISHED
        if self.insisted or self.run_end is None:
            return INTERRUPTED
        codes = {"finished": FINISHED, "failed": FAILED, "refused": REFUSED}
        return codes.get(self.run_end.status, INTERRUPTED)

    async def on_unmount(self) -> None:
        self.live_run.close()
        self.own_run.close()

    # Frames

    def tick(self) -> None:
        """Read on and draw; the one timer calls it as often as there are frames, ten times a
        second unless fewer were asked for."""
        earlier = self._beat
        self._beat += round(BEATS / self._fps)
        another_second = self._beat // BEATS != earlier // BEATS
        run = self.live_run
        self.transport.pass_time(self._monotonic())
        if self._readable:
            run.follow(CATCH_UP_BUDGET_SEC if run.behind else JOURNAL_BUDGET_SEC)
            if run is not self.own_run:
                self.own_run.follow(JOURNAL_BUDGET_SEC)
        if another_second:
            self._call_for_attention()
        if run.behind and not another_second:
            # Far behind: the time goes into reading on; a frame a second says how far it is.
            return
        self._show(self._beat)

    def _call_for_attention(self) -> None:
        own = self.own_run
        if own.replay is None and not own.behind and own.state.run:
            self.attention.look(own.state)

    def _write_escape(self, escape: str) -> None:
        if self._driver is not None:
            self._driver.write(escape)

    def redraw_all(self) -> None:
        """Draw every pane now."""
        self._show(0)

    def on_redraw(self, event: Redraw) -> None:
        self.redraw_all()

    def moved(self) -> None:
        """Somebody moved the clock of a recorded run: show the place at once."""
        if self._readable:
            self.live_run.follow(MOVE_BUDGET_SEC)
        self._show(0, MOVE_BUDGET_SEC)

    def _show(self, beat: int, terminal_budget: float = TERMINAL_BUDGET_SEC) -> None:
        if not self.screen_stack:
            return
        self.steering.tell(self.own_run.state)
        self.steering.tell_controls()
        frame = self._frame()
        if self._terminals:
            self.live_run.follow_terminals(
                frame.selected.trial if frame.selected else None,
                self._visible_trials(),
                terminal_budget,
            )
        # A dialog lies over a screen that goes on; a screen under another one stands still.
        for screen in reversed(self.screen_stack):
            if isinstance(screen, ScopedScreen):
                if isinstance(screen, LiveScreen) and screen.is_mounted:
                    screen.show(frame, beat)
                break

    def _frame(self) -> Frame:
        run = self.live_run
        shown = current_trials(run.state)
        chosen = None if self.selection.following else self.selection.trial
        listed = self.listing.chosen_from(shown, run.state, chosen)
        opened = self.opened_trial
        if opened is not None:
            selected = run.state.trials.get(opened)
        else:
            selected = self.selection.settle(listed, run.state.trials, run.now)
        return Frame(
            run,
            run.now,
            self.palette,
            shown,
            selected,
            listed,
            self.listing,
            following=opened is None and self.selection.following,
            badge=self._badge(),
            ending=self._ending() if run is self.own_run else "",
        )

    def _badge(self) -> str:
        name = self.live_run.directory.name
        if self.live_run.replay is not None:
            return f"replay {name}"
        if self.live_run is not self.own_run:
            return f"watching {name}"
        if self.run_end is not None:
            return ""
        return self.host.read_only or ("attached" if self.host.outlives else "")

    def _ending(self) -> str:
        if self.run_end is not None:
            if self.own_run.state.status is None:
                # It ended before it could say so in the journal.
                return f"{self.run_end.status}: {self.run_end.reason} · q leaves"
            return "q leaves"
        if self._leaving:
            state = self.own_run.state
            trials = len(state.live_trials())
            what = f"{trials} trials" if trials else waiting_for(state, self.own_run.now)
            return f"cleaning up: {what} (^c leaves at once)"
        return ""

    @property
    def opened_trial(self) -> str | None:
        """The trial that the screen is about, if it is about one."""
        for screen in reversed(self.screen_stack):
            if isinstance(screen, LiveScreen) and screen.trial is not None:
                return screen.trial
        return None

    def _visible_trials(self) -> list[str]:
        if not isinstance(self.screen, Cockpit) or not self.screen.is_mounted:
            return []
        grid = self.screen.query_one(TrialGrid)
        return grid.visible_trials() if grid.display else []

    # What people do

    def on_trial_grid_selected(self, event: TrialGrid.Selected) -> None:
        self.selection.choose(event.trial)
        self._show(0)

    def action_follow(self) -> None:
        self.selection.follow()
        self._show(0)

    def _chosen(self) -> TrialView | None:
        """The trial that a key is meant for; from now on the selection stays with it."""
        trial = self._frame().selected
        if trial is not None and self.opened_trial is None:
            self.selection.choose(trial.trial)
        return trial

    def action_open_trial(self) -> None:
        if (trial := self._chosen()) is not None:
            self.push_screen(TrialScreen(trial.trial))

    def action_open_group(self) -> None:
        """The selected or opened trial's group."""
        from tbtui.ui.screens.group import GroupScreen

        if (trial := self._chosen()) is not None:
            self.push_screen(GroupScreen(trial.trial))

    def action_steer(self, verb: CommandVerb) -> None:
        if (trial := self._chosen()) is not None:
            self.steering.ask(verb, trial)

    def action_take_over(self) -> None:
        """Type in the selected or opened trial's terminal."""
        if (trial := self._chosen()) is not None:
            self.steering.take_over(trial)

    def action_pause_run(self) -> None:
        self.steering.ask_run()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Keys that steer trials are free for the clock of a recorded run."""
        if action in ("play", "go", "replay_speed", "ask_where"):
            return isinstance(self.screen, LiveScreen) and self.screen.replayed
        if isinstance(self.screen, TypingScreen) and self.screen.typing:
            return False  # all keys are the trial's
        if action in ("steer", "pause_run", "take_over"):
            return self.live_run.replay is None
        return True

    def action_play(self) -> None:
        self.transport.toggle()

    def action_go(self, what: Go, amount: int) -> None:
        self.transport.go(what, amount)

    def action_replay_speed(self, steps: int) -> None:
        self.transport.change_speed(steps)

    def action_ask_where(self) -> None:
        self.transport.ask_where()

    def on_transport_line_wanted(self, event: TransportLine.Wanted) -> None:
        self.transport.to_share(event.share)

    def open_run(self, directory: RunDirectory) -> None:
        """Show another run: a live one as it goes on, another as it ended. Ours goes on."""
        from tbtui.journal.rundir import RunDirectoryError, writer
        from tbtui.ui.replayed import ReplayedRun

        if directory.path == self.own_run.directory.path:
            self._show_run(self.own_run)
        elif writer(directory) is not None:
            self._show_run(LiveRun(directory, self._clock))
        else:
            try:
                run = ReplayedRun(directory)
            except (RunDirectoryError, sqlite3.Error) as error:
                self.notify(str(error), severity="error", markup=False)
                return
            run.playback.go_to(run.playback.end)
            self._show_run(run)

    def _show_run(self, run: LiveRun) -> None:
        shown, self.live_run = self.live_run, run
        if shown is not run and shown is not self.own_run:
            shown.close()
        if shown is not run:
            self.selection = Selection()
            self.listing = Listing(order=self.user.preferences.order)
        while len(self.screen_stack) > 2:
            self.pop_screen()
        # What the panes have drawn and chosen was of the other run.
        self.switch_screen(Cockpit(self.listing))
        self.call_after_refresh(self.moved)

    def action_runs(self) -> None:
        """Live and past runs."""
        from tbtui.ui.screens.runs import RunsScreen

        if not isinstance(self.screen, RunsScreen):
            self.push_screen(RunsScreen(self.logs_dirs))

    def on_runs_screen_wanted(self, event: RunsScreen.Wanted) -> None:
        self.open_run(event.directory)

    def action_search(self) -> None:
        """Look for a text in the shown run."""
        from tbtui.ui.screens.search import SearchScreen

        if not isinstance(self.screen, SearchScreen):
            self.push_screen(SearchScreen([self.live_run.directory]))

    def on_search_screen_wanted(self, event: SearchScreen.Wanted) -> None:
        hit = event.hit
        if hit.run.path != self.live_run.directory.path:
            self.open_run(hit.run)
        if (replay := self.live_run.replay) is not None:
            replay.playback.playing = False
            replay.playback.go_to(hit.time)
            self.moved()
        self.push_screen(TrialScreen(hit.trial, hit.turn))

    def action_own_run(self) -> None:
        if self.live_run is self.own_run:
            self.notify("This is it.", markup=False, timeout=2)
        else:
            self._show_run(self.own_run)

    def action_take_controls(self) -> None:
        self.steering.take_controls()

    def action_commands_given(self) -> None:
        if not isinstance(self.screen, CommandScreen):
            self.push_screen(CommandScreen())

    def action_browse_tasks(self) -> None:
        if self._library is None:
            self.notify("Not from here: tbtui tasks browse shows them.", markup=False)
            return
        self.run_worker(self._browse(self._library), name="browse", exclusive=True)

    async def _browse(self, library: Callable[[], TaskLibrary]) -> None:
        from tbtui.ui.screens.tasks import TaskBrowser

        made = await asyncio.to_thread(library)
        if not isinstance(self.screen, TaskBrowser):
            self.push_screen(TaskBrowser(made, lambda: self.palette, self._offer))

    def _offer(self, start: Start) -> None:
        """A run is on already: its successor's command is copied, not carried out."""
        self.copy_to_clipboard(start.command)
        self.notify(start.command, title="Copied: a run is on already", timeout=15, markup=False)

    def action_tour(self) -> None:
        """It takes no key, and goes by itself."""
        lines = tour_lines(self.user.keys, replayed=self.live_run.replay is not None)
        self.notify("\n".join(lines), title="In five lines", timeout=30, markup=False)

    def use_theme(self, name: str) -> None:
        super().use_theme(name)
        self.call_after_refresh(self.post_message, Redraw())

    def action_leave(self) -> None:
        if self.run_end is not None or self.host.outlives:
            self._leave_now()
        elif not self._leaving:
            from tbtui.ui.screens.dialogs import LeaveDialog

            running = len(self.own_run.state.running_trials())
            self.push_screen(LeaveDialog(running), self._left)

    async def action_quit(self) -> None:
        """Textual's own way to quit: ours asks first."""
        self.action_leave()

    def _left(self, leave: bool | None) -> None:
        if leave:
            self._stop_run()

    def action_interrupt(self) -> None:
        """Stop without asking; a second time leave without waiting."""
        if self.run_end is not None or self.host.outlives:
            self._leave_now()
        elif self._leaving:
            self.insisted = True
            self._leave_now()
        else:
            self._stop_run()

    def _stop_run(self) -> None:
        self._leaving = True
        if self.run_end is not None:
            self._leave_now()
            return
        self.host.interrupt()
        self._show(0)
