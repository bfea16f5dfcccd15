"""The cockpit: everything that happens in the run, at one look."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical

from tbtui.ui.keys import Scope, bindings
from tbtui.ui.panes.bars import KeyBar, StatusLine, Summary
from tbtui.ui.panes.facts import NotesPane, TimesPane
from tbtui.ui.panes.grid import TrialGrid
from tbtui.ui.panes.queue import QueuePane
from tbtui.ui.panes.rewards import CurvePane, RewardPane
from tbtui.ui.panes.tasks import TaskPane
from tbtui.ui.panes.terminal import TerminalPane
from tbtui.ui.panes.tokens import TokenPane
from tbtui.ui.screens.base import LiveScreen


class Cockpit(LiveScreen):
    SCOPES: ClassVar[tuple[Scope, ...]] = ("cockpit", "steering", "everywhere")
    BINDINGS = bindings("cockpit", "steering")
    AUTO_FOCUS = "#trials"
    OVERVIEW = ("trials",)
    PANES: ClassVar[dict[int, tuple[str, ...]]] = {
        1: ("tasks",),
        2: ("terminal",),
        3: ("tokens",),
        4: ("rewards", "curve", "times", "notes"),
        5: ("queue",),
    }
    COLUMNS: ClassVar[dict[str, tuple[str, ...]]] = {
        "left": ("tasks", "queue"),
        "middle": ("trials", "terminal", "tokens"),
        "right": ("rewards", "curve", "times", "notes"),
    }

    def compose_panes(self) -> ComposeResult:
        yield StatusLine("status")
        with Horizontal(id="columns"):
            with Vertical(id="left"):
                yield TaskPane("tasks")
                yield QueuePane("queue")
            with Vertical(id="middle"):
                yield TrialGrid("trials")
                yield TerminalPane("terminal")
                yield TokenPane("tokens")
            with Vertical(id="right"):
                yield RewardPane("rewards")
                yield CurvePane("curve")
                yield TimesPane("times")
                yield NotesPane("notes")
        yield Summary("summary")
        yield KeyBar("keys", *self.SCOPES)

    def arranged(self) -> None:
        self.query_one("#summary").display = not self.roomy and not self.full

    async def action_open(self) -> None:
        await self.run_action("app.open_trial")

    async def on_trial_grid_opened(self) -> None:
        await self.run_action("app.open_trial")
