"""The Textual app: shows a run and hands commands to it. It knows nothing of what runs it."""

from __future__ import annotations

import asyncio
import gc
import importlib
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from textual.app import App, SystemCommand
from textual.screen import Screen
from textual.worker import Worker, WorkerState

from tbtui.journal.vocabulary import CommandVerb
from tbtui.resources import themes_dir
from tbtui.ui.host import RunEnd, RunHost
from tbtui.ui.keys import KEYS, bindings
from tbtui.ui.live import LiveRun
from tbtui.ui.pane import Frame, Redraw
from tbtui.ui.panes.grid import TrialGrid
from tbtui.ui.screens.base import LiveScreen
from tbtui.ui.screens.cockpit import Cockpit
from tbtui.ui.screens.commands import CommandScreen
from tbtui.ui.screens.trial import TrialScreen
from tbtui.ui.selection import Selection
from tbtui.ui.steering import Steering
from tbtui.ui.theme import Palette, load_themes, textual_theme
from tbtui.view.current import current_trials
from tbtui.view.state import TrialView
from tbtui.view.waiting import waiting_for

TICK_SEC = 0.1
JOURNAL_BUDGET_SEC = 0.012
CATCH_UP_BUDGET_SEC = 0.06
"""While the journal is far ahead: half of the loop's time."""
TERMINAL_BUDGET_SEC = 0.010

FINISHED, FAILED, REFUSED, INTERRUPTED = 0, 1, 2, 130
"""Exit codes."""


