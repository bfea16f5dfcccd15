"""A person types in a trial's terminal: from the request to take it over until it is given back."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, cast, override

from textual.app import ComposeResult

from tbtui.journal.typed import to_arguments
from tbtui.journal.vocabulary import CommandVerb
from tbtui.ui.keys import Scope, bindings
from tbtui.ui.pane import Frame, Redraw
from tbtui.ui.panes.bars import TrialHead
from tbtui.ui.panes.typing import TypingPane
from tbtui.ui.screens.base import LiveScreen
from tbtui.view.state import CommandView, RunState

if TYPE_CHECKING:
    from tbtui.ui.application import TbtuiApp

_LOOK_SEC = 0.02
"""How often the terminal is looked at for an echo."""
_LOOK_BUDGET_SEC = 0.005


class TypingScreen(LiveScreen):
    """Goes by what the journal says: it opens when the trial is taken over, and leaves by itself
    when that was refused, or when the trial is somebody else's again."""

    SCOPES: ClassVar[tuple[Scope, ...]] = ("typing",)
    BINDINGS = bindings("typing")
    AUTO_FOCUS = "#typing"
    OVERVIEW = ("typing",)

    def __init__(self, trial: str, label: str, command: str) -> None:
        """`command` is the one that asks for the trial."""
        super().__init__()
        self.trial: str = trial
        self._label = label
        self._command = command
        self._echo = -1
        self._refused: set[str] = set()

    def compose_panes(self) -> ComposeResult:
        yield TrialHead("head")
        yield TypingPane("typing")

    @property
    @override
    def typing(self) -> bool:
        # None before it is mounted, nor while it is taken away.
        return any(pane.open for pane in self.query(TypingPane))

    def on_mount(self) -> None:
        super().on_mount()
        self.set_interval(_LOOK_SEC, self._look)

    def _look(self) -> None:
        """Draw at once what the terminal answers; the app's own clock is slower."""
        run = self._tbtui.live_run
        if not self.typing:
            return
        run.follow_terminals(self.trial, (), _LOOK_BUDGET_SEC)
        screen = run.recordings.screen(self.trial)
        if screen is not None and screen.version != self._echo:
            self._echo = screen.version
            self.post_message(Redraw())

    def show(self, frame: Frame, beat: int) -> None:
        pane = self.query_one(TypingPane)
        asked = self._asked(frame.state)
        trial = frame.state.trials.get(self.trial)
        pane.open = bool(asked and asked.ok and trial and trial.typist)
        over = asked is not None and asked.ok is not None and not pane.open
        if over or self._tbtui.shown.host.read_only or frame.ending:
            self.call_later(self._leave)
        self._tell_refused(frame.state)
        super().show(frame, beat)

    def _asked(self, state: RunState) -> CommandView | None:
        return next(
            (each for each in reversed(state.commands) if each.command == self._command), None
        )

    def _tell_refused(self, state: RunState) -> None:
        for each in reversed(state.commands):
            if each.command == self._command:
                return
            if (
                each.verb == "type"
                and each.target == self.trial
                and each.command not in self._refused
            ):
                self._refused.add(each.command)
                self.notify(each.result, title="not typed", severity="warning", markup=False)

    def _leave(self) -> None:
        # Under a dialog it stays, and leaves when that is closed.
        self.dismiss()

    def on_typing_pane_entered(self, event: TypingPane.Entered) -> None:
        self._tbtui.steering.submit(
            "type", self.trial, self._label, arguments=to_arguments(event.parts)
        )

    def action_give_back(self) -> None:
        """Before it is taken over that calls it off, and the trial goes on."""
        verb: CommandVerb = "give_back" if self.typing else "resume"
        self._tbtui.steering.submit(verb, self.trial, self._label)

    def action_call_off(self) -> None:
        """Without waiting for what comes of it."""
        self.action_give_back()
        self._leave()

    @property
    def _tbtui(self) -> TbtuiApp:
        return cast("TbtuiApp", self.app)
