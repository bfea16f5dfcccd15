"""Turns keys into commands for trials, runs and reviewed steps, and shows their results."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tbtui.errors import UserError
from tbtui.journal.commands import RUN, Command
from tbtui.journal.verbs import meant, pointless
from tbtui.ui.context import ControllerContext
from tbtui.ui.services import AddRule
from tbtui.view.standing import standing
from tbtui.view.state import CommandView, RunState, TrialView
from tbtui.view.waiting import verb_words
from tbtui.vocabulary import CommandVerb

if TYPE_CHECKING:
    from tbtui.journal.review_rule import ReviewRule
    from tbtui.ui.screens.review import Relabelling
    from tbtui.view.review import ReviewedGroup, ReviewedTrial
    from tbtui.view.state import ReviewView

_SAID = "said"
"""Topic of lines that are said for a moment: the last one alone is shown."""
_CONTROLS = "controls"
"""Topic of notifications about the controls: a new one replaces the last."""


class CommandSubmitter:
    """Submits commands to the host and shows their results."""

    def __init__(self, app: ControllerContext) -> None:
        self._app = app
        self._asked: dict[str, str] = {}
        """Id of a command that has no answer yet -> what it is about, for people."""
        self._reported = app.shown, app.shown.host.read_only
        """The run and its controls that were reported last."""

    def ask(self, key: CommandVerb, trial: TrialView) -> None:
        """Handle a key for a trial: submit its command, ask about it first, or show why not."""
        verb, why = meant(key, standing(trial, self._app.live_run.state))
        if why:
            self.say(f"{trial.label}: {why}.")
            return
        if refusal := self._app.shown.refusal:
            self.say(refusal)
            return
        match verb:
            case "cancel":
                self._confirm(verb, trial)
            case "retry" if trial.live:
                self._confirm(verb, trial)
            case "exclude":
                self._ask_why(verb, trial)
            case "relabel":
                self._relabel(trial)
            case "message":
                self._write_to_agent(trial)
            case "take_over" if trial.hold.frozen:
                self._confirm_thaw(trial)
            case "take_over":
                self._take_over(trial)
            case _:
                self.submit(verb, trial.trial, trial.label)

    def ask_run(self) -> None:
        """Pause the whole run, or let it go on."""
        self.submit("resume" if self._app.live_run.state.paused else "pause", RUN, "the run")

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

        def why_not() -> str:
            now = self._app.live_run.state.trials.get(trial.trial)
            thawed = now is not None and not now.hold.frozen
            return self._why_not("take_over", trial) or (
                f"{trial.label}: it is no longer frozen." if thawed else ""
            )

        dialog = ConfirmDialog(
            f"Thaw {trial.label} to take it over?",
            "It was frozen within a turn. It finishes the turn first; then you can type.",
            "thaw it",
            "keep it frozen",
        )
        dialog.pointless = why_not
        self._app.push_screen(dialog, answered)

    def _why_not(self, verb: CommandVerb, trial: TrialView) -> str:
        """Why a command no longer makes sense while its dialog is open; empty: it does."""
        if refusal := self._app.shown.refusal:
            return refusal
        state = self._app.live_run.state
        if (now := state.trials.get(trial.trial)) is None:
            return f"{trial.label} is no longer in memory."
        why = pointless(verb, standing(now, state))
        return f"{trial.label}: {why}." if why else ""

    def submit(
        self,
        verb: CommandVerb,
        target: str,
        label: str,
        reason: str = "",
        arguments: Mapping[str, Any] | None = None,
    ) -> str:
        """Submit a command, or show why that is refused; returns its id or an empty text."""
        if refusal := self._app.shown.refusal:
            self.say(refusal)
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
            self.say("You have the controls.")

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
                title="Read-only",
                severity="warning",
                topic=_CONTROLS,
                holds=lambda: (
                    self._app.shown is shown and shown.end is None and shown.host.read_only == why
                ),
            )
        elif before[0] is shown:
            self._app.notify("You have the controls.", timeout=2, topic=_CONTROLS)

    def report_results(self, state: RunState) -> None:
        """Show new results of the commands given here."""
        if not self._asked:
            return
        for view in state.commands:
            if view.ok is not None and (label := self._asked.pop(view.command, None)):
                self._report(view, label)

    def _report(self, view: CommandView, label: str) -> None:
        if view.ok:
            self.say(view.result or f"{label}: {verb_words(view.verb)} done")
        else:
            self._app.notify(
                view.result or f"{label}: can't {verb_words(view.verb)}",
                title=f"{verb_words(view.verb)} refused",
                severity="warning",
                timeout=8,
                markup=False,
            )

    def say(self, text: str) -> None:
        """Show a line for a moment, in place of the one before."""
        self._app.notify(text, markup=False, timeout=2, topic=_SAID)

    def _confirm(self, verb: CommandVerb, trial: TrialView) -> None:
        # Dialogs bring widgets along that the first frame needs not wait for.
        from tbtui.ui.screens.dialogs import ConfirmDialog

        question, detail = {
            "cancel": (
                f"Cancel {trial.label} without verifying it?",
                "It ends now and its sandbox is removed. It gets no reward.",
            ),
            "retry": (
                f"Give up this attempt at {trial.label}?",
                "It ends now; its record is kept. A fresh attempt takes its place.",
            ),
        }[verb]

        def answered(yes: bool | None) -> None:
            if yes:
                self.submit(verb, trial.trial, trial.label)

        dialog = ConfirmDialog(question, detail, verb, "go back")
        dialog.pointless = lambda: self._why_not(verb, trial)
        self._app.push_screen(dialog, answered)

    def _write_to_agent(self, trial: TrialView) -> None:
        from tbtui.ui.screens.dialogs import ReasonDialog

        def answered(text: str | None) -> None:
            if text:
                arguments = {"text": text}
                self.submit("message", trial.trial, trial.label, arguments=arguments)

        dialog = ReasonDialog(
            f"Write to the agent of {trial.label}",
            "Its next prompt ends with your message. The trial is then human_touched: not trained"
            " on unless on_outcome.human_touched=train.",
            "message",
        )
        dialog.pointless = lambda: self._why_not("message", trial)
        self._app.push_screen(dialog, answered)

    def fork(self, trial: TrialView, turn: int) -> None:
        """Ask how many forks of a live run's trial, from a turn on."""
        from tbtui.ui.screens.dialogs import ReasonDialog

        def answered(count: str | None) -> None:
            if count is None:
                return
            words = count.split()
            search = words.pop(0) if words[:1] in (["bisect"], ["all"]) else ""
            number = " ".join(words) or "8"
            if not number.isdecimal():
                self.say(f"{count}: give how many forks; or bisect or all, and how many a turn.")
                return
            arguments = {"turn": search or turn, "trials": int(number)}
            self.submit("fork", trial.trial, trial.label, arguments=arguments)

        dialog = ReasonDialog(
            f"Fork {trial.label} at turn {turn}",
            f"Turn {turn} is sampled anew, from the same conversation and sandbox. Forks are tried"
            " beside the batch and never trained on. A number: so many forks of this turn. bisect:"
            " finds the turn at which the task was lost or won. all: measures every turn's value.",
            "a number (8), bisect or all",
        )
        dialog.pointless = lambda: self._why_not("fork", trial)
        self._app.push_screen(dialog, answered)

    def ask_weight(self, task: str) -> None:
        """Ask for the weight of a task, or of all of a kind."""
        from tbtui.ui.screens.dialogs import ReasonDialog

        if refusal := self._app.shown.refusal:
            self.say(refusal)
            return

        def answered(text: str | None) -> None:
            if text is None:
                return
            number, _, reason = text.partition(" ")
            try:
                weight = float(number)
            except ValueError:
                self.say(f"{number[:20]!r} is no number: a weight is one from 0 up.")
            else:
                self.submit("set", task, task, reason.strip(), {"weight": weight})

        self._app.push_screen(
            ReasonDialog(
                f"Weight of {task}?",
                "It multiplies how often the next batches draw it: 1 is as usual, 0 never.",
                "a number, and perhaps why",
            ),
            answered,
        )

    def _ask_why(self, verb: CommandVerb, trial: TrialView) -> None:
        from tbtui.ui.screens.dialogs import ReasonDialog

        def answered(reason: str | None) -> None:
            if reason is not None:
                self.submit(verb, trial.trial, trial.label, reason)

        dialog = ReasonDialog(
            f"Exclude {trial.label} from training?",
            "It is not trained on, and its reward no longer counts in its group's baseline.",
        )
        dialog.pointless = lambda: self._why_not(verb, trial)
        self._app.push_screen(dialog, answered)

    def _relabel(self, trial: TrialView) -> None:
        from tbtui.ui.screens.review import RelabelDialog

        def answered(wanted: Relabelling | None) -> None:
            if wanted is not None:
                arguments = {"reward": wanted.reward}
                self.submit("relabel", trial.trial, trial.label, wanted.reason, arguments)

        dialog = RelabelDialog(trial)
        dialog.pointless = lambda: self._why_not("relabel", trial)
        self._app.push_screen(dialog, answered)


