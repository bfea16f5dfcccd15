"""One trial: its terminal, its turns, its tokens."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical

from tbtui.ui.keys import bindings
from tbtui.ui.pane import Frame, Redraw
from tbtui.ui.panes.bars import KeyBar, TrialHead
from tbtui.ui.panes.terminal import TerminalPane
from tbtui.ui.panes.tokens import TokenPane
from tbtui.ui.panes.turns import TurnPane
from tbtui.ui.screens.base import LiveScreen


class TrialScreen(LiveScreen):
    """Follows the newest turn until somebody chooses another."""

    BINDINGS = bindings("trial")
    AUTO_FOCUS = "#turns"
    OVERVIEW = ("turns", "terminal", "tokens")
    PANES: ClassVar[dict[int, tuple[str, ...]]] = {
        1: ("terminal",),
        2: ("turns",),
        3: ("tokens",),
    }
    COLUMNS: ClassVar[dict[str, tuple[str, ...]]] = {
        "upper": ("terminal", "turns"),
        "lower": ("tokens",),
    }

    def __init__(self, trial: str) -> None:
        super().__init__()
        self.trial = trial
        self._version = -1

    def compose_panes(self) -> ComposeResult:
        yield TrialHead("head")
        with Horizontal(id="upper"):
            terminal = TerminalPane("terminal")
            terminal.names_trial = False
            yield terminal
            yield TurnPane("turns")
        with Vertical(id="lower"):
            tokens = TokenPane("tokens")
            tokens.follows_selection = False
            yield tokens
        yield KeyBar("keys", "trial", "everywhere")

    def show(self, frame: Frame, beat: int) -> None:
        turns = self.query_one(TurnPane)
        if frame.state.version != self._version:
            self._version = frame.state.version
            trial = frame.state.trials.get(self.trial)
            if trial is None or trial.live or turns.transcript.finished is None:
                frame.run.read_on(self.trial, turns.transcript)
        if turns.follow and turns.transcript.turns:
            turns.chosen = len(turns.transcript.turns) - 1
        if turns.transcript.turns:
            turn = turns.transcript.turns[min(turns.chosen, len(turns.transcript.turns) - 1)]
            if turn.sample is not None or not turns.follow:
                self.query_one(TokenPane).load(frame, turn.sample, turn.turn)
        super().show(frame, beat)

    def on_turn_pane_chosen(self) -> None:
        self.post_message(Redraw())

    def action_back(self) -> None:
        if self.full:
            self.action_full(0)
        else:
            self.app.pop_screen()

    def action_turn(self, turns: int) -> None:
        self.query_one(TurnPane).action_step(turns)

    def action_surprise(self, direction: int) -> None:
        if not self.query_one(TokenPane).jump(direction):
            self.notify("No token of this turn was surprising.", markup=False, timeout=2)
        self.post_message(Redraw())

    async def action_toggle_pause(self) -> None:
        await self.run_action("app.pause_trial")

    async def action_stop(self) -> None:
        await self.run_action("app.stop_trial")
