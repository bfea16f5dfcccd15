"""One trial: its terminal, its turns, its tokens."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.containers import Horizontal

from tbtui.ui.keys import Scope, bindings
from tbtui.ui.pane import Frame, Redraw
from tbtui.ui.panes.bars import KeyBar, TrialHead
from tbtui.ui.panes.terminal import TerminalPane
from tbtui.ui.panes.tokens import TokenPane
from tbtui.ui.panes.trial_facts import TrialFactsPane
from tbtui.ui.panes.turns import TurnPane
from tbtui.ui.screens.base import LiveScreen
from tbtui.view.current import attempts


class TrialScreen(LiveScreen):
    """Follows the newest turn until somebody chooses another."""

    SCOPES: ClassVar[tuple[Scope, ...]] = ("trial", "steering", "everywhere")
    BINDINGS = bindings("trial", "steering")
    AUTO_FOCUS = "#turns"
    OVERVIEW = ("turns", "terminal", "tokens")
    PANES: ClassVar[dict[int, tuple[str, ...]]] = {
        1: ("terminal",),
        2: ("turns",),
        3: ("tokens",),
        4: ("facts",),
    }
    COLUMNS: ClassVar[dict[str, tuple[str, ...]]] = {
        "upper": ("terminal", "turns"),
        "lower": ("tokens", "facts"),
    }

    def __init__(self, trial: str) -> None:
        super().__init__()
        self.trial = trial
        self._version = -1
        self._attempts: list[str] = []
        """All that are kept of this place, when there is more than this one."""

    def compose_panes(self) -> ComposeResult:
        yield TrialHead("head")
        with Horizontal(id="upper"):
            terminal = TerminalPane("terminal")
            terminal.names_trial = False
            yield terminal
            yield TurnPane("turns")
        with Horizontal(id="lower"):
            tokens = TokenPane("tokens")
            tokens.follows_selection = False
            yield tokens
            yield TrialFactsPane("facts")
        yield KeyBar("keys", *self.SCOPES)

    def show(self, frame: Frame, beat: int) -> None:
        turns = self.query_one(TurnPane)
        if frame.state.version != self._version:
            self._version = frame.state.version
            trial = frame.state.trials.get(self.trial)
            chain = [each.trial for each in attempts(trial, frame.state)] if trial else []
            self._attempts = chain if len(chain) > 1 else []
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

    def action_thinking(self) -> None:
        turns = self.query_one(TurnPane)
        turns.thinking_open = not turns.thinking_open
        self.post_message(Redraw())

    def action_surprise(self, direction: int) -> None:
        if not self.query_one(TokenPane).jump(direction):
            self.notify("No token of this turn was surprising.", markup=False, timeout=2)
        self.post_message(Redraw())

    def action_attempt(self) -> None:
        """Go round the attempts at this trial's place."""
        if self._attempts:
            here = self._attempts.index(self.trial)
            self.app.switch_screen(TrialScreen(self._attempts[(here + 1) % len(self._attempts)]))
        else:
            self.notify("This is the only attempt.", markup=False, timeout=2)
