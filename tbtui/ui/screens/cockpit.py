"""The cockpit: the overview of a run."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from textual.app import ComposeResult
from textual.widgets import Input

from tbtui.ui.context import app_of, run_app_of
from tbtui.ui.input.keys import Scope, bindings
from tbtui.ui.panes.bars import StatusLine, Summary
from tbtui.ui.panes.curves import CurvePane
from tbtui.ui.panes.grid import TrialGrid
from tbtui.ui.panes.key_bar import KeyBar, WayBack, WordsLine, filter_line
from tbtui.ui.panes.pane import Redraw
from tbtui.ui.panes.queue import QueuePane
from tbtui.ui.panes.step import NotesPane, RewardPane, TimesPane
from tbtui.ui.panes.tasks import TaskPane
from tbtui.ui.panes.terminal import TerminalPane
from tbtui.ui.panes.timeline import TimelinePane
from tbtui.ui.panes.tokens import TokenPane
from tbtui.ui.panes.turns import SelectedTurnPane
from tbtui.ui.screens.base import LiveScreen
from tbtui.ui.textual_seam import Columns, Rows
from tbtui.view.listing import Filter, Listing

_TALL = 48
"""Rows from which on the right column has room for every pane."""


class Cockpit(LiveScreen):
    SCOPES: ClassVar[tuple[Scope, ...]] = ("cockpit", "steering", "everywhere")
    BINDINGS = bindings("cockpit", "steering")
    AUTO_FOCUS = "#trials"
    OVERVIEW = ("trials",)
    PANES: ClassVar[dict[int, tuple[str, ...]]] = {
        1: ("tasks",),
        2: ("terminal",),
        3: ("tokens",),
        4: ("curve",),
        5: ("queue",),
        6: ("rewards", "timeline", "times", "notes"),
    }
    COLUMNS: ClassVar[dict[str, tuple[str, ...]]] = {
        "left": ("tasks", "queue"),
        "middle": ("trials", "terminal", "turns", "tokens"),
        "selected": ("terminal", "turns"),
        "right": ("rewards", "curve", "timeline", "times", "notes"),
    }

    def __init__(self, listing: Listing) -> None:
        """`listing`: which trials the grid shows; the keys here change it."""
        super().__init__()
        self.listing = listing

    def compose_panes(self) -> ComposeResult:
        yield StatusLine("status")
        with Columns(id="columns"):
            with Rows(id="left"):
                yield TaskPane("tasks")
                yield QueuePane("queue")
            with Rows(id="middle"):
                yield TrialGrid("trials")
                with Columns(id="selected"):
                    yield TerminalPane("terminal")
                    yield SelectedTurnPane("turns")
                yield TokenPane("tokens")
            with Rows(id="right"):
                yield RewardPane("rewards")
                yield CurvePane("curve")
                yield TimelinePane("timeline")
                yield TimesPane("times")
                yield NotesPane("notes")
        yield Summary("summary")
        yield KeyBar("keys", *self.SCOPES, back=WayBack("overview", "show all"))

    def on_mount(self) -> None:
        remembered = app_of(self).user.preferences.full
        # Textual calls the base class's own after this, which arranges the panes.
        self.full = remembered if remembered in self.PANES else 0

    def action_full(self, number: int) -> None:
        super().action_full(number)
        app_of(self).remember(full=self.full)

    def arranged(self) -> None:
        self.query_one("#summary").display = not self.roomy and not self.full
        if not self.vast or self.full:
            self.query_one("#turns").display = False
        if self.roomy and not self.full and self.room.height < _TALL:
            # The curves and the timeline say more of a run than its trials' average does.
            self.query_one("#times").display = False

    def on_summary_chosen(self, event: Summary.Chosen) -> None:
        """Show the pane of a clicked line: rewards, pass rates or queue."""
        self.action_full((6, 4, 5)[event.line])

    def on_reward_pane_chosen(self, event: RewardPane.Chosen) -> None:
        self._filter(replace(self.listing.filter, rewards=event.rewards))

    def on_task_pane_chosen(self, event: TaskPane.Chosen) -> None:
        self.listing.by_task(event.kind, event.task, event.dataset)
        self.post_message(Redraw())

    def on_task_pane_weighted(self, event: TaskPane.Weighted) -> None:
        steering = run_app_of(self).steering
        if event.arguments:
            steering.submit("set", event.target, event.target, arguments=event.arguments)
        else:
            steering.ask_weight(event.target)

    def on_input_changed(self, event: Input.Changed) -> None:
        self._filter(replace(self.listing.filter, words=event.value.strip()))

    def on_input_submitted(self) -> None:
        self._close_box()

    def _filter(self, wanted: Filter) -> None:
        if wanted != self.listing.filter:
            self.listing.filter = wanted
            self.post_message(Redraw())

    async def action_filter(self) -> None:
        """Open the box for a filter's words."""
        if self.full:
            self.action_full(0)
        if not self.query(WordsLine):
            line = filter_line(self.listing.filter.words, "words of a task, state or outcome")
            await self.query_one("#middle").mount(line, after="#trials")
        self.set_focus(self.query_one("#filter"))

    def _close_box(self) -> None:
        self.query(WordsLine).remove()
        if not self.full:
            self.set_focus(self.query_one("#trials"))

    def action_order(self) -> None:
        self.listing.next_order()
        app_of(self).remember(order=self.listing.order)
        self.post_message(Redraw())

    def action_back(self) -> None:
        """Go from one pane to the overview; there, close what was opened, then clear the filter."""
        if self.full:
            self.action_full(0)
            return
        if not self.query(WordsLine) and (
            run_app_of(self).end_tour() or self.query_one(TrialGrid).close_tiles()
        ):
            return
        self._close_box()
        self._filter(Filter())

    async def action_open(self) -> None:
        """Open the selected group's tiles; where they are, the selected trial."""
        if not self.query_one(TrialGrid).open_tiles():
            await self.run_action("app.open_trial")

    async def on_trial_grid_opened(self) -> None:
        await self.action_open()
