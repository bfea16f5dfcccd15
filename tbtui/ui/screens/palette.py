"""Textual's command palette, with which a double click does what is clicked on once."""

from __future__ import annotations

from textual import command, on
from textual.widgets import Input, OptionList

from tbtui.ui.left_once import LeftOnce


class CommandPalette(command.CommandPalette, LeftOnce[None]):
    @on(OptionList.OptionSelected)
    @on(Input.Submitted)
    def _ignore_when_left(self, event: OptionList.OptionSelected | Input.Submitted) -> None:
        # Before Textual's own handlers.
        if self.app.screen is not self:
            event.prevent_default()
