"""One group: its trials side by side, where they part, and what each of them teaches."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult

from tbtui.ui.input.keys import Scope, bindings
from tbtui.ui.panes.key_bar import KeyBar
from tbtui.ui.panes.pane import Frame
from tbtui.ui.panes.sibling_edges import GroupHead, SiblingFoot, SiblingHeads
from tbtui.ui.panes.siblings import SiblingsPane, Spread
from tbtui.ui.screens.base import LiveScreen
from tbtui.ui.screens.trial import TrialScreen
from tbtui.view.current import siblings
from tbtui.view.state import RunState, TrialView


class GroupScreen(LiveScreen):
    """A group's trials; steering keys are meant for the chosen one."""

    SCOPES: ClassVar[tuple[Scope, ...]] = ("group", "siblings", "steering", "everywhere")
    BINDINGS = bindings("group", "steering")
    AUTO_FOCUS = "#siblings"
    OVERVIEW = ("siblings",)

    def __init__(self, trial: str) -> None:
        """The group of this trial, which is chosen at first."""
        super().__init__()
        self.trial: str = trial
        self._group = ""
        self._spread = Spread([trial])

    def compose_panes(self) -> ComposeResult:
        yield GroupHead("head", self._spread)
        yield SiblingHeads("heads", self._spread)
        yield SiblingsPane("siblings", self._spread)
        yield SiblingFoot("foot", self._spread)
        yield KeyBar("keys", *self.SCOPES)

    def show(self, frame: Frame, beat: int) -> None:
        members = self._members(frame.state)
        self.query_one(SiblingsPane).read_on(frame, members)
        if members:
            self.trial = self._spread.names[self._spread.chosen]
            self.query_one(SiblingFoot).make_room(members)
        super().show(frame, beat)

    def _members(self, state: RunState) -> list[TrialView]:
        trial = state.trials.get(self.trial)
        if trial is None:
            # The one that was chosen is no longer kept; others of its group may be.
            group = state.groups.get(self._group)
            left = [name for name in group.trials if name in state.trials] if group else []
            trial = state.trials[left[0]] if left else None
        if trial is None:
            return []
        self._group = trial.group
        return siblings(trial, state)

    def action_back(self) -> None:
        self.dismiss()

    def action_open(self) -> None:
        pane = self.query_one(SiblingsPane)
        cells = pane.cells[self._spread.chosen] if pane.cells else []
        turn = cells[min(self._spread.turn, len(cells) - 1)].turn.turn if cells else None
        self.app.push_screen(TrialScreen(self.trial, turn))

    def on_siblings_pane_opened(self) -> None:
        self.action_open()
