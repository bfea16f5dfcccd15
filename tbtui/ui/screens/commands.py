"""What people and scripts have asked of the run, and what came of it."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult

from tbtui.ui.ground import Rows
from tbtui.ui.keys import Scope, bindings
from tbtui.ui.panes.bars import KeyBar, StatusLine
from tbtui.ui.panes.commands import CommandPane
from tbtui.ui.screens.base import LiveScreen


class CommandScreen(LiveScreen):
    SCOPES: ClassVar[tuple[Scope, ...]] = ("commands", "everywhere")
    BINDINGS = bindings("commands")
    AUTO_FOCUS = "#given"
    OVERVIEW = ("given",)
    COLUMNS: ClassVar[dict[str, tuple[str, ...]]] = {"list": ("given",)}

    def compose_panes(self) -> ComposeResult:
        yield StatusLine("status")
        with Rows(id="list"):
            yield CommandPane("given")
        yield KeyBar("keys", *self.SCOPES)

    def action_back(self) -> None:
        self.dismiss()