class TbtuiApp(App[int]):
    """Shows the host's run. `return_value` is the process's exit code."""

    CSS_PATH = "style.tcss"
    BINDINGS = bindings("everywhere")
    ENABLE_COMMAND_PALETTE = True
    TITLE = "tbtui"

    def __init__(
        self,
        host: RunHost,
        *,
        clock: Callable[[], float] = time.time,
        live: bool = True,
        theme_dirs: Sequence[Path] | None = None,
        theme: str = "tbtui-dark",
        still_at: float | None = None,
    ) -> None:
        """`clock` gives seconds since the epoch. Without `live` no timer runs: call `tick`.

        With `still_at` the run is shown as it stood that many seconds after its start.
        """
        super().__init__()
        self.host = host
        self.run_end: RunEnd | None = None
        """How the engine ended; None while it runs."""
        self.insisted = False
        """Somebody left before the engine had cleaned up."""
        self.live_run = LiveRun(host.directory, clock, still_at=still_at)
        self.selection = Selection()
        self.steering = Steering(self)
        self._live = live
        self._beat = 0
        self._leaving = False
        self._readable = not live
        """What reads the journal has been imported."""
        self._terminals = not live
        """What shows terminals has been imported."""
        self._engine: asyncio.Future[RunEnd] | None = None
        self._themes = load_themes(*(theme_dirs if theme_dirs is not None else (themes_dir(),)))
        self._palettes = {name: Palette(file) for name, file in self._themes.files.items()}
        for file in self._themes.files.values():
            self.register_theme(textual_theme(file))
        self.theme = theme if theme in self._palettes else next(iter(self._palettes))

    def get_theme_variable_defaults(self) -> dict[str, str]:
        """Our own variables, for Textual's built-in themes, which lack them."""
        return {
            "tb-line": "#444444",
            "tb-muted": "#888888",
            "tb-faint": "#666666",
            "tb-attention": "#d0a030",
            "tb-terminal": "#101010",
        }

    @property
    def palette(self) -> Palette:
        """The colours in use; Textual's own themes have none of ours and borrow the first."""
        return self._palettes.get(self.theme) or next(iter(self._palettes.values()))

    # Life

    def on_mount(self) -> None:
        self.push_screen(Cockpit())
        for problem in self._themes.problems:
            self.notify(problem, title="A theme was left out", severity="warning", markup=False)
        self.call_after_refresh(self._begin)

    def _begin(self) -> None:
        """After the first frame: start the engine and the clock."""
        self.host.start()
        self._engine = asyncio.ensure_future(self.host.ended())
        self.run_worker(self._watch_engine(), name="engine", exit_on_error=False)
        if self._live:
            self.run_worker(self._prepare(), name="prepare", exit_on_error=False)
            self.set_interval(TICK_SEC, self.tick)
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
        if end.status == "failed":
            self.notify(
                end.reason, title="The run has failed", severity="error", timeout=12, markup=False
            )
        elif end.status == "finished":
            self.notify("Look around; q leaves.", title="The run is finished", markup=False)

    def _leave_now(self) -> None:
        self.exit(self.exit_code, return_code=self.exit_code)

    @property
    def exit_code(self) -> int:
        if self.insisted or self.run_end is None:
            return INTERRUPTED
        codes = {"finished": FINISHED, "failed": FAILED, "refused": REFUSED}
        return codes.get(self.run_end.status, INTERRUPTED)

    async def on_unmount(self) -> None:
        self.live_run.close()

    # Frames

    def tick(self) -> None:
        """Read on and draw; the one timer calls it ten times a second."""
        self._beat += 1
        run = self.live_run
        if self._readable:
            run.follow(CATCH_UP_BUDGET_SEC if run.behind else JOURNAL_BUDGET_SEC)
        if run.behind and self._beat % 10:
            # Far behind: the time goes into reading on; a frame a second says how far it is.
            return
        self._show(self._beat)

    def redraw_all(self) -> None:
        """Draw every pane now."""
        self._show(0)

    def on_redraw(self, event: Redraw) -> None:
        self.redraw_all()

    def _show(self, beat: int) -> None:
        if not self.screen_stack:
            return
        self.steering.tell(self.live_run.state)
        frame = self._frame()
        if self._terminals:
            self.live_run.follow_terminals(
                frame.selected.trial if frame.selected else None,
                self._visible_trials(),
                TERMINAL_BUDGET_SEC,
            )
        # A dialog lies over a screen that goes on; a screen under another one stands still.
        for screen in reversed(self.screen_stack):
            if isinstance(screen, LiveScreen):
                if screen.is_mounted:
                    screen.show(frame, beat)
                break

    def _frame(self) -> Frame:
        run = self.live_run
        shown = current_trials(run.state)
        opened = self._opened_trial()
        if opened is not None:
            selected = run.state.trials.get(opened)
        else:
            selected = self.selection.settle(shown, run.state.trials, run.now)
        return Frame(
            run,
            run.now,
            self.palette,
            shown,
            selected,
            following=opened is None and self.selection.following,
            ending=self._ending(),
        )

    def _ending(self) -> str:
        if self.run_end is not None:
            if self.live_run.state.status is None:
                # It ended before it could say so in the journal.
                return f"{self.run_end.status}: {self.run_end.reason} · q leaves"
            return "q leaves"
        if self._leaving:
            state = self.live_run.state
            trials = len(state.live_trials())
            what = f"{trials} trials" if trials else waiting_for(state, self.live_run.now)
            return f"cleaning up: {what} (^c leaves at once)"
        return ""

    def _opened_trial(self) -> str | None:
        for screen in reversed(self.screen_stack):
            if isinstance(screen, TrialScreen):
                return screen.trial
        return None

    def _visible_trials(self) -> list[str]:
        if not isinstance(self.screen, Cockpit):
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
        if trial is not None and self._opened_trial() is None:
            self.selection.choose(trial.trial)
        return trial

    def action_open_trial(self) -> None:
        if (trial := self._chosen()) is not None:
            self.push_screen(TrialScreen(trial.trial))

    def action_steer(self, verb: CommandVerb) -> None:
        if (trial := self._chosen()) is not None:
            self.steering.ask(verb, trial)

    def action_pause_run(self) -> None:
        self.steering.ask_run()

    def action_commands_given(self) -> None:
        if not isinstance(self.screen, CommandScreen):
            self.push_screen(CommandScreen())

    def action_next_theme(self) -> None:
        names = list(self._palettes)
        here = names.index(self.theme) if self.theme in names else -1
        self.theme = names[(here + 1) % len(names)]
        self.call_after_refresh(self.post_message, Redraw())

    def action_help(self) -> None:
        from tbtui.ui.screens.dialogs import HelpDialog

        self.push_screen(HelpDialog())

    def action_leave(self) -> None:
        if self.run_end is not None:
            self._leave_now()
        elif not self._leaving:
            from tbtui.ui.screens.dialogs import LeaveDialog

            running = len(self.live_run.state.running_trials())
            self.push_screen(LeaveDialog(running), self._left)

    async def action_quit(self) -> None:
        """Textual's own way to quit: ours asks first."""
        self.action_leave()

    def _left(self, leave: bool | None) -> None:
        if leave:
            self._stop_run()

    def action_interrupt(self) -> None:
        """Stop without asking; a second time leave without waiting."""
        if self.run_end is not None:
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

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        scopes = screen.SCOPES if isinstance(screen, LiveScreen) else ("everywhere",)
        for key in KEYS:
            if key.palette and key.scope in scopes:
                yield SystemCommand(
                    f"{key.label} ({key.shown})", key.help, partial(screen.run_action, key.action)
                )
        for name in self._palettes:
            yield SystemCommand(
                f"theme {name}", "Use this theme", partial(self._use_theme, name), discover=False
            )

    def _use_theme(self, name: str) -> None:
        self.theme = name
        self.call_after_refresh(self.post_message, Redraw())
