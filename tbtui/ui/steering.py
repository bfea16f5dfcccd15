"""What people ask of trials: refused at once where it makes no sense, confirmed where it costs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tbtui.journal.commands import RUN, Command
from tbtui.journal.vocabulary import CommandVerb, TrialPhase
from tbtui.view.state import CommandView, RunState, TrialView
from tbtui.view.waiting import doing, verb_words

if TYPE_CHECKING:
    from tbtui.ui.application import TbtuiApp

_CLOSING = (TrialPhase.VERIFYING, TrialPhase.TEARDOWN)


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a command would be pointless, in one line."""

    reason: str


def verb_meant(key: CommandVerb, trial: TrialView, state: RunState) -> CommandVerb | Refusal:
    """What a key asks of a trial as it stands: `pause` on a paused one means `resume`."""
    meant: CommandVerb = key
    if key in ("pause", "freeze") and trial.paused and (key == "pause" or trial.frozen):
        meant = "resume"
    elif key == "exclude" and trial.excluded:
        meant = "include"
    if trial.pending == meant:
        return Refusal(f"{verb_words(meant)} is under way")
    refusal = _why_not(meant, trial, state)
    return Refusal(refusal) if refusal else meant


def _why_not(verb: CommandVerb, trial: TrialView, state: RunState) -> str:
    match verb:
        case "pause" | "freeze" | "resume":
            if not trial.live or trial.phase in _CLOSING:
                return f"nothing left to {verb}"
        case "stop" | "cancel":
            return "" if trial.live else "it has ended already"
        case "take_over":
            if not trial.live:
                return "it has ended, and its terminal with it"
            if trial.phase is TrialPhase.QUEUED:
                return "it is still queued, and has no terminal yet"
            if trial.phase in _CLOSING:
                return f"it is {doing(trial)}: its agent's run is over"
        case "retry":
            if trial.successor is not None:
                return "it is being attempted again already"
            if not trial.live and not _open_to_change(trial, state):
                return "it has ended, and its step is over"
        case "relabel":
            if trial.live:
                return "it has no verdict yet"
            if not trial.completion_tokens:
                return "the policy said nothing in it that could be trained on"
            return _why_not("exclude", trial, state)
        case "exclude" | "include":
            if trial.purpose == "eval":
                return "it is held out: never trained on"
            if trial.successor is not None:
                return "another attempt has taken its place"
            if not _open_to_change(trial, state):
                return "its step is over"
    return ""


def _open_to_change(trial: TrialView, state: RunState) -> bool:
    """The step of a training trial is not trained yet; whether it is too late, the run knows."""
    if trial.purpose != "train" or state.status is not None:
        return False
    return any(step.step == trial.step for step in state.open_steps())


