"""Every place where the app relies on what Textual keeps private, or does otherwise than Textual.

One module, and in it one list of those parts: `drift` names what another Textual has changed, and a
test calls it.
"""

from __future__ import annotations

import inspect
import os
import selectors
from codecs import getincrementaldecoder
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from typing import Any, override

from rich.style import Style
from textual import command, constants, events, on
from textual._xterm_parser import XTermParser
from textual.app import App
from textual.await_complete import AwaitComplete
from textual.await_remove import AwaitRemove
from textual.containers import Horizontal, Vertical
from textual.driver import Driver
from textual.drivers.linux_driver import LinuxDriver
from textual.geometry import Region, Size
from textual.notifications import Notification
from textual.screen import Screen
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widget import Widget
from textual.widgets import Input, OptionList

from tbtui.imports import missing_parts


class PaintedRow(Strip):
    """A row as a widget hands it to Textual's compositor.

    A Strip remembers how it was cut. One that is painted whole thus remembers itself: a cycle,
    which only the collector frees. Measured without it: a whole paint of 220 x 60 leaves
    some 2,000 objects in cycles; its CPU time is the same.
    """

    __slots__ = ()

    @override
    def divide(self, cuts: Iterable[int]) -> Sequence[Strip]:
        cuts = list(cuts)  # in ascending order; those beyond its end don't count
        return [self] if cuts[:1] == [self.cell_length] else super().divide(cuts)


class Painted(Widget):
    """A widget whose rows are `PaintedRow`s. (A subclass names it last: Textual looks for the
    styles of a class only at its first base.)"""

    @override
    def render_lines(self, crop: Region) -> list[Strip]:
        strips = super().render_lines(crop)
        for strip in strips:
            # It is what Textual keeps for the next paint, too: a copy would be made every time.
            strip.__class__ = PaintedRow
        return strips


def cropped(strip: Strip, left: int, width: int, style: Style | None = None) -> Strip:
    """Return a strip's cells from `left` on; `style` lies where it has none.

    One that is as wide as that already is handed back, and unlike `Strip.crop_extend` doesn't
    remember itself for it. Measured without it: a frame of 64 live terminals leaves twice as
    many objects in cycles, 440 to 760; its CPU time is the same.
    """
    if left == 0 and strip.cell_length == width:
        return strip
    return strip.crop_extend(left, left + width, style)


class Ground(Painted):
    """A widget with nothing on it but its children: Textual makes one row for all of it."""

    BLANK = True


class Columns(Horizontal, Ground):
    """Panes side by side."""


class Rows(Vertical, Ground):
    """Panes one below the other."""


_IDLE_SEC = 0.1
"""How often to check whether the app has ended."""


class LeanApp[Result](App[Result]):
    """An app that draws nothing that can't be seen, and takes keys in the order of their presses.

    It names what Textual keeps private and the app has to know.
    """

    def __init__(self) -> None:
        self._keys: deque[events.Key] = deque()
        """Those that wait for their turn."""
        super().__init__()

    @override
    def get_driver_class(self) -> type[Driver]:
        # A browser's and a test's have no terminal.
        chosen = super().get_driver_class()
        return PromptDriver if chosen is LinuxDriver else chosen

    @property
    @override
    def _background_screens(self) -> list[Screen[Any]]:
        # Textual goes on laying out and drawing the screen below one that nothing shines through,
        # and paints the upper one anew each time: 26 ms a layout. While a run goes on, nothing lays
        # out the cockpit below another screen: nothing is measured there (0.9 to 1.07).
        return super()._background_screens if self.screen.styles.background.a < 1 else []

    @override
    def pop_screen(self) -> AwaitComplete:
        # Textual would only do that once the screen has lost its panes, and what is read for them
        # on a thread may come before.
        self.workers.cancel_node(self.screen)
        return super().pop_screen()

    @override
    async def on_event(self, event: events.Event) -> None:
        if isinstance(event, events.Key) and not event.is_forwarded:
            self._keys.append(event)
            await self._take_keys()
        else:
            await super().on_event(event)

    async def _take_keys(self) -> None:
        # A screen that has just been pushed has no focus yet, and would lose them.
        while self._keys and self.screen.is_mounted:
            await super().on_event(self._keys.popleft())
        if self._keys:
            self.screen.call_later(self.call_later, self._take_keys)

    @override
    async def _check_bindings(self, key: str, priority: bool = False) -> bool:
        # Textual hands a key to what has the focus, and looks for its binding once it has gone up
        # from there, message by message. Those that come meanwhile go to the same widget: of
        # `/rm` typed fast, `r` and `m` would be commands. Only what takes text has to see them.
        if not priority or (self.focused and self.focused.check_consume_key("a", "a")):
            return await super()._check_bindings(key, priority)
        if not await super()._check_bindings(key, priority=True):
            await super()._check_bindings(key)
        return True

    @property
    def crash(self) -> Exception | None:
        """The exception that broke the app itself; None: none has."""
        return self._exception

    @property
    def notifications(self) -> list[Notification]:
        """The notifications that are shown now."""
        return list(self._notifications)

    def withdraw(self, notification: Notification, *, refresh: bool = True) -> None:
        """Remove a notification."""
        self._unnotify(notification, refresh=refresh)

    def write_escape(self, escape: str) -> None:
        """Send an escape sequence to the terminal."""
        if self._driver is not None:
            self._driver.write(escape)

    def style_screen(self, screen: Screen[Any]) -> None:
        """Compose and style a screen that is not shown yet: what `push_screen` begins with."""
        self._get_screen(screen)


