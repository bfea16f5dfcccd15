"""The base of screens made of panes: draws frames, enlarges panes, checks the window's size."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from textual import events
from textual.app import ComposeResult
from textual.content import Content
from textual.geometry import Size
from textual.widgets import Static

from tbtui.ui.context import ScopedScreen, run_app_of
from tbtui.ui.input.keys import CLOCKED
from tbtui.ui.panes.clock import TransportLine
from tbtui.ui.panes.pane import MOMENT, Frame, Pane, Redraw
from tbtui.ui.textual_seam import Ground, Rows

if TYPE_CHECKING:
    from tbtui.ui.services import TrialTools

SMALLEST = (60, 16)
"""Columns and rows below which a screen shows only what it needs."""


class LiveScreen(ScopedScreen, Ground):
    """A screen of panes. Number keys enlarge one of `PANES`, 0 shows all."""

    PANES: ClassVar[dict[int, tuple[str, ...]]] = {}
    """Ids of the panes that each number shows."""
    OVERVIEW: ClassVar[tuple[str, ...]] = ()
    """Ids of the panes that a small window shows when no number is pressed; all in a large one."""
    COLUMNS: ClassVar[dict[str, tuple[str, ...]]] = {}
    """Container id -> ids of its panes. A container without a visible pane is hidden."""
    trial: str | None = None
    """The trial that this screen shows and keys act on; None: the selected one."""

    def __init__(self) -> None:
        super().__init__()
        self.previewed: Sequence[str] = ()
        """Trials that are not selected, of which it shows the terminals."""
        self.full = 0
        self.replayed = False
        """What is shown is at some time of a recorded run."""
        self._shown = False
        self._selected: str | None = None
        """The trial that was selected then."""
        self._beat = 0
        """At which it was drawn last."""
        self._panes: list[Pane] = []

    def compose(self) -> ComposeResult:
        # Before there are panes: they are styled once, as this window wants them.
        self._classify(update=False)
        with Rows(id="all"):
            yield from self.compose_panes()
            yield TransportLine("transport")
        yield Static(id="too-small")

    def compose_panes(self) -> ComposeResult:
        raise NotImplementedError

    @property
    def tools(self) -> Callable[[], TrialTools] | None:
        """Makes the tools for trials, on a thread; None: there are none."""
        return run_app_of(self).services.trial_tools

    @property
    def chosen_trial(self) -> str | None:
        """The trial that a person has chosen here, for what is asked of its task."""
        return self.trial

    @property
    def typing(self) -> bool:
        """Whether all keys go to a trial's terminal."""
        return False

    @property
    def room(self) -> Size:
        """The window's size; a screen knows its own once it has been laid out."""
        return self.size or self.app.size

    @property
    def roomy(self) -> bool:
        return self.room.width >= 110 and self.room.height >= 32

    @property
    def vast(self) -> bool:
        """Whether there is room for more panes, not only for larger ones."""
        return self.room.width >= 220 and self.room.height >= 60

    def show(self, frame: Frame, beat: int) -> None:
        """Draw the panes whose turn it is at this tick; all of them at tick 0, and when another
        trial is selected: none shows the one before beside it."""
        self.replayed = frame.run.replay is not None and not CLOCKED.isdisjoint(self.SCOPES)
        self.set_class(self.replayed, "-replay")
        transport = self.query_one(TransportLine)
        transport.display, transport.trial = self.replayed, self.trial
        before, self._beat = self._beat, beat or self._beat
        selected = frame.selected.trial if frame.selected is not None else None
        at_once = not (beat and self._shown) or selected != self._selected
        self._selected = selected

        def due(every: int) -> bool:
            return at_once or beat // every != before // every

        frame = replace(frame, of_moment=due(MOMENT))
        for pane in self._panes:
            if due(pane.EVERY):
                pane.show(frame)
        self._shown = True

    def on_mount(self) -> None:
        self._panes = list(self.query(Pane))
        self._arrange()

    def on_screen_resume(self, event: events.ScreenResume) -> None:
        if self.laid_out:
            run_app_of(self).redraw_all()

    def on_resize(self, event: events.Resize) -> None:
        self._arrange()
        run_app_of(self).redraw_all()
        # Panes that are shown only now will have a size then.
        self.call_after_refresh(self.post_message, Redraw())

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Leave the keys for turns to the clock in a replay."""
        return not (action == "turn" and self.replayed)

    def action_full(self, number: int) -> None:
        """Show one pane in full; the same number again, or 0, shows all."""
        self.full = 0 if number == self.full else number
        self._arrange()
        wanted = self.PANES.get(self.full) or self.OVERVIEW
        self.set_focus(self.query_one(f"#{wanted[0]}"))
        self.call_after_refresh(self.post_message, Redraw())

    def action_next_full(self) -> None:
        """Each pane in full in turn, then all again."""
        numbers = list(self.PANES)
        place = numbers.index(self.full) + 1 if self.full else 0
        self.action_full(numbers[place] if place < len(numbers) else 0)

    def on_pane_title_clicked(self, event: Pane.TitleClicked) -> None:
        """A pane in full, or all panes again."""
        for number, panes in self.PANES.items():
            if event.pane.id in panes:
                self.action_full(number)
                return

    def _classify(self, *, update: bool) -> None:
        """Set all classes at once: each `update` of a screen's classes styles every widget anew."""
        self.update_classes(
            {
                "-roomy": self.roomy,
                "-compact": not self.roomy,
                "-full": bool(self.full),
                "-wide": self.room.width >= 150,
                "-tall": self.room.height >= 40,
                "-vast": self.vast,
            },
            update=update,
        )

    def _arrange(self) -> None:
        if not (self.display and self.app.is_running):
            # It, or the app, was left before it was seen: it loses its panes.
            return
        size = self.room
        tiny = size.width < SMALLEST[0] or size.height < SMALLEST[1]
        self._classify(update=True)
        if tiny:
            self.query_one("#too-small", Static).update(
                Content(
                    f"tbtui needs {SMALLEST[0]} columns and {SMALLEST[1]} rows;\n"
                    f"this window has {size.width} and {size.height}.\n"
                    "Enlarge it; the run goes on meanwhile."
                )
            )
        every = {pane for panes in self.COLUMNS.values() for pane in panes}
        if self.full:
            visible = set(self.PANES[self.full])
        elif self.roomy:
            visible = every
        else:
            visible = set(self.OVERVIEW)
        for pane in every:
            self.query_one(f"#{pane}").display = pane in visible
        for column, panes in self.COLUMNS.items():
            self.query_one(f"#{column}").display = any(pane in visible for pane in panes)
        self.arranged()
        self.query_one("#all").display = not tiny
        self.query_one("#too-small").display = tiny

    def arranged(self) -> None:
        """Called after panes were shown or hidden."""