class Steering:
    """Hands people's commands to the host, and tells them what came of each."""

    def __init__(self, app: TbtuiApp) -> None:
        self._app = app
        self._asked: dict[str, str] = {}
        """Id of a command that has no answer yet -> what it is about, for people."""
        self._told = app.shown, app.host.read_only
        """Who has the controls, as it was last told, and of which run."""

    def ask(self, key: CommandVerb, trial: TrialView) -> None:
        """A key was pressed for a trial."""
        verb = verb_meant(key, trial, self._app.live_run.state)
        if isinstance(verb, Refusal):
            self._say(f"{trial.label}: {verb.reason}.")
        elif verb == "cancel" or (verb == "retry" and trial.live):
            self._confirm(verb, trial)
        elif verb == "exclude":
            self._ask_why(verb, trial)
        else:
            self.submit(verb, trial.trial, trial.label)

    def ask_run(self) -> None:
        """Pause the whole run, or let it go on."""
        self.submit("resume" if self._app.live_run.state.paused else "pause", RUN, "the run")

    def take_over(self, trial: TrialView) -> None:
        """Somebody wants to type in it."""
        if refusal := _why_not("take_over", trial, self._app.live_run.state):
            self._say(f"{trial.label}: {refusal}.")
        elif trial.frozen:
            self._confirm_thaw(trial)
        else:
            self._take_over(trial)

    def _take_over(self, trial: TrialView, *, thaw: bool = False) -> None:
        from tbtui.ui.screens.typing import TypingScreen

        arguments = {"thaw": True} if thaw else {}
        command = self.submit("take_over", trial.trial, trial.label, arguments=arguments)
        if command:
            self._app.push_screen(TypingScreen(trial.trial, trial.label, command))

    def _confirm_thaw(self, trial: TrialView) -> None:
        from tbtui.ui.screens.dialogs import ConfirmDialog

        def answered(yes: bool | None) -> None:
            if yes:
                self._take_over(trial, thaw=True)

        self._app.push_screen(
            ConfirmDialog(
                f"Thaw {trial.label} to take it over?",
                "It was frozen in the middle of a turn. It ends the turn first; then it is yours.",
                "thaw it",
                "leave it frozen",
            ),
            answered,
        )

    def submit(
        self,
        verb: CommandVerb,
        target: str,
        label: str,
        reason: str = "",
        arguments: Mapping[str, Any] | None = None,
    ) -> str:
        """Hand a command over; its id, or empty where nothing can be asked, which is said."""
        if refusal := self._app.shown.refusal:
            self._say(refusal)
            return ""
        command = Command(verb=verb, target=target, reason=reason, arguments=arguments or {})
        if verb != "type":
            self._asked[command.id] = label
        self._app.shown.host.submit(command)
        return command.id

    def take_controls(self) -> None:
        """Somebody wants them here."""
        if self._app.shown.host.read_only:
            self._app.shown.host.take_controls()
        else:
            self._say("You have the controls.")

    def tell_controls(self) -> None:
        """Say who has the controls now, if that is new."""
        shown = self._app.shown
        before, self._told = self._told, (shown, shown.host.read_only)
        if self._told == before or shown.run.replay is not None or shown.end is not None:
            return
        if shown.host.read_only:
            takes = self._app.user.keys.name_of("take-controls")
            hint = f" {takes} takes the controls." if shown.host.steerable else ""
            self._app.notify(
                f"{shown.host.read_only}.{hint}",
                title="You only look",
                severity="warning",
                markup=False,
            )
        elif before[0] is shown:
            self._say("You have the controls.")

    def tell(self, state: RunState) -> None:
        """Say what came of the commands given here since the last time."""
        if not self._asked:
            return
        for view in state.commands:
            if view.ok is not None and (label := self._asked.pop(view.command, None)):
                self._tell_one(view, label)

    def _tell_one(self, view: CommandView, label: str) -> None:
        if view.ok:
            self._say(view.result or f"{label}: {verb_words(view.verb)} done")
        else:
            self._app.notify(
                view.result or f"{label}: can't {verb_words(view.verb)}",
                title=f"{verb_words(view.verb)} refused",
                severity="warning",
                timeout=8,
                markup=False,
            )

    def _say(self, text: str) -> None:
        self._app.notify(text, markup=False, timeout=2)

    def _confirm(self, verb: CommandVerb, trial: TrialView) -> None:
        # Dialogs bring widgets along that the first frame needs not wait for.
        from tbtui.ui.screens.dialogs import ConfirmDialog

        question, detail = {
            "cancel": (
                f"Cancel {trial.label} without verdict?",
                "It ends now and its sandbox is removed. It gets no reward.",
            ),
            "retry": (
                f"Give this attempt at {trial.label} up?",
                "It ends now; what it did is kept. A fresh attempt takes its place.",
            ),
        }[verb]

        def answered(yes: bool | None) -> None:
            if yes:
                self.submit(verb, trial.trial, trial.label)

        self._app.push_screen(ConfirmDialog(question, detail, verb, "leave it alone"), answered)

    def _ask_why(self, verb: CommandVerb, trial: TrialView) -> None:
        from tbtui.ui.screens.dialogs import ReasonDialog

        def answered(reason: str | None) -> None:
            if reason is not None:
                self.submit(verb, trial.trial, trial.label, reason)

        self._app.push_screen(
            ReasonDialog(
                f"Leave {trial.label} out of training?",
                "Its reward counts neither for it nor for its group's baseline.",
            ),
            answered,
        )
