"""The Textual app: shows a run and hands commands to it. It knows nothing of what runs it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from textual import events
from textual.dom import DOMNode
from textual.worker import Worker, WorkerState

from tbtui.journal.commands import RUN
from tbtui.ui.base_app import BaseApp
from tbtui.ui.context import ScopedScreen
from tbtui.ui.frames import FrameLoop
from tbtui.ui.idle_collector import IdleCollector
from tbtui.ui.input.abilities import Abilities, tour_lines
from tbtui.ui.input.keys import Key, Scope, bindings
from tbtui.ui.jumping import Jumps
from tbtui.ui.lifecycle import Lifecycle
from tbtui.ui.notifications import Attention, Presence
from tbtui.ui.opening import OpenRuns, TrialScreens, browse_tasks
from tbtui.ui.panes.clock import TransportLine
from tbtui.ui.panes.grid import TrialGrid
from tbtui.ui.panes.pane import Redraw
from tbtui.ui.panes.timeline import TimelinePane
from tbtui.ui.runs import LiveRun, OpenRun
from tbtui.ui.screens.base import LiveScreen
from tbtui.ui.screens.cockpit import Cockpit
from tbtui.ui.selection import Selection
from tbtui.ui.services import NO_SERVICES, RunHost, Services
from tbtui.ui.steering import CommandSubmitter, ReviewDecisions
from tbtui.ui.transport import Go, Transport
from tbtui.ui.user import frames_per_second
from tbtui.view.listing import Filter, Listing
from tbtui.view.state import TrialView
from tbtui.vocabulary import CommandVerb

if TYPE_CHECKING:
    from textual.actions import ActionParseResult

    from tbtui.journal.rundir import RunDirectory
    from tbtui.ui.context import ControllerContext
    from tbtui.ui.runs import ReplayedRun
    from tbtui.ui.screens.diagnosis import DiagnosisScreen
    from tbtui.ui.screens.runs import RunsScreen
    from tbtui.ui.screens.search import SearchScreen
    from tbtui.ui.tour import Tour
    from tbtui.ui.user import User


class TbtuiApp(BaseApp[int]):
    """Shows the host's run. `return_value` is the process's exit code."""

    BINDINGS = bindings("everywhere", "replay")

    def __init__(
        self,
        host: RunHost,
        services: Services = NO_SERVICES,
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
        beside: Sequence[RunDirectory] = (),
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`clock` gives seconds since the epoch. Without `live` no timer runs: call `tick`.

        With `still_at` the run is shown as it stood that many seconds after its start; with
        `recorded` the host's run is replayed by that. `trial` is open from the start. `user` is
        whose themes, keys and settings are used; `fps` frames a second, from 1 to 10, go before
        theirs.
        """
        super().__init__(user=user, theme_dirs=theme_dirs, theme=theme)
        self.services = services
        own = OpenRun(recorded or LiveRun(host.directory, clock, still_at=still_at), host)
        self.open_runs = OpenRuns(self, own, services.join, clock)
        self.lifecycle = Lifecycle(self)
        self.transport = Transport(self)
        self.logs_dirs = (host.directory.path.parent,)
        self.marked_runs: list[RunDirectory] = list(beside)
        self.selection = Selection()
        self.listing = Listing(order=self.user.preferences.order)
        self.steering = CommandSubmitter(self)
        self.decisions = ReviewDecisions(self, self.steering)
        self.presence = Presence(monotonic)
        self.attention = Attention(
            self.write_escape,
            self.user.settings.notify,
            from_start=not host.outlives,
            watching=lambda: self.presence.watching,
        )
        self._fps = fps or frames_per_second(str(self.user.settings.fps))
        self._monotonic = monotonic
        self.idle_collector = IdleCollector(monotonic)
        self.frames = FrameLoop(
            self, self.lifecycle, self.steering, self.attention, self._fps, prepared=not live
        )
        self.trial_screens = TrialScreens(self)
        self.jumps = Jumps(self)
        self.tour: Tour | None = None
        self._first_trial = trial
        self._live = live

    # What is shown

    @property
    def own(self) -> OpenRun:
        """The run that the app was started for."""
        return self.open_runs.own

    @property
    def shown(self) -> OpenRun:
        """The run on the screen: the app's own, or another one that was opened."""
        return self.open_runs.shown

    @property
    def live_run(self) -> LiveRun:
        """The state and files of the run on the screen."""
        return self.shown.run

    @property
    def opened_trial(self) -> str | None:
        """The trial that the screen is about, if it is about one."""
        for screen in reversed(self.screen_stack):
            if isinstance(screen, LiveScreen) and screen.trial is not None:
                return screen.trial
        return None

    def start_over(self, *, another: bool) -> None:
        """Show the cockpit alone; with `another` run than before, forget what was chosen."""
        if another:
            self.selection = Selection()
            self.listing = Listing(order=self.user.preferences.order)
        while len(self.screen_stack) > 2:
            self.pop_screen()
        # What the panes have drawn and chosen was of the other run.
        self.switch_screen(Cockpit(self.listing))
        self.call_after_refresh(self.moved)

    # From the first frame to the last

    def on_mount(self) -> None:
        self.push_screen(Cockpit(self.listing))
        if self._first_trial is not None:
            self._open_trial(self._first_trial)
        if self.marked_runs:
            self.action_charts()
        self.report_problems()
        if self.user.remembered_in is not None and not self.user.preferences.toured:
            self.action_tour()
            self.remember(toured=True)
        self.call_after_refresh(self._begin)

    def _begin(self) -> None:
        """Start the engine and the clock, once the first frame is out."""
        self.lifecycle.begin()
        if self._live:
            self.run_worker(self.frames.prepare(), name="prepare", exit_on_error=False)
            self.set_interval(1 / self._fps, self._beat)
            self.idle_collector.begin()

    def on_worker_state_changed(self, event: Worker.StateChanged) -> None:
        worker: Worker[Any] = event.worker
        if worker.name == Lifecycle.ENGINE:
            self.lifecycle.engine_worker_changed(worker)
        elif event.state is WorkerState.ERROR and worker.error is not None:
            raise worker.error

    async def on_unmount(self) -> None:
        self.idle_collector.end()
        await self.open_runs.end()

    async def on_event(self, event: events.Event) -> None:
        if isinstance(event, events.InputEvent):
            self.idle_collector.note_input()
        elif isinstance(event, events.AppBlur):
            self.presence.leave(self.own.run.state)
        elif isinstance(event, events.AppFocus) and (
            news := self.presence.come_back(self.own.run.state)
        ):
            self.notify(news, title="While you were away", timeout=15, topic="away")
        await super().on_event(event)

    def tick(self) -> None:
        """Read on and draw."""
        self.transport.pass_time(self._monotonic())
        self.frames.tick()
        if self.tour is not None:
            self.tour.look()

    def _beat(self) -> None:
        self.tick()
        if self.idle_collector.idle:
            # After the keys that have been pressed meanwhile, which end the idle time.
            self.call_later(self._use_idle_time)

    def _use_idle_time(self) -> None:
        if not self.idle_collector.idle:
            return
        # The next screen goes before garbage.
        if not (self.frames.opens_next and self.trial_screens.prepare()):
            self.idle_collector.collect()

    def redraw_all(self) -> None:
        """Draw every pane now."""
        self.frames.redraw()

    def call_for_attention(self) -> None:
        """Get a person's attention if the app's own run needs it."""
        self.frames.call_for_attention()

    def moved(self) -> None:
        """Show at once the place that a replay's clock was moved to."""
        self.frames.moved()

    def on_redraw(self, event: Redraw) -> None:
        self.redraw_all()

    def use_theme(self, name: str) -> None:
        super().use_theme(name)
        self.call_after_refresh(self.post_message, Redraw())

    # Which keys there are

    @property
    def abilities(self) -> Abilities:
        return Abilities(
            self.shown,
            self.open_runs.showing_other,
            self.services.guest,
            self.services.library is not None,
            self.services.settings is not None,
        )

    def keys_met(self, keys: Iterable[Key]) -> list[Key]:
        return self.abilities.met(keys)

    def keys_on_screen(self, *scopes: Scope) -> list[Key]:
        return self.abilities.on_screen(self.user.keys, scopes)

    def keys_in_bar(self, *scopes: Scope) -> list[Key]:
        idle = self.transport.idle_keys()
        return [
            each for each in self.abilities.in_bar(self.user.keys, scopes) if each.id not in idle
        ]

    @property
    def _typing(self) -> bool:
        """Whether all keys go to a trial's terminal."""
        return isinstance(self.screen, LiveScreen) and self.screen.typing

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return not self._typing

    async def run_action(
        self,
        action: str | ActionParseResult,
        default_namespace: DOMNode | None = None,
        namespaces: Mapping[str, DOMNode] | None = None,
    ) -> bool:
        """Refuse actions that aren't available here, however they were asked for."""
        key = next((key for key in self.user.keys.keys if key.action == action), None)
        if key is None or self._typing or not self.abilities.refusal(key.need):
            return await super().run_action(action, default_namespace, namespaces)
        scopes = self.screen.SCOPES if isinstance(self.screen, ScopedScreen) else ()
        if why := self.abilities.refused_on(key, self.user.keys, scopes):
            self.notify(why, timeout=3, topic="refusal")
        return bool(why)

    # What people do with trials

    def on_trial_grid_selected(self, event: TrialGrid.Selected) -> None:
        self.selection.choose(event.trial)
        self.redraw_all()

    def action_follow(self) -> None:
        self.selection.follow()
        self.redraw_all()

    def _chosen(self) -> TrialView | None:
        """Return the trial that keys act on, and keep the selection on it."""
        trial = self.frames.selected()
        if trial is not None and self.opened_trial is None:
            self.selection.choose(trial.trial)
        return trial

    def action_open_trial(self) -> None:
        if (trial := self._chosen()) is not None:
            self._open_trial(trial.trial)

    def _open_trial(self, trial: str, turn: int | None = None) -> None:
        screen = self.trial_screens.take()
        screen.open_at(trial, turn)
        self.push_screen(screen)

    def action_open_group(self) -> None:
        """Open the selected or opened trial's group."""
        from tbtui.ui.screens.group import GroupScreen

        if (trial := self._chosen()) is not None:
            self.push_screen(GroupScreen(trial.trial))

    def action_steer(self, verb: CommandVerb) -> None:
        if (trial := self._chosen()) is not None:
            self.steering.ask(verb, trial)

    # With the run

    def action_pause_run(self) -> None:
        self.steering.ask_run()

    def action_full_speed(self) -> None:
        """End the slow beginning of a paced run."""
        self.steering.submit("set", RUN, "full speed", arguments={"pace_sec": 0})

    def action_take_controls(self) -> None:
        self.steering.take_controls()

    def action_review(self) -> None:
        """Open the review of the step that waits to be trained."""
        from tbtui.ui.screens.review import ReviewScreen

        if not isinstance(self.screen, ReviewScreen):
            self.push_screen(ReviewScreen())

    def action_commands_given(self) -> None:
        from tbtui.ui.screens.commands import CommandScreen

        if not isinstance(self.screen, CommandScreen):
            self.push_screen(CommandScreen())

    def action_diagnosis(self) -> None:
        """Show what is wrong with the run."""
        from tbtui.ui.screens.diagnosis import DiagnosisScreen

        if not isinstance(self.screen, DiagnosisScreen):
            self.push_screen(DiagnosisScreen())

    def on_diagnosis_screen_wanted(self, event: DiagnosisScreen.Wanted) -> None:
        """Show only some trials in the cockpit."""
        self.listing.filter = Filter(only=event.trials)
        self.selection.follow()
        while len(self.screen_stack) > 2:
            self.pop_screen()
        self.redraw_all()

    def action_leave(self) -> None:
        self.lifecycle.leave()

    async def action_quit(self) -> None:
        """Leave as with our own key, which asks first: Textual's own would not."""
        self.lifecycle.leave()

    def action_interrupt(self) -> None:
        self.lifecycle.ask_again()

    # With its clock

    def action_play(self) -> None:
        self.transport.toggle()

    def action_go(self, what: Go, amount: int) -> None:
        self.transport.go(what, amount)

    def action_replay_speed(self, steps: int) -> None:
        self.transport.change_speed(steps)

    def action_ask_where(self) -> None:
        self.transport.ask_where()

    def on_timeline_pane_chosen(self, event: TimelinePane.Chosen) -> None:
        self.transport.to_step(event.step)

    def on_transport_line_wanted(self, event: TransportLine.Wanted) -> None:
        self.transport.to_share(event.share)

    # With other runs, and with what can be found

    def action_runs(self) -> None:
        """Show live and past runs."""
        from tbtui.ui.screens.runs import RunsScreen

        if not isinstance(self.screen, RunsScreen):
            self.push_screen(RunsScreen(self.logs_dirs))

    def on_runs_screen_wanted(self, event: RunsScreen.Wanted) -> None:
        self.open_runs.open(event.directory)

    def action_own_run(self) -> None:
        self.open_runs.show(self.own)

    def action_charts(self) -> None:
        """Draw metrics of the shown run and of marked ones."""
        self.show_chart()

    def show_chart(self, metric: str = "") -> None:
        """Show the charts, with this metric drawn."""
        from tbtui.ui.screens.charts import ChartScreen

        if any(isinstance(screen, ChartScreen) for screen in self.screen_stack):
            while not isinstance(self.screen, ChartScreen):
                self.pop_screen()
            self.screen.draw(metric)
        else:
            self.push_screen(ChartScreen(metric))

    def action_search(self) -> None:
        """Look for a text in the shown run."""
        from tbtui.ui.screens.search import SearchScreen

        if not isinstance(self.screen, SearchScreen):
            self.push_screen(SearchScreen([self.live_run.directory]))

    def on_search_screen_wanted(self, event: SearchScreen.Wanted) -> None:
        hit = event.hit
        if hit.run.path != self.live_run.directory.path:
            self.open_runs.open(hit.run)
        if hit.run.path != self.live_run.directory.path:
            return  # it can't be opened, which has been said
        if (replay := self.live_run.replay) is not None:
            replay.playback.playing = False
            replay.playback.go_to(replay.timeline.replay_time(hit.seq, hit.time))
            self.moved()
        self._open_trial(hit.trial, hit.turn)

    def action_browse_tasks(self) -> None:
        screen = self.screen
        chosen = screen.chosen_trial if isinstance(screen, LiveScreen) else None
        chosen = chosen or (None if self.selection.following else self.selection.trial)
        trial = self.live_run.state.trials.get(chosen) if chosen is not None else None
        self.browse_tasks("" if trial is None else trial.task)

    def browse_tasks(self, task: str = "") -> None:
        browse_tasks(self, task)

    def action_jump(self) -> None:
        """Find anything by its name, and go there."""
        self.jumps.ask()

    def show_trial(self, trial: str) -> None:
        self._open_trial(trial)

    def action_settings(self) -> None:
        self.show_settings()

    def show_settings(self, name: str = "") -> None:
        """Show the run's settings, at the one of this name."""
        from tbtui.ui.screens.settings import SettingsScreen

        if isinstance(self.screen, SettingsScreen):
            self.screen.choose(name)
        elif (make := self.services.settings) is not None:
            self.push_screen(SettingsScreen(make, name))

    def action_demos(self) -> None:
        """Review what people have typed in trials."""
        from tbtui.ui.screens.demos import DemosScreen

        run, keys = self.live_run, self.user.keys
        self.push_screen(DemosScreen(run.directory, run.state.settings.get("demos"), keys))

    def action_tour(self) -> None:
        """Begin the guided tour, or go to its next stop; of a run that can't be steered from here,
        show the lines for newcomers, which disappear by themselves."""
        if self.tour is not None and self.tour.on:
            self.tour.skip()
        elif self.own is self.shown and not self.shown.refusal:
            from tbtui.ui.tour import Tour

            self.tour = Tour(self, self.frames.selected)
            self.call_after_refresh(self.tour.look)
        else:
            self._show_five_lines()

    def end_tour(self) -> bool:
        if self.tour is None or not self.tour.on:
            return False
        self.tour.end()
        return True

    def _show_five_lines(self) -> None:
        lines = tour_lines(self.user.keys, self.abilities)
        self.notify(
            "\n".join(lines),
            title="Getting started",
            timeout=30,
            topic="tour",
            # With the run what its keys can do may end, or another run be shown.
            holds=lambda: tour_lines(self.user.keys, self.abilities) == lines,
        )


if TYPE_CHECKING:
    _context: type[ControllerContext] = TbtuiApp
