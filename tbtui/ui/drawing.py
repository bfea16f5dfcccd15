"""What is read and drawn when: a tick reads on for a moment and shows a frame."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from tbtui.ui.attention import Attention
from tbtui.ui.pane import Frame
from tbtui.ui.panes.grid import TrialGrid
from tbtui.ui.screens.base import LiveScreen, ScopedScreen
from tbtui.ui.screens.cockpit import Cockpit
from tbtui.view.current import current_trials
from tbtui.view.estimate import Outlook

if TYPE_CHECKING:
    from tbtui.ui.application import TbtuiApp

BEATS = 10
"""A second, of which panes are drawn at every nth."""
JOURNAL_BUDGET_SEC = 0.012
CATCH_UP_BUDGET_SEC = 0.06
"""While the journal is far ahead: half of the loop's time."""
TERMINAL_BUDGET_SEC = 0.010
MOVE_BUDGET_SEC = 0.1
"""After somebody has moved the clock of a recorded run: for its journal, and for its terminals."""


class Drawing:
    """Reads the shown run, and one's own, and draws the screen."""

    def __init__(
        self,
        app: TbtuiApp,
        attention: Attention,
        fps: int,
        monotonic: Callable[[], float],
        *,
        prepared: bool,
    ) -> None:
        """Unless `prepared`, nothing is read before `prepare` has been through."""
        self.beat = 0
        self._app = app
        self._attention = attention
        self._fps = fps
        self._monotonic = monotonic
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
        self._readable = True
        await asyncio.to_thread(importlib.import_module, "tbtui.ui.emulator")
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
        another_second = self.beat // BEATS != earlier // BEATS
        run = app.live_run
        app.transport.pass_time(self._monotonic())
        if self._readable:
            run.follow(CATCH_UP_BUDGET_SEC if run.behind else JOURNAL_BUDGET_SEC)
            if run is not app.own_run:
                app.own_run.follow(JOURNAL_BUDGET_SEC)
        if another_second:
            self.call_for_attention()
        if run.behind and not another_second:
            # Far behind: the time goes into reading on; a frame a second says how far it is.
            return
        self._show(self.beat)

    def make_ready(self) -> bool:
        """Make what somebody may ask for next; says whether there was anything to make."""
        wanted = self._screens and isinstance(self._app.screen, Cockpit)
        return wanted and self._app.spare.prepare()

    def redraw(self) -> None:
        """Draw every pane now, of what has been read. Somebody waits for it: the terminals that
        are on the screen already are read on at the next tick."""
        self._show(0, only_new=True)

    def moved(self) -> None:
        """Somebody moved the clock of a recorded run: show the place at once."""
        if self._readable:
            self._app.live_run.follow(MOVE_BUDGET_SEC)
        self._show(0, MOVE_BUDGET_SEC)

    def call_for_attention(self) -> None:
        """If the app's own run needs it."""
        own = self._app.own_run
        if own.replay is None and not own.behind and own.state.run:
            self._attention.look(own.state)

    def frame(self) -> Frame:
        """What is shown now."""
        app = self._app
        run = app.live_run
        shown = current_trials(run.state)
        chosen = None if app.selection.following else app.selection.trial
        listed = app.listing.chosen_from(shown, run.state, chosen)
        opened = app.opened_trial
        if opened is not None:
            selected = run.state.trials.get(opened)
        else:
            selected = app.selection.settle(listed, run.state.trials, run.now, shown)
        own = run is app.own_run
        return Frame(
            run,
            Outlook(run.state, run.now),
            app.palette,
            shown,
            selected,
            listed,
            app.listing,
            following=opened is None and app.selection.following,
            badge=app.life.badge if own and run.replay is None else app.shown.badge,
            ending=app.life.ending if own else app.shown.ending,
            keys=app.user.keys,
        )

    def _show(
        self, beat: int, terminal_budget: float = TERMINAL_BUDGET_SEC, *, only_new: bool = False
    ) -> None:
        app = self._app
        if not app.is_running or not app.screen_stack:
            # It is being left: timers go on while the screens lose their panes.
            return
        for visit in {app.own, app.shown}:
            app.steering.tell(visit.run.state)
        app.steering.tell_controls()
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
            return []
        grid = screen.query_one(TrialGrid)
        return grid.visible_trials() if grid.display else []
