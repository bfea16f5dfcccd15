"""Reads the shown run and draws it."""

from __future__ import annotations

import asyncio
import importlib

from tbtui.ui.context import ControllerContext, ScopedScreen
from tbtui.ui.lifecycle import Lifecycle
from tbtui.ui.notifications import Attention
from tbtui.ui.panes.grid import TrialGrid
from tbtui.ui.panes.pane import MOMENT, Frame
from tbtui.ui.screens.base import LiveScreen
from tbtui.ui.screens.cockpit import Cockpit
from tbtui.ui.steering import CommandSubmitter
from tbtui.ui.textual_seam import BufferedScreen
from tbtui.view.current import current_trials
from tbtui.view.state import TrialView
from tbtui.view.times import Outlook

BEATS = 10
"""A second, of which panes are drawn at every nth."""
SECOND = 3 * MOMENT
"""About one, in beats: what is done so often is done at a moment that panes are drawn at."""
JOURNAL_BUDGET_SEC = 0.012
CATCH_UP_BUDGET_SEC = 0.06
"""While the journal is far ahead: half of the loop's time."""
TERMINAL_BUDGET_SEC = 0.010
MOVE_BUDGET_SEC = 0.1
"""For a recorded run whose clock was moved: for its journal, and for its terminals."""


class FrameLoop:
    """Reads the shown run and the app's own, and draws the screen."""

    def __init__(
        self,
        app: ControllerContext,
        lifecycle: Lifecycle,
        steering: CommandSubmitter,
        attention: Attention,
        fps: int,
        *,
        prepared: bool,
    ) -> None:
        """Unless `prepared`, nothing is read before `prepare` has finished."""
        self.beat = 0
        self._app = app
        self._lifecycle = lifecycle
        self._steering = steering
        self._attention = attention
        self._fps = fps
        self._readable = prepared
        """What reads the journal has been imported."""
        self._terminals = prepared
        """What shows terminals has been imported."""
        self._screens = False
        """So have the screens that the first keys ask for."""

    async def prepare(self) -> None:
        """Import what the first frame could do without; a thread keeps the screen responsive."""
        await asyncio.to_thread(importlib.import_module, "tbtui.journal.reader")
        await asyncio.to_thread(importlib.import_module, "tbtui.view.fold")
        await asyncio.to_thread(importlib.import_module, "tbtui.view.story")
        await asyncio.to_thread(importlib.import_module, "tbtui.view.diagnosis.rules")
        self._readable = True
        await asyncio.to_thread(importlib.import_module, "tbtui.ui.terminal.emulator")
        self._terminals = True
        # The screens that the first key would have to wait for.
        for screen in ("trial", "group", "dialogs"):
            await asyncio.to_thread(importlib.import_module, f"tbtui.ui.screens.{screen}")
        self._screens = True

    def tick(self) -> None:
        """Read on and draw; the one timer calls it as often as there are frames, ten times a
        second unless fewer were asked for."""
        app, earlier = self._app, self.beat
        self.beat += round(BEATS / self._fps)
        another_second = self.beat // SECOND != earlier // SECOND
        run = app.live_run
        if self._readable:
            run.follow(CATCH_UP_BUDGET_SEC if run.behind else JOURNAL_BUDGET_SEC)
            if run is not app.own.run:
                app.own.run.follow(JOURNAL_BUDGET_SEC)
        if another_second:
            self.call_for_attention()
        if run.behind and not another_second:
            # Far behind: the time goes into reading on; a frame a second says how far it is.
            return
        self._show(self.beat)

    @property
    def opens_next(self) -> bool:
        """Whether the cockpit is shown and what its first keys open has been imported."""
        return self._screens and isinstance(self._app.screen, Cockpit)

    def redraw(self) -> None:
        """Draw every pane now, of what has been read. Somebody waits for it: the terminals that
        are on the screen already are read on at the next tick."""
        self._show(0, only_new=True)

    def moved(self) -> None:
        """Show at once the place that a replay's clock was moved to."""
        if self._readable:
            self._app.live_run.follow(MOVE_BUDGET_SEC)
        self._show(0, MOVE_BUDGET_SEC)

    def call_for_attention(self) -> None:
        """Get a person's attention if the app's own run needs it."""
        own = self._app.own.run
        if own.replay is None and not own.behind and own.state.run:
            self._attention.look(Outlook(own.state, own.now))

    def frame(self) -> Frame:
        """Return what panes draw from now."""
        app = self._app
        run, opened = app.live_run, app.opened_trial
        shown, listed = self._trials()
        own = run is app.own.run
        return Frame(
            run,
            Outlook(run.state, run.now),
            app.palette,
            shown,
            self._selected(shown, listed),
            listed,
            app.listing,
            opened=opened,
            following=opened is None and app.selection.following,
            badge=self._lifecycle.badge if own and run.replay is None else app.shown.badge,
            ending=self._lifecycle.ending if own else app.shown.ending,
            keys=app.user.keys,
        )

    def selected(self) -> TrialView | None:
        """Return the trial that keys act on: the opened one, or else the selected one; while the
        app follows, the one that is shown as selected, though another may be due."""
        app = self._app
        known = app.live_run.state.trials
        if app.opened_trial is None and app.selection.following and app.selection.trial in known:
            return known[app.selection.trial]
        return self._selected(*self._trials())

    def _trials(self) -> tuple[list[TrialView], list[TrialView]]:
        """Return the trials under way, and those of them that the grid shows, in its order."""
        app, run = self._app, self._app.live_run
        shown = current_trials(run.state)
        chosen = None if app.selection.following else app.selection.trial
        return shown, app.listing.chosen_from(shown, run.state, chosen, run.now)

    def _selected(self, shown: list[TrialView], listed: list[TrialView]) -> TrialView | None:
        app, run = self._app, self._app.live_run
        if (opened := app.opened_trial) is not None:
            return run.state.trials.get(opened)
        selected = app.selection.settle(listed, run.state.trials, run.now, shown)
        if run.behind:
            app.selection.forget()
        return selected

    def _show(
        self, beat: int, terminal_budget: float = TERMINAL_BUDGET_SEC, *, only_new: bool = False
    ) -> None:
        app = self._app
        if not app.is_running or not app.screen_stack:
            # It is being left: timers go on while the screens lose their panes.
            return
        for each in {app.own, app.shown}:
            self._steering.report_results(each.run.state)
        self._steering.report_controls()
        frame = self.frame()
        if self._terminals:
            app.live_run.follow_terminals(
                frame.selected.trial if frame.selected else None,
                self._visible_trials(),
                terminal_budget,
                only_new=only_new,
            )
        if (screen := self._screen) is not None:
            screen.show(frame, beat)
        if isinstance(app.screen, BufferedScreen):
            app.screen.run_went_on()
        app.withdraw_outdated()

    @property
    def _screen(self) -> LiveScreen | None:
        """What is drawn: a dialog lies over a screen that goes on; a screen under another one
        stands still."""
        stack = reversed(self._app.screen_stack)
        screen = next((each for each in stack if isinstance(each, ScopedScreen)), None)
        return screen if isinstance(screen, LiveScreen) and screen.is_mounted else None

    def _visible_trials(self) -> list[str]:
        screen = self._screen
        if not isinstance(screen, Cockpit):
            return [] if screen is None else list(screen.previewed)
        grid = screen.query_one(TrialGrid)
        return grid.visible_trials() if grid.display else []