class PromptDriver(LinuxDriver):
    """Textual's own looks every 100 ms whether an escape was a key or the beginning of something;
    this one as soon as the wait for the rest is over, `ESCDELAY`."""

    @override
    def run_input_thread(self) -> None:
        parser = XTermParser(constants.DEBUG)
        decode = getincrementaldecoder("utf-8")(errors="replace").decode
        with selectors.SelectSelector() as selector:
            selector.register(self.fileno, selectors.EVENT_READ)
            wait = _IDLE_SEC
            while not self.exit_event.is_set():
                if selector.select(wait):
                    if not (data := os.read(self.fileno, 4096)):
                        return
                    if text := decode(data):  # to the parser, nothing means the end
                        for message in parser.feed(text):
                            self.process_message(message)
                    wait = constants.ESCAPE_DELAY
                else:
                    # Never while there is more to be read: the app may have held this thread up
                    # for longer than an escape is waited with, between the halves of a sequence.
                    for message in parser.tick():
                        self.process_message(message)
                    wait = _IDLE_SEC


class DismissOnceScreen[Result](Screen[Result]):
    """A screen that is dismissed once, however often it is asked for before it is gone.

    Keys that come fast all reach a screen before it has heard the first of them; Textual would
    take the screen below away for the second one, and call back twice.
    """

    @override
    def dismiss(self, result: Result | None = None) -> AwaitComplete:
        return super().dismiss(result) if self.app.screen is self else AwaitComplete()

    def _on_prune(self) -> None:
        # Textual ends a screen's workers once its widgets are gone: one that comes back from a
        # thread in between would look for them in vain.
        self.workers.cancel_node(self)


class BufferedScreen[Result](DismissOnceScreen[Result]):
    """A screen that is not painted before its widgets have drawn themselves.

    Textual lays a new screen out and paints it; only then do its widgets learn their sizes, and
    what they draw for those takes one more layout and paint. Until the first paint is out, nothing
    answers the key that opened the screen. Measured: it spares no CPU time (without it 0.92); the
    first thing that is seen is the whole screen.
    """

    def __init__(
        self, name: str | None = None, id: str | None = None, classes: str | None = None
    ) -> None:
        super().__init__(name, id, classes)
        self._laid_out = False
        self._unpainted = ExitStack()

    @property
    def laid_out(self) -> bool:
        """Whether its widgets have sizes."""
        return self._laid_out

    def on_screen_resume(self, event: events.ScreenResume) -> None:
        # Textual's own handlers come after these: this one lays it out,
        if not self._laid_out:
            event.refresh_styles = False  # it was styled a moment ago
            self._unpainted.enter_context(self.app.batch_update())

    def on_resize(self, event: events.Resize) -> None:
        # and this one again, with what its widgets have drawn, and paints it.
        self._laid_out = True
        self._unpainted.close()

    def run_went_on(self) -> None:
        """Called with every frame: what is known of the shown run may have changed."""

    @override
    def remove(self) -> AwaitRemove:
        # Textual's own lays out and paints the screen below once more: it has just been painted. A
        # whole paint, which in CPU time of opening and going back is lost in the noise (1.04).
        return self.app._prune(self)

    def on_screen_suspend(self) -> None:
        self._unpainted.close()

    def on_unmount(self) -> None:
        self._unpainted.close()


