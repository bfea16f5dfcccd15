"""What panes, screens and controllers see of the app; they know no more of it than this."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, cast

from tbtui.ui.textual_seam import BufferedScreen

if TYPE_CHECKING:
    from textual.dom import DOMNode
    from textual.notifications import SeverityLevel
    from textual.screen import Screen
    from textual.worker import Worker

    from tbtui.journal.rundir import RunDirectory
    from tbtui.ui.input.keys import Key, Scope
    from tbtui.ui.runs import LiveRun, OpenRun
    from tbtui.ui.selection import Selection
    from tbtui.ui.services import Services
    from tbtui.ui.theme.palette import Palette
    from tbtui.ui.user import User
    from tbtui.view.listing import Listing
    from tbtui.view.review import ReviewedGroup, ReviewedTrial
    from tbtui.view.state import ReviewView, TrialView
    from tbtui.vocabulary import CommandVerb


class ScopedScreen(BufferedScreen[None]):
    """A screen with keys of its own."""

    SCOPES: ClassVar[tuple[Scope, ...]] = ("everywhere",)
    """Scopes of the key table: what the command palette offers here."""

    def idle_keys(self) -> Iterable[str]:
        """Ids of its keys that would do nothing as things stand: the key bar leaves them out."""
        return ()


class AppContext(Protocol):
    """Any of the apps, with a run or without: what panes and screens of all of them may use."""

    @property
    def user(self) -> User: ...

    @property
    def palette(self) -> Palette: ...

    def keys_met(self, keys: Iterable[Key]) -> list[Key]:
        """Return those of the keys that this app has now."""
        ...

    def keys_in_bar(self, *scopes: Scope) -> list[Key]:
        """Return the keys of a screen with these scopes that have a rank in the key bar."""
        ...

    def remember(self, **changed: Any) -> None:
        """Keep preferences for the next time."""
        ...

    def show_guide(self, page: str = "index") -> None: ...


class TrialCommands(Protocol):
    """Commands on trials, as screens give them."""

    def ask(self, key: CommandVerb, trial: TrialView) -> None:
        """Give the trial the command that a key stands for, or show why not."""
        ...

    def submit(
        self,
        verb: CommandVerb,
        target: str,
        label: str,
        reason: str = "",
        arguments: Mapping[str, Any] | None = None,
    ) -> str:
        """Submit a command; returns its id, or an empty text where the run takes no commands."""
        ...

    def fork(self, trial: TrialView, turn: int) -> None:
        """Ask how many forks of a trial there are to be, from a turn on."""
        ...

    def ask_weight(self, task: str) -> None:
        """Ask for the weight of a task, or of all of a kind."""
        ...


class StepDecisions(Protocol):
    """What is decided on a step that waits for its review."""

    def refill(self, group: ReviewedGroup) -> None: ...

    def accept_trial(self, trial: ReviewedTrial) -> None: ...

    def accept(self, review: ReviewView) -> None: ...

    def always(self, step: int, trial: ReviewedTrial) -> None: ...


class ReplayClock(Protocol):
    """The clock of a replayed run, as far as others move it."""

    def to_step(self, step: int) -> None: ...


class RunContext(AppContext, Protocol):
    """The app on a run: what its screens may use."""

    @property
    def shown(self) -> OpenRun: ...

    @property
    def live_run(self) -> LiveRun:
        """The shown run's state and files."""
        ...

    @property
    def marked_runs(self) -> list[RunDirectory]:
        """Runs that charts draw beside the shown one."""
        ...

    @property
    def services(self) -> Services: ...

    @property
    def steering(self) -> TrialCommands: ...

    @property
    def decisions(self) -> StepDecisions: ...

    def redraw_all(self) -> None:
        """Draw every pane now."""
        ...

    def action_go(self, what: Any, amount: int) -> None:
        """Move a replay's clock."""
        ...

    def show_chart(self, metric: str = "") -> None:
        """Show the charts, with this metric drawn; empty: as they are."""
        ...

    def show_settings(self, name: str = "") -> None:
        """Show the run's settings, at the one of this name."""
        ...

    def end_tour(self) -> bool:
        """Leave the guided tour; False: there is none."""
        ...

    def action_open_group(self) -> None:
        """Open the group of the selected or opened trial."""
        ...


class ControllerContext(RunContext, Protocol):
    """The app on a run: what its controllers may use."""

    @property
    def own(self) -> OpenRun:
        """The run that the app was started for."""
        ...

    @property
    def opened_trial(self) -> str | None: ...

    @property
    def selection(self) -> Selection: ...

    @property
    def listing(self) -> Listing: ...

    @property
    def is_running(self) -> bool: ...

    @property
    def screen(self) -> Screen[object]: ...

    @property
    def screen_stack(self) -> Sequence[Screen[Any]]: ...

    def tick(self) -> None:
        """Read what is new and draw."""
        ...

    def moved(self) -> None:
        """Show at once the place that a replay's clock was moved to."""
        ...

    def action_runs(self) -> None:
        """Show live and past runs."""
        ...

    def start_over(self, *, another: bool) -> None:
        """Show the cockpit alone, of `another` run than before."""
        ...

    def call_for_attention(self) -> None:
        """Get a person's attention if the app's own run needs it."""
        ...

    def withdraw_outdated(self) -> None: ...

    def notify(
        self,
        message: str,
        *,
        title: str = "",
        severity: SeverityLevel = "information",
        timeout: float | None = None,
        markup: bool = False,
        topic: str = "",
        holds: Callable[[], bool] | None = None,
    ) -> None: ...

    def push_screen(
        self, screen: Screen[Any], callback: Callable[[Any], None] | None = None
    ) -> Any: ...

    def run_worker(
        self,
        work: Any,
        name: str | None = "",
        group: str = "default",
        description: str = "",
        exit_on_error: bool = True,
        start: bool = True,
        exclusive: bool = False,
    ) -> Worker[Any]: ...

    def call_later(self, callback: Callable[[], None]) -> bool: ...

    def copy_to_clipboard(self, text: str) -> None: ...

    @property
    def theme_names(self) -> Sequence[str]: ...

    @property
    def transport(self) -> ReplayClock: ...

    def keys_here(self) -> Sequence[Key]:
        """Return the keys that the screen has now."""
        ...

    def pop_screen(self) -> object: ...

    def show_trial(self, trial: str) -> None: ...

    def browse_tasks(self, task: str = "") -> None:
        """Open the task browser, with a text to search for."""
        ...

    def use_theme(self, name: str) -> None: ...

    def exit(self, result: int | None = None, return_code: int = 0) -> None: ...


def app_of(node: DOMNode) -> AppContext:
    """The app that a screen or pane of ours is in."""
    return cast("AppContext", node.app)


def run_app_of(node: DOMNode) -> RunContext:
    """The app on a run that a screen or pane is in."""
    return cast("RunContext", node.app)
