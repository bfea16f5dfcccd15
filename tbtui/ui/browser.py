"""The task browser as an app of its own, without a run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from tbtui.ui.base_app import BaseApp
from tbtui.ui.keys import Key, bindings_of
from tbtui.ui.library import Start, TaskLibrary
from tbtui.ui.screens.tasks import TaskBrowser
from tbtui.ui.user import User

_KEYS = ("theme", "help", "quit", "interrupt")


class BrowserApp(BaseApp[Start]):
    """Shows a library; `return_value` is the run that is to start, if any."""

    BINDINGS = bindings_of(*_KEYS)

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

    def keys_met(self, keys: Iterable[Key]) -> list[Key]:
        return [key for key in keys if key.id in _KEYS or key.scope.startswith("library")]

    def on_mount(self) -> None:
        browser = TaskBrowser(self._library, lambda: self.palette, self._start)
        self.push_screen(browser, lambda _: self.exit())
        self.report_problems()

    def _start(self, start: Start) -> None:
        self.exit(start)

    def action_leave(self) -> None:
        self.exit()

    async def action_quit(self) -> None:
        self.exit()

    def action_interrupt(self) -> None:
        self.exit()
