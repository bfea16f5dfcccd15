"""What every app of tbtui has (themes, keys, preferences, help), and the apps that show no run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, override

from textual import events
from textual.app import SystemCommand
from textual.filter import LineFilter
from textual.notifications import Notify, SeverityLevel
from textual.screen import Screen
from textual.widgets import Input

from tbtui.resources import guide_pages, themes_dir
from tbtui.ui.drawing.text import first_line, visible, visible_lines
from tbtui.ui.input.abilities import perform
from tbtui.ui.input.keys import CLOCKED, Key, Scope, bindings_of
from tbtui.ui.library import Start, TaskLibrary
from tbtui.ui.notifications import TopicNotification, displaced, outdated
from tbtui.ui.textual_seam import LeanApp
from tbtui.ui.theme.palette import EightBit, Palette
from tbtui.ui.theme.themes import VARIABLE_DEFAULTS, load_themes, textual_theme
from tbtui.ui.user import User, write_preferences

DARK, SIXTEEN = "tbtui-dark", "tbtui-16"

Look = tuple[str, Mapping[str, str]]
"""A theme's name, and its variables."""


class BaseApp[Result](LeanApp[Result]):
    """An app with a person's themes, keys and preferences; their themes go before ours."""

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
        """The theme and the variables that the stylesheet depends on."""
        return self.theme, self.get_css_variables()

    @property
    def styled_for(self) -> Look:
        """The look that a new widget is styled for: a moment behind the theme."""
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
        topic: str = "",
        holds: Callable[[], bool] | None = None,
    ) -> None:
        """Say something for a moment. Wherever its words come from, they are only shown: nothing
        in them is markup, whatever `markup` says, or an escape.

        It takes the place of what was said of the same `topic`, and goes when it no longer `holds`.
        """
        said = TopicNotification(
            "\n".join(visible_lines(message)),
            visible(title),
            severity,
            self.NOTIFICATION_TIMEOUT if timeout is None else timeout,
            markup=False,
            topic=topic,
            holds=holds,
        )
        self.post_message(Notify(said))

    def on_notify(self, event: Notify) -> None:
        # Textual's own handler comes after this one.
        for each in displaced(self.notifications, event.notification):
            self.withdraw(each, refresh=False)

    def withdraw_outdated(self) -> None:
        """Withdraw notifications that are no longer true."""
        for each in outdated(self.notifications):
            self.withdraw(each)

    def report_problems(self) -> None:
        """Show what in a person's files can't be used."""
        # All of a kind in one toast: few stand at once.
        for title, problems in (
            ("Themes that can't be used", self._theme_problems),
            ("Settings that can't be used", self.user.problems),
        ):
            if problems:
                self.notify("\n".join(problems), title=title, severity="warning", markup=False)

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

    @property
    def theme_names(self) -> Sequence[str]:
        return list(self._palettes)

    def keys_here(self, screen: Screen[Any] | None = None) -> Sequence[Key]:
        """Return the keys that a screen has now; by default, the one on top."""
        from tbtui.ui.context import ScopedScreen

        screen = screen or self.screen
        scopes = (*screen.SCOPES, "panes") if isinstance(screen, ScopedScreen) else ("everywhere",)
        return self.keys_on_screen(*scopes)

    def action_next_theme(self) -> None:
        names = list(self._palettes)
        here = names.index(self.theme) if self.theme in names else -1
        self.use_theme(names[(here + 1) % len(names)])

    def use_theme(self, name: str) -> None:
        self.theme = name
        self.remember(theme=name)

    def action_help(self) -> None:
        from tbtui.ui.context import ScopedScreen
        from tbtui.ui.screens.help import HelpDialog

        here = self.screen.SCOPES if isinstance(self.screen, ScopedScreen) else ()
        clock: tuple[Scope, ...] = () if CLOCKED.isdisjoint(here) else ("replay",)
        own = [scope for scope in here if scope != "everywhere"]
        self.push_screen(
            HelpDialog(self.keys_met(self.user.keys.keys), (*own, *clock, "everywhere"))
        )

    def show_guide(self, page: str = "index") -> None:
        """Show a page of the guide over what is shown now."""
        from tbtui.ui.screens.guide import GuideScreen

        self.push_screen(GuideScreen(page))

    @override
    def action_command_palette(self) -> None:
        from tbtui.ui.textual_seam import CommandPalette

        if self.use_command_palette and not isinstance(self.screen, CommandPalette):
            self.push_screen(CommandPalette(id="--command-palette"))

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        # Not the screen on top: that may be the palette itself by now.
        for key in self.keys_here(screen):
            if not key.palette:
                continue
            yield SystemCommand(
                f"{key.label} ({key.shown})", key.help, partial(perform, screen, key)
            )
        for page in guide_pages():
            yield SystemCommand(
                f"guide {page}",
                "Read this page of the guide",
                partial(self.show_guide, page),
                discover=False,
            )
        for name in self._palettes:
            yield SystemCommand(
                f"theme {name}", "Use this theme", partial(self.use_theme, name), discover=False
            )

    def keys_met(self, keys: Iterable[Key]) -> list[Key]:
        """Return those of the keys that this app has now."""
        return list(keys)

    def keys_on_screen(self, *scopes: Scope) -> list[Key]:
        """Return the keys of a screen with these scopes."""
        return self.keys_met(self.user.keys.in_scope(*scopes))

    def keys_in_bar(self, *scopes: Scope) -> list[Key]:
        """Return the keys of a screen with these scopes that have a rank in the key bar."""
        return [key for key in self.keys_on_screen(*scopes) if key.bar]


_KEYS = ("theme", "help", "quit", "interrupt")


class AppWithoutRun[Result](BaseApp[Result]):
    """An app that every key to leave ends at once."""

    BINDINGS = bindings_of(*_KEYS)
    SCOPES: ClassVar[tuple[Scope, ...]] = ()
    """Scopes of the key table that it has beside the keys of every such app."""

    @override
    def keys_met(self, keys: Iterable[Key]) -> list[Key]:
        return [key for key in keys if key.id in _KEYS or key.scope in self.SCOPES]

    def action_leave(self) -> None:
        self.exit()

    async def action_quit(self) -> None:
        self.exit()

    def action_interrupt(self) -> None:
        self.exit()


class BrowserApp(AppWithoutRun[Start]):
    """Shows a library; `return_value` is the run that is to start, if any."""

    SCOPES = ("library", "library-tree", "library-preview")

    def __init__(
        self,
        library: TaskLibrary,
        *,
        theme_dirs: Sequence[Path] | None = None,
        theme: str | None = None,
        user: User | None = None,
    ) -> None:
        super().__init__(user=user, theme_dirs=theme_dirs, theme=theme)
        self._library = library

    def on_mount(self) -> None:
        from tbtui.ui.screens.tasks import TaskBrowser

        browser = TaskBrowser(self._library, lambda: self.palette, self._start)
        self.push_screen(browser, lambda _: self.exit())
        self.report_problems()

    def _start(self, start: Start) -> None:
        self.exit(start)


class GuideApp(AppWithoutRun[None]):
    """Shows the guide's pages."""

    def __init__(self, page: str, *, user: User | None = None, theme: str | None = None) -> None:
        super().__init__(user=user, theme=theme)
        self._page = page

    def on_mount(self) -> None:
        from tbtui.ui.screens.guide import GuideScreen

        self.push_screen(GuideScreen(self._page), lambda _: self.exit())
