"""The apps that show no run: the task browser's and the guide's."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import override

from tbtui.ui.base_app import BaseApp
from tbtui.ui.input.keys import Key, bindings_of
from tbtui.ui.library import Start, TaskLibrary
from tbtui.ui.user import User

_KEYS = ("theme", "help", "quit", "interrupt")


class AppWithoutRun[Result](BaseApp[Result]):
    """An app that is left at once by whatever leaves it: nothing goes on."""

    BINDINGS = bindings_of(*_KEYS)

    @override
    def keys_met(self, keys: Iterable[Key]) -> list[Key]:
        return [key for key in keys if key.id in _KEYS]

    def action_leave(self) -> None:
        self.exit()

    async def action_quit(self) -> None:
        self.exit()

    def action_interrupt(self) -> None:
        self.exit()


class BrowserApp(AppWithoutRun[Start]):
    """Shows a library; `return_value` is the run that is to start, if any."""

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

    @override
    def keys_met(self, keys: Iterable[Key]) -> list[Key]:
        return [key for key in keys if key.id in _KEYS or key.scope.startswith("library")]

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
