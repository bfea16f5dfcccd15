"""Decisions on a step under review: other rewards, fresh trials, training it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from tbtui.journal.commands import RUN
from tbtui.ui.command_rules import Refusal, verb_meant
from tbtui.ui.services import AddRule, RuleFileError

if TYPE_CHECKING:
    from tbtui.journal.review_rule import Rule
    from tbtui.ui.context import ControllerContext
    from tbtui.ui.screens.review_dialogs import Relabelling
    from tbtui.ui.steering import Steering
    from tbtui.view.review import ReviewedGroup, ReviewedTrial
    from tbtui.view.state import ReviewView, TrialView


class ReviewDecisions:
    """Asks what must be asked first and hands the commands over; the engine has the last word."""

    def __init__(self, app: ControllerContext, commands: Steering) -> None:
        self._app = app
        self._commands = commands

    def relabel(self, trial: TrialView) -> None:
        """Give a trial another reward than the verifier's."""
        from tbtui.ui.screens.review_dialogs import RelabelDialog

        verb = verb_meant("relabel", trial, self._app.live_run.state)
        if isinstance(verb, Refusal):
            self._say(f"{trial.label}: {verb.reason}.")
            return

        def answered(wanted: Relabelling | None) -> None:
            if wanted is not None:
                self._commands.submit(
                    "relabel",
                    trial.trial,
                    trial.label,
                    wanted.reason,
                    {"reward": wanted.reward},
                )

        if self._may_ask():
            dialog = RelabelDialog(trial)
            dialog.pointless = lambda: self._commands.pointless("relabel", trial)
            self._app.push_screen(dialog, answered)

    def refill(self, group: ReviewedGroup) -> None:
        """Ask for fresh trials in place of a group's members that have no part in training."""
        self._commands.submit("refill", group.group, group.task)

    def accept_trial(self, trial: ReviewedTrial) -> None:
        """Accept one trial as it is."""
        if not trial.undecided:
            self._say(f"{trial.label}: nothing is to be decided about it.")
        else:
            self._commands.submit("accept", trial.name, trial.label)

    def accept(self, review: ReviewView) -> None:
        """Train the step as it stands; asks first where something odd is undecided."""
        from tbtui.ui.screens.dialogs import ConfirmDialog

        odd = {name for group in review.groups for name in group.suspects}
        open_suspects = sum(name in odd for name in review.undecided)

        def answered(yes: bool | None) -> None:
            if yes:
                self._accept(review)

        if not open_suspects:
            self._accept(review)
        elif self._may_ask():
            one = open_suspects == 1
            dialog = ConfirmDialog(
                f"Train step {review.step} as it stands?",
                f"{open_suspects} {'trial' if one else 'trials'} with something odd "
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
        from tbtui.ui.screens.review_dialogs import RuleDialog

        if (add := self._app.services.add_rule) is None:
            self._say("Not from here: rules are written where the run is.")
            return
        if not trial.suspicions or trial.trial is None:
            self._say(f"{trial.label}: nothing is odd about it that a rule could go by.")
            return
        file = self._rule_file()

        def answered(rule: Rule | None) -> None:
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

    async def _write(self, add: AddRule, file: Path, rule: Rule, trial: ReviewedTrial) -> None:
        try:
            await asyncio.to_thread(add, file, rule)
        except RuleFileError as error:
            self._app.notify(
                str(error), title="The rule was not written", severity="error", markup=False
            )
            return
        self._app.notify(
            f"{file} has the rule {rule.name}.", title="Written", markup=False, timeout=5
        )
        if trial.undecided:
            self._commands.submit("accept", trial.name, trial.label)

    def _may_ask(self) -> bool:
        if refusal := self._app.shown.refusal:
            self._say(refusal)
        return not refusal

    def _say(self, text: str) -> None:
        self._app.notify(text, markup=False, timeout=2)


def _rule(step: int, trial: ReviewedTrial) -> Rule:
    """Make the narrowest rule: for these suspects, of this task, with this outcome."""
    from tbtui.journal.review_rule import Rule, When

    view = trial.trial
    assert view is not None
    suspects = tuple(sorted(each.suspect for each in trial.suspicions))
    return Rule(
        name=f"{suspects[0].replace('_', '-')}-{view.trial}",
        verb="accept",
        when=When(
            suspect=suspects,
            outcome=() if view.outcome is None else (view.outcome,),
            task=(view.task,),
        ),
        reason=f"{view.label} of step {step} was accepted",
    )
