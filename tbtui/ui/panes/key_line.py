"""The row of keys, for screens that are not drawn from a run's frames."""

from __future__ import annotations

from textual import events
from textual.strip import Strip

from tbtui.ui.base_app import app_of
from tbtui.ui.keys import Scope
from tbtui.ui.painted import Painted
from tbtui.ui.panes.bars import KeyPlace, click_key, key_row
from tbtui.ui.theme import Palette
from tbtui.ui.words import WayBack, keys_in_bar


class KeyLine(Painted):
    """The keys of some scopes, and single ones of others; each can be clicked."""

    def __init__(
        self,
        id: str,
        palette: Palette,
        *scopes: Scope,
        also: tuple[str, ...] = (),
        back: WayBack | None = None,
    ) -> None:
        """`back`: out of the screen's box of words, if it has one."""
        super().__init__(id=id)
        self._back = back
        self._palette = palette
        self._scopes, self._also = scopes, also
        self._places: list[KeyPlace] = []

    def use(self, palette: Palette) -> None:
        self._palette = palette
        self.refresh()

    def render_line(self, y: int) -> Strip:
        app = app_of(self)
        keys = app.keys_in_bar(*self._scopes)
        keys += app.keys_met(key for key in app.user.keys.keys if key.id in self._also)
        keys = keys_in_bar(keys, app.user.keys, self.screen.focused, self._back)
        more = app.user.keys.entry("palette")
        strip, self._places = key_row(keys, more, self.size.width, self._palette)
        return strip.apply_style(self._palette.ground)

    async def on_click(self, event: events.Click) -> None:
        await click_key(self.screen, self._places, event.x)