class RowsView(ScrollView, Painted):
    """A view of rows that scrolls, laid out anew only when something moves."""

    def extend(self, extent: Size) -> None:
        """Set how many columns and rows there are to scroll in.

        Measured without it: a key in the cockpit takes 1.3 times the CPU time (1.06 to 1.39 in five
        pairs), opening a trial and going back 1.2 times (1.05 to 1.60).
        """
        scrolls = extent.height > self.container_size.height
        if scrolls == self.show_vertical_scrollbar and extent.width == self.virtual_size.width:
            # Nothing moves. Textual would lay out the whole screen for it, and paint it anew.
            self.set_reactive(ScrollView.virtual_size, extent)
        else:
            self.virtual_size = extent
        # A layout alone leaves the scroll bar, and its column, where the rows now fill the pane.
        self._scroll_update(extent)

    def title_clicked(self) -> None:
        """Called for a click on the upper edge."""

    async def _on_click(self, event: events.Click) -> None:
        # Textual calls this beside a subclass's own `on_click`.
        if event.y < self.gutter.top:
            self.title_clicked()


class Choices(OptionList):
    """A list in which a click chooses an option and one more takes it."""

    async def _on_click(self, event: events.Click) -> None:
        clicked = event.style.meta.get("option")
        if clicked is not None and clicked != self.highlighted:
            self.highlighted = clicked
            event.prevent_default()


class CommandPalette(command.CommandPalette, DismissOnceScreen[None]):
    @on(OptionList.OptionSelected)
    @on(Input.Submitted)
    def _ignore_when_left(self, event: OptionList.OptionSelected | Input.Submitted) -> None:
        # Before Textual's own handlers.
        if self.app.screen is not self:
            event.prevent_default()


_METHODS: dict[str, tuple[Callable[..., Any], tuple[str, ...]]] = {
    "App._check_bindings": (App._check_bindings, ("key", "priority")),
    "App._get_screen": (App._get_screen, ("screen",)),
    "App._prune": (App._prune, ("nodes",)),
    "App._unnotify": (App._unnotify, ("notification", "refresh")),
    "App.on_event": (App.on_event, ("event",)),
    "App.pop_screen": (App.pop_screen, ()),
    "Driver.process_message": (Driver.process_message, ("message",)),
    "LinuxDriver.run_input_thread": (LinuxDriver.run_input_thread, ()),
    "OptionList._on_click": (OptionList._on_click, ("event",)),
    "Screen.dismiss": (Screen.dismiss, ("result",)),
    "Strip.crop_extend": (Strip.crop_extend, ("start", "end", "style")),
    "Strip.divide": (Strip.divide, ("cuts",)),
    "Widget._scroll_update": (Widget._scroll_update, ("virtual_size",)),
    "Widget.remove": (Widget.remove, ()),
    "Widget.render_lines": (Widget.render_lines, ("crop",)),
    "Widget.set_reactive": (Widget.set_reactive, ("reactive", "value")),
    "XTermParser": (XTermParser.__init__, ("debug",)),
    "XTermParser.feed": (XTermParser.feed, ("data",)),
    "XTermParser.tick": (XTermParser.tick, ()),
    "events.ScreenResume": (events.ScreenResume.__init__, ("refresh_styles",)),
}
_ATTRIBUTES: dict[str, tuple[type, tuple[str, ...]]] = {
    "App": (App, ("_driver", "_exception", "_notifications")),
    "LinuxDriver": (LinuxDriver, ("exit_event", "fileno")),
}
_PROPERTIES: dict[str, tuple[type, str]] = {
    "App._background_screens": (App, "_background_screens"),
}


def drift() -> list[str]:
    """Return what in the installed Textual is missing or has lost a parameter."""
    return missing_parts(_METHODS, _ATTRIBUTES) + [
        f"{name} is no property"
        for name, (owner, attribute) in _PROPERTIES.items()
        if not isinstance(inspect.getattr_static(owner, attribute), property)
    ]
