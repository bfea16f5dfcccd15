"""A screen is left once, however often it is asked for before it is gone."""

from __future__ import annotations

from typing import override

from textual.await_complete import AwaitComplete
from textual.screen import Screen


class LeftOnce[Result](Screen[Result]):
    """Left with `dismiss`.

    Keys that come fast all reach a screen before it has heard the first of them; Textual would
    take the screen below away for the second one, and call back twice.
    """

    @override
    def dismiss(self, result: Result | None = None) -> AwaitComplete:
        return super().dismiss(result) if self.app.screen is self else AwaitComplete()
