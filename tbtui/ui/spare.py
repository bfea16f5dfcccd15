"""A trial's screen, made before anybody asks for one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tbtui.ui.base_app import BaseApp, Look
    from tbtui.ui.screens.trial import TrialScreen


class SpareScreen:
    """To compose and style it is a quarter of what `enter` would have to wait for.

    One that has been taken is shown once, as any other, and goes when it is left.
    """

    def __init__(self, app: BaseApp[Any]) -> None:
        self._app = app
        self._screen: TrialScreen | None = None
        self._look: Look | None = None
        """That it was styled for."""

    def prepare(self) -> bool:
        """Make one, if there is none that would do, and say so: 20 ms of the loop."""
        from tbtui.ui.screens.trial import TrialScreen

        if self._screen is not None and self._look == self._app.styled_for:
            return False
        self._discard()
        self._screen, self._look = TrialScreen(), self._app.styled_for
        # What `push_screen` does with a new one; Textual has no name of its own for this alone.
        self._app._get_screen(self._screen)
        return True

    def take(self) -> TrialScreen:
        """The one that was made, or else a new one."""
        from tbtui.ui.screens.trial import TrialScreen

        if self._look != self._app.styled_for:
            self._discard()
        taken, self._screen = self._screen, None
        return taken or TrialScreen()

    def _discard(self) -> None:
        if self._screen is not None:
            self._screen.remove()
            self._screen = None
