"""What every app of tbtui has: a person's themes, keys and preferences; help; the palette."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, override

from textual import events
from textual.app import App, SystemCommand
from textual.await_complete import AwaitComplete
from textual.dom import DOMNode
from textual.driver import Driver
from textual.drivers.linux_driver import LinuxDriver
from textual.filter import LineFilter
from textual.notifications import SeverityLevel
from textual.screen import Screen
from textual.theme import Theme
from textual.widgets import Input

from tbtui.resources import themes_dir
from tbtui.ui.driver import PromptDriver
from tbtui.ui.eight_bit import EightBit
from tbtui.ui.keys import Key, Scope
from tbtui.ui.perform import perform
from tbtui.ui.preferences import write_preferences
from tbtui.ui.text import first_line, visible, visible_lines
from tbtui.ui.theme import VARIABLE_DEFAULTS, Palette, load_themes, textual_theme
from tbtui.ui.user import User

DARK, SIXTEEN = "tbtui-dark", "tbtui-16"

Look = tuple[str, Mapping[str, str]]
"""A theme's name, and its variables."""


class BaseApp[Result](App[Result]):
    """Themes are those of the app and the person's own, which replace others of their name."""

    CSS_PATH = Path(__file__).with_name("style.tcss")
    TITLE = "tbtui"
    ALLOW_SELECT = False  # a drag moves a clock, and ctrl-c, Textual's key to copy, stops the run

    def __init__(
        self,
        *,
        user: User | None = None,
        theme_dirs: Sequence[Path] | None = None,
        theme: str | None = None,
    ) -> None:
        """Without `theme`: the one last chosen, else one that the terminal can show."""
        self._current_theme: Theme | None = None
        super().__init__()
        self.user = user or User()
        self._eight_bit = EightBit(self._color_system == "256")
        bundled = theme_dirs if theme_dirs is not None else (themes_dir(),)
        themes = load_themes(*bundled, *self.user.theme_dirs)
        self._palettes = {name: Palette(file) for name, file in themes.files.items()}
        self._theme_problems = themes.problems
        for file in themes.files.values():
            self.register_theme(textual_theme(file))
        wanted = theme or self.user.preferences.theme or self._theme_for_terminal()
        self.theme = wanted if wanted in self._palettes else self._first_theme()
        self._styled_for = self._look
        self.stylesheet.set_variables(self.get_css_variables())
        if self.user.keys.changed:
            self.set_keymap(dict(self.user.keys.changed))

    @override
    def get_driver_class(self) -> type[Driver]:
        # A browser's and a test's have no terminal.
        chosen = super().get_driver_class()
        return PromptDriver if chosen is LinuxDriver else chosen

    @property
    @override
    def current_theme(self) -> Theme:
        # Textual asks for it at every row that it paints, and looks through all of them each time.
        if self._current_theme is None or self._current_theme.name != self.theme:
            self._current_theme = super().current_theme
        return self._current_theme

    @property
    @override
    def _background_screens(self) -> list[Screen[Any]]:
        # Textual goes on laying out and drawing the screen below one that nothing shines through,
        # and paints the upper one anew each time.
        return super()._background_screens if self.screen.styles.background.a < 1 else []

    @property
    def _color_system(self) -> str | None:
        # Nobody in particular gets the same everywhere.
        return None if self.user.remembered_in is None else self.console.color_system

    @override
    def get_line_filters(self) -> Sequence[LineFilter]:
        filters = super().get_line_filters()
        return [*filters, self._eight_bit] if self._eight_bit.enabled else filters

    def _theme_for_terminal(self) -> str:
        return SIXTEEN if self._color_system == "standard" else DARK

    def _first_theme(self) -> str:
        return DARK if DARK in self._palettes else next(iter(self._palettes))

    def get_theme_variable_defaults(self) -> dict[str, str]:
        """Our own variables, for Textual's built-in themes, which lack them."""
        return dict(VARIABLE_DEFAULTS)

    @property
    def _look(self) -> Look:
        """What the stylesheet depends on."""
        return self.theme, self.get_css_variables()

    @property
    def styled_for(self) -> Look:
        """What a new widget is styled for: a moment behind the theme."""
        return self._styled_for

    @override
    def refresh_css(self, animate: bool = True) -> None:
        # Textual parses all of it once more for the theme that the app began with.
        if (look := self._look) != self._styled_for:
            self._styled_for = look
            super().refresh_css(animate)

    @property
    def palette(self) -> Palette:
        """The colours in use; Textual's own themes have none of ours and borrow the dark one's."""
        return self._palettes.get(self.theme) or self._palettes[self._first_theme()]

    @override
    async def on_event(self, event: events.Event) -> None:
        if isinstance(event, events.Paste) and isinstance(self.focused, Input):
            # Textual's boxes take escapes, too, and would send them to the terminal.
            event.text = first_line(event.text)
        await super().on_event(event)

    @override
    def notify(
        self,
        message: str,
        *,
        title: str = "",
        severity: SeverityLevel = "information",
        timeout: float | None = None,
        markup: bool = False,
    ) -> None:
        """Say something for a moment. Wherever its words come from, they are only shown: nothing
        in them is markup, whatever `markup` says, or an escape."""
        super().notify(
            "\n".join(visible_lines(message)),
            title=visible(title),
            severity=severity,
            timeout=timeout,
            markup=False,
        )

    def report_problems(self) -> None:
        """Say what in a person's files can't be followed."""
        for problem in self._theme_problems:
            self.notify(problem, title="A theme was left out", severity="warning", markup=False)
        for problem in self.user.problems:
            self.notify(problem, title="Left as it was", severity="warning", markup=False)

    def remember(self, **changed: Any) -> None:
        """Keep preferences for the next time."""
        preferences = self.user.preferences
        for name, value in changed.items():
            setattr(preferences, name, value)
        if self.user.remembered_in is None:
            return
        try:
            write_preferences(self.user.remembered_in, preferences)
        except OSError as error:
            self.log.warning(f"preferences can't be kept: {error}")

    def action_next_theme(self) -> None:
        names = list(self._palettes)
        here = names.index(self.theme) if self.theme in names else -1
        self.use_theme(names[(here + 1) % len(names)])

    def use_theme(self, name: str) -> None:
        self.theme = name
        self.remember(theme=name)

    def action_help(self) -> None:
        from tbtui.ui.screens.base import ScopedScreen
        from tbtui.ui.screens.dialogs import HelpDialog

        here = self.screen.SCOPES if isinstance(self.screen, ScopedScreen) else ()
        self.push_screen(HelpDialog(self.keys_met(self.user.keys.keys), here))

    @override
    def pop_screen(self) -> AwaitComplete:
        # Textual would only do that once the screen has lost its panes, and what is read for them
        # on a thread may come before.
        self.workers.cancel_node(self.screen)
        return super().pop_screen()

    @override
    def action_command_palette(self) -> None:
        from tbtui.ui.screens.palette import CommandPalette

        if self.use_command_palette and not isinstance(self.screen, CommandPalette):
            self.push_screen(CommandPalette(id="--command-palette"))

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        from tbtui.ui.screens.base import ScopedScreen

        scopes = (*screen.SCOPES, "panes") if isinstance(screen, ScopedScreen) else ("everywhere",)
        for key in self.keys_on_screen(*scopes):
            if not key.palette:
                continue
            yield SystemCommand(
                f"{key.label} ({key.shown})", key.help, partial(perform, screen, key)
            )
        for name in self._palettes:
            yield SystemCommand(
                f"theme {name}", "Use this theme", partial(self.use_theme, name), discover=False
            )

    def keys_met(self, keys: Iterable[Key]) -> list[Key]:
        """Those of the keys that there are in this app, now."""
        return list(keys)

    def keys_on_screen(self, *scopes: Scope) -> list[Key]:
        """The keys of a screen with these scopes."""
        return self.keys_met(self.user.keys.in_scope(*scopes))

    def keys_in_bar(self, *scopes: Scope) -> list[Key]:
        """Those of them that the key bar has room for, by their rank."""
        return [key for key in self.keys_on_screen(*scopes) if key.bar]


def app_of(node: DOMNode) -> BaseApp[Any]:
    """The app that a screen or pane of ours is in."""
    app: object = node.app
    assert isinstance(app, BaseApp)
    return app
