"""What people decide on a step's rewards: other rewards, fresh trials, that it may be trained."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from tbtui.journal.commands import RUN
from tbtui.ui.review_rules import AddRule, RuleFileError
from tbtui.ui.steering import Refusal, verb_meant

if TYPE_CHECKING:
    from tbtui.journal.review_rule import Rule
    from tbtui.ui.application import TbtuiApp
    from tbtui.ui.screens.review_dialogs import Relabelling
    from tbtui.view.review import ReviewView
    from tbtui.view.reviewed import ReviewedGroup, ReviewedTrial
    from tbtui.view.state import TrialView


class Deciding:
    """Asks what has to be asked first and hands the commands over; the engine has the last word."""

    def __init__(self, app: TbtuiApp, add_rule: AddRule | None) -> None:
        """Without `add_rule` no rules are written."""
        self._app = app
        self._add_rule = add_rule

    def relabel(self, trial: TrialView) -> None:
        """Give a trial another reward than the verifier's."""
        from tbtui.ui.screens.review_dialogs import RelabelDialog

        verb = verb_meant("relabel", trial, self._app.live_run.state)
        if isinstance(verb, Refusal):
            self._say(f"{trial.label}: {verb.reason}.")
            return

        def answered(wanted: Relabelling | None) -> None:
            if wanted is not None:
                self._app.steering.submit(
                    "relabel",
                    trial.trial,
                    trial.label,
                    wanted.reason,
                    {"reward": wanted.reward},
                )

        if self._may_ask():
            self._app.push_screen(RelabelDialog(trial), answered)

    def refill(self, group: ReviewedGroup) -> None:
        """Fresh trials in place of a group's members that have no part in training."""
        self._app.steering.submit("refill", group.group, group.task)

    def accept_trial(self, trial: ReviewedTrial) -> None:
        """It has been looked at, and is trained as it is."""
        if not trial.undecided:
            self._say(f"{trial.label}: nothing is to be decided about it.")
        else:
            self._app.steering.submit("accept", trial.name, trial.label)

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
            self._app.push_screen(
                ConfirmDialog(
                    f"Train step {review.step} as it stands?",
                    f"{open_suspects} {'trial' if one else 'trials'} with something odd "
                    f"{'is' if one else 'are'} undecided, and would be trained as "
                    f"{'it is' if one else 'they are'}.",
                    "train it",
                    "look again",
                ),
                answered,
            )

    def _accept(self, review: ReviewView) -> None:
        self._app.steering.submit(
            "accept", RUN, f"step {review.step}", arguments={"step": review.step}
        )

    def always(self, step: int, trial: ReviewedTrial) -> None:
        """Write a rule that accepts trials like this one, and accept it."""
        from tbtui.ui.screens.review_dialogs import RuleDialog

        if self._add_rule is None:
            self._say("Not from here: rules are written where the run is.")
            return
        if not trial.suspicions or trial.trial is None:
            self._say(f"{trial.label}: nothing is odd about it that a rule could go by.")
            return
        file, add = self._rule_file(), self._add_rule

        def answered(rule: Rule | None) -> None:
            if rule is not None:
                self._app.run_worker(self._write(add, file, rule, trial), name="rule")

        if self._may_ask():
            self._app.push_screen(RuleDialog(_rule(step, trial), file), answered)

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
            self._app.steering.submit("accept", trial.name, trial.label)

    def _may_ask(self) -> bool:
        if refusal := self._app.shown.refusal:
            self._say(refusal)
        return not refusal

    def _say(self, text: str) -> None:
        self._app.notify(text, markup=False, timeout=2)


def _rule(step: int, trial: ReviewedTrial) -> Rule:
    """As narrow as it can be: these suspects, of this task, with this outcome."""
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
