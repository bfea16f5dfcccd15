"""What a review asks: another reward and why, and which rule to write."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Input, Static

from tbtui.journal.review_rule import Rule, When, rule_toml
from tbtui.ui.drawing.text import visible, visible_lines
from tbtui.ui.screens.dialogs import Dialog, Hint
from tbtui.view.state import TrialView


@dataclass(frozen=True, slots=True)
class Relabelling:
    """A reward and why; a reward of None takes an earlier one back."""

    reward: float | None
    reason: str


class RelabelDialog(Dialog[Relabelling | None]):
    """Asks for a reward and a reason; None means that nothing is to be done."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "give_up", "leave it alone")]
    AUTO_FOCUS = "#reward"

    def __init__(self, trial: TrialView) -> None:
        super().__init__()
        self._trial = trial

    def compose(self) -> ComposeResult:
        trial = self._trial
        verdict = "gave none" if trial.verdict is None else f"said {trial.verdict:g}"
        back = " An empty reward takes yours back." if trial.relabelled else ""
        reward = "" if trial.reward is None else f"{trial.reward:g}"
        with Vertical(id="dialog"):
            yield Static(Content(visible(f"Another reward for {trial.label}?")), id="question")
            yield Static(
                Content(
                    f"The verifier {verdict}, which stays recorded; it is trained with yours.{back}"
                ),
                id="detail",
            )
            yield Input(reward, placeholder="reward, such as 0, 0.5 or 1", id="reward")
            yield Input(
                visible(trial.relabel_reason),
                placeholder="why? (whoever reads the run will want to know)",
                id="reason",
                max_length=200,
            )
            yield Static(id="problem")
            yield Hint(("enter  do it", ""), ("tab  other line", ""), ("esc  leave it", "give_up"))

    def on_input_changed(self) -> None:
        self.query_one("#problem", Static).update("")

    def on_input_submitted(self, event: Input.Submitted) -> None:
        reward = self.query_one("#reward", Input)
        reason = self.query_one("#reason", Input)
        text = reward.value.strip()
        if not text and self._trial.relabelled:
            self.dismiss(Relabelling(None, ""))
        elif (value := _finite(text)) is None:
            self._refuse(reward, "the reward has to be a number" if text else "which reward?")
        elif not reason.value.strip():
            # Typed in the first line, enter goes on to the second.
            asked = event.input is reason
            self._refuse(reason, "a reason is needed" if asked else "")
        else:
            self.dismiss(Relabelling(value, reason.value.strip()))

    def _refuse(self, line: Input, problem: str) -> None:
        line.focus()
        self.query_one("#problem", Static).update(Content(problem))

    def action_give_up(self) -> None:
        self.dismiss(None)


def _finite(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


class RuleDialog(Dialog[Rule | None]):
    """Shows the rule that would be written; None means that none is."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter,y", "write", "write it"),
        Binding("t", "task", "task"),
        Binding("o", "outcome", "outcome"),
        Binding("escape,n,q", "give_up", "leave it"),
    ]

    def __init__(self, rule: Rule, file: Path) -> None:
        """`rule` is as narrow as it can be: of this task and outcome."""
        super().__init__()
        self._narrow = self._rule = rule
        self._file = file

    def compose(self) -> ComposeResult:
        with Vertical(id="dialog"):
            yield Static(Content("Always accept trials like this?"), id="question")
            yield Static(id="rule")
            yield Static(
                Content(
                    visible(f"It goes to the end of {self._file}, holds from the next review on, ")
                    + "and this trial is accepted now."
                ),
                id="detail",
            )
            yield Hint()

    def on_mount(self) -> None:
        self._show()

    def _show(self) -> None:
        lines = visible_lines(rule_toml(self._rule).strip("\n"))
        self.query_one("#rule", Static).update(Content("\n".join(lines)))
        task = "every task" if self._rule.when.task else "this task alone"
        outcome = "every outcome" if self._rule.when.outcome else "this outcome alone"
        self.query_one(Hint).show_parts(
            ("enter  write it", "write"),
            ("esc  leave it", "give_up"),
            (f"t  {task}", "task"),
            (f"o  {outcome}", "outcome"),
        )

    def action_task(self) -> None:
        """Toggle the rule between this task alone and every task."""
        when = self._rule.when
        self._use(replace(when, task=() if when.task else self._narrow.when.task))

    def action_outcome(self) -> None:
        """Toggle the rule between this outcome alone and every outcome."""
        when = self._rule.when
        self._use(replace(when, outcome=() if when.outcome else self._narrow.when.outcome))

    def _use(self, when: When) -> None:
        self._rule = replace(self._rule, when=when)
        self._show()

    def action_write(self) -> None:
        self.dismiss(self._rule)

    def action_give_up(self) -> None:
        self.dismiss(None)
