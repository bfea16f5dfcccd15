"""A screen's first paint shows what the screen has to say."""

from __future__ import annotations

from contextlib import ExitStack
from typing import override

from textual import events
from textual.await_remove import AwaitRemove

from tbtui.ui.left_once import LeftOnce


class FirstPaint[Result](LeftOnce[Result]):
    """Not painted before its widgets have drawn themselves.

    Textual lays a new screen out and paints it; only then are its widgets told their sizes, and
    what they draw for those takes one more layout and paint. Until the first paint is out, nothing
    answers the key that opened the screen.
    """

    def __init__(
        self, name: str | None = None, id: str | None = None, classes: str | None = None
    ) -> None:
        super().__init__(name, id, classes)
        self._laid_out = False
        self._unpainted = ExitStack()

    @property
    def laid_out(self) -> bool:
        """Its widgets have sizes."""
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

    @override
    def remove(self) -> AwaitRemove:
        # Textual's own lays out and paints the screen below once more: it has just been painted.
        return self.app._prune(self)

    def on_screen_suspend(self) -> None:
        self._unpainted.close()

    def on_unmount(self) -> None:
        self._unpainted.close()
