"""Turns keys into commands for trials: refuses what makes no sense, confirms what costs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tbtui.journal.commands import RUN, Command
from tbtui.journal.vocabulary import CommandVerb
from tbtui.ui.command_rules import Refusal, verb_meant, why_not
from tbtui.ui.context import ControllerContext
from tbtui.view.state import CommandView, RunState, TrialView
from tbtui.view.waiting import verb_words

_CONTROLS = "controls"
"""What is said of who has them replaces what was said before."""


class Steering:
    """Hands commands to the host, and shows what came of each."""

    def __init__(self, app: ControllerContext) -> None:
        self._app = app
        self._asked: dict[str, str] = {}
        """Id of a command that has no answer yet -> what it is about, for people."""
        self._reported = app.shown, app.host.read_only
        """The run and its controls that were reported last."""

    def ask(self, key: CommandVerb, trial: TrialView) -> None:
        """Do what a key asks of a trial: submit it, ask first, or say why not."""
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
        """Ask for a trial's terminal, to type in it."""
        if refusal := why_not("take_over", trial, self._app.live_run.state):
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

        def pointless() -> str:
            now = self._app.live_run.state.trials.get(trial.trial)
            thawed = f"{trial.label}: it is no longer frozen."
            return self.pointless("take_over", trial) or (thawed if now and not now.frozen else "")

        dialog = ConfirmDialog(
            f"Thaw {trial.label} to take it over?",
            "It was frozen in the middle of a turn. It ends the turn first; then it is yours.",
            "thaw it",
            "leave it frozen",
        )
        dialog.pointless = pointless
        self._app.push_screen(dialog, answered)

    def pointless(self, verb: CommandVerb, trial: TrialView) -> str:
        """Why a command no longer makes sense while its dialog is open; empty: it does."""
        if refusal := self._app.shown.refusal:
            return refusal
        state = self._app.live_run.state
        if (now := state.trials.get(trial.trial)) is None:
            return f"{trial.label} is no longer kept."
        why = why_not(verb, now, state)
        return f"{trial.label}: {why}." if why else ""

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
        """Ask for the controls of the shown run."""
        if self._app.shown.host.read_only:
            self._app.shown.host.take_controls()
        else:
            self._say("You have the controls.")

    def report_controls(self) -> None:
        """Show who has the controls now, if that is new."""
        shown = self._app.shown
        before, self._reported = self._reported, (shown, shown.host.read_only)
        if self._reported == before or shown.run.replay is not None or shown.end is not None:
            return
        if shown.host.read_only:
            takes = self._app.user.keys.name_of("take-controls")
            hint = f" {takes} takes the controls." if shown.host.steerable else ""
            why = shown.host.read_only
            self._app.notify(
                f"{why}.{hint}",
                title="You only look",
                severity="warning",
                topic=_CONTROLS,
                holds=lambda: (
                    self._app.shown is shown and shown.end is None and shown.host.read_only == why
                ),
            )
        elif before[0] is shown:
            self._app.notify("You have the controls.", timeout=2, topic=_CONTROLS)

    def report_results(self, state: RunState) -> None:
        """Show what came of the commands given here since the last time."""
        if not self._asked:
            return
        for view in state.commands:
            if view.ok is not None and (label := self._asked.pop(view.command, None)):
                self._report(view, label)

    def _report(self, view: CommandView, label: str) -> None:
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

        dialog = ConfirmDialog(question, detail, verb, "leave it alone")
        dialog.pointless = lambda: self.pointless(verb, trial)
        self._app.push_screen(dialog, answered)

    def _ask_why(self, verb: CommandVerb, trial: TrialView) -> None:
        from tbtui.ui.screens.dialogs import ReasonDialog

        def answered(reason: str | None) -> None:
            if reason is not None:
                self.submit(verb, trial.trial, trial.label, reason)

        dialog = ReasonDialog(
            f"Leave {trial.label} out of training?",
            "Its reward counts neither for it nor for its group's baseline.",
        )
        dialog.pointless = lambda: self.pointless(verb, trial)
        self._app.push_screen(dialog, answered)