class ReviewDecisions:
    """Submits decisions on a step under review, after dialogs where needed."""

    def __init__(self, app: ControllerContext, commands: CommandSubmitter) -> None:
        self._app = app
        self._commands = commands

    def refill(self, group: ReviewedGroup) -> None:
        """Ask for fresh trials in place of a group's members that have no part in training."""
        self._commands.submit("refill", group.group, group.task)

    def accept_trial(self, trial: ReviewedTrial) -> None:
        """Accept one trial as it is."""
        if not trial.undecided:
            self._commands.say(f"{trial.label}: it needs no decision.")
        else:
            self._commands.submit("accept", trial.name, trial.label)

    def accept(self, review: ReviewView) -> None:
        """Train the step as it stands; asks first while suspect trials are undecided."""
        from tbtui.ui.screens.dialogs import ConfirmDialog

        suspect = {name for group in review.groups for name in group.suspects}
        open_suspects = sum(name in suspect for name in review.undecided)

        def answered(yes: bool | None) -> None:
            if yes:
                self._accept(review)

        if not open_suspects:
            self._accept(review)
        elif self._may_ask():
            one = open_suspects == 1
            dialog = ConfirmDialog(
                f"Train step {review.step} as it stands?",
                f"{open_suspects} {'trial' if one else 'trials'} with suspicions "
                f"{'is' if one else 'are'} undecided, and would be trained as "
                f"{'it is' if one else 'they are'}.",
                "train it",
                "look again",
            )
            dialog.pointless = lambda: self._closed(review.step)
            self._app.push_screen(dialog, answered)

    def _closed(self, step: int) -> str:
        """Why a step's review needs no decision any more; empty: it does."""
        if refusal := self._app.shown.refusal:
            return refusal
        open_ = step in self._app.live_run.state.reviews
        return "" if open_ else f"Step {step} no longer waits for a review."

    def _accept(self, review: ReviewView) -> None:
        self._commands.submit("accept", RUN, f"step {review.step}", arguments={"step": review.step})

    def always(self, step: int, trial: ReviewedTrial) -> None:
        """Write a rule that accepts trials like this one, and accept it."""
        from tbtui.ui.screens.review import RuleDialog

        if (add := self._app.services.add_rule) is None:
            self._commands.say("Not available here: rules are written where the run runs.")
            return
        if not trial.suspicions or trial.trial is None:
            self._commands.say(f"{trial.label}: it has no suspicion that a rule could match.")
            return
        file = self._rule_file()

        def answered(rule: ReviewRule | None) -> None:
            if rule is not None:
                self._app.run_worker(self._write(add, file, rule, trial), name="rule")

        if self._may_ask():
            dialog = RuleDialog(_rule(step, trial), file)
            dialog.pointless = lambda: self._closed(step)
            self._app.push_screen(dialog, answered)

    def _rule_file(self) -> Path:
        """The run's own, unless its settings name another one."""
        run = self._app.live_run
        named = run.state.settings.get("review_rules")
        return Path(str(named)) if named else run.directory.review_rules

    async def _write(
        self, add: AddRule, file: Path, rule: ReviewRule, trial: ReviewedTrial
    ) -> None:
        try:
            await asyncio.to_thread(add, file, rule)
        except UserError as error:
            self._app.notify(
                str(error), title="The rule was not written", severity="error", markup=False
            )
            return
        self._app.notify(
            f"Added the rule {rule.name} to {file}.", title="Rule written", markup=False, timeout=5
        )
        if trial.undecided:
            self._commands.submit("accept", trial.name, trial.label)

    def _may_ask(self) -> bool:
        if refusal := self._app.shown.refusal:
            self._commands.say(refusal)
        return not refusal


def _rule(step: int, trial: ReviewedTrial) -> ReviewRule:
    """Make the narrowest rule: for these suspects, of this task, with this outcome."""
    from tbtui.journal.review_rule import ReviewRule, When

    view = trial.trial
    assert view is not None
    suspects = tuple(sorted(each.suspect for each in trial.suspicions))
    return ReviewRule(
        name=f"{suspects[0].replace('_', '-')}-{view.trial}",
        verb="accept",
        when=When(
            suspect=suspects,
            outcome=() if view.outcome is None else (view.outcome,),
            task=(view.task,),
        ),
        reason=f"{view.label} of step {step} was accepted",
    )
