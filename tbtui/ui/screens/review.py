"""A step before it is trained: its suspicions, what would be trained, and the decisions on it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.geometry import Size
from textual.widgets import Input, Static

from tbtui.journal.review_rule import ReviewRule, When, rule_toml
from tbtui.journal.verbs import meant
from tbtui.ui.context import run_app_of
from tbtui.ui.drawing.text import visible, visible_lines
from tbtui.ui.input.keys import Scope, bindings
from tbtui.ui.panes.bars import StatusLine
from tbtui.ui.panes.key_bar import KeyBar
from tbtui.ui.panes.pane import Frame, Redraw
from tbtui.ui.panes.review import ReviewedTrials, ReviewGroups
from tbtui.ui.panes.story import LINED, InstructionPane, TrialLines
from tbtui.ui.panes.terminal import TerminalPane
from tbtui.ui.panes.trial_facts import VerdictPane
from tbtui.ui.screens.base import LiveScreen
from tbtui.ui.screens.dialogs import Dialog, Hint
from tbtui.ui.selection import ReviewCursor
from tbtui.ui.textual_seam import Columns
from tbtui.view.review import reviewed_groups
from tbtui.view.standing import standing
from tbtui.view.state import ReviewView, RunState, TrialView
from tbtui.vocabulary import CommandVerb

_TRIAL_KEYS: dict[str, CommandVerb] = {
    "reviewed-exclude": "exclude",
    "reviewed-relabel": "relabel",
    "reviewed-retry": "retry",
}
"""Id of a key that is for the chosen trial -> what it asks of it."""


_EDGES = 3
"""Rows of the groups' pane beside its groups: borders and heading."""
_PREVIEW = 8
"""Rows of the preview, at least."""


class ReviewScreen(LiveScreen):
    """Groups above, the chosen group's trials below; below these the chosen trial: what its task
    asks, its story, and where there is room its terminal, verdict and task."""

    SCOPES: ClassVar[tuple[Scope, ...]] = ("review", "deciding", "everywhere")
    BINDINGS = bindings("review", "deciding")
    AUTO_FOCUS = "#review-groups"
    OVERVIEW = ("review-groups",)

    def __init__(self) -> None:
        super().__init__()
        self._cursor = ReviewCursor()
        self._step: int | None = None
        """The chosen one of several open reviews; None: the one that is trained first."""
        self._begun: int | None = None
        """The review that was shown last."""
        self._rooms: tuple[int | None, Size] = None, Size()
        """The most rows of the trials' pane, None: as many as there is room for; in this window."""
        self._read: tuple[object, ...] = ()
        """What the groups were made of."""

    def compose_panes(self) -> ComposeResult:
        yield StatusLine("status")
        yield ReviewGroups("review-groups", self._cursor)
        yield ReviewedTrials("review-trials", self._cursor)
        yield TrialLines("lines")
        with Columns(id="preview"):
            yield TerminalPane("terminal", names_trial=False)
            yield VerdictPane("verdict")
            yield InstructionPane("task")
        yield KeyBar("keys", *self.SCOPES)

    def show(self, frame: Frame, beat: int) -> None:
        review = self._review(frame.state)
        groups = self.query_one(ReviewGroups)
        read = (id(frame.run), frame.state.version, None if review is None else review.step)
        if read != self._read:
            self._read = read
            shown = [] if review is None else reviewed_groups(review, frame.state)
            self._cursor.follow(shown, frame.state.trials)
            # No taller than what it shows.
            edges = _EDGES if self.roomy else 2
            groups.styles.max_height = None if review is None else len(self._cursor.groups) + edges
            self._begin(review)
        groups.review = review
        trials = self.query_one(ReviewedTrials)
        trials.display = review is not None
        if review is None and trials.has_focus:
            self.set_focus(groups)
        super().show(self._preview(frame, review), beat)
        self._make_room(trials)

    def _make_room(self, trials: ReviewedTrials) -> None:
        """Give what the groups and the group's trials leave free to the preview.

        Where they need more than there is, it keeps a quarter of the screen: no table is scrolled
        beside a terminal's empty rows.
        """
        group = self._cursor.group
        fewest = 1 if group is None else len(group.trials) + 1
        rows = max(fewest, trials.virtual_size.height) + 2 if self.roomy else None
        if (rows, self.room) != self._rooms:
            self._rooms = rows, self.room
            trials.styles.max_height = rows
            if rows is not None:
                # Status, keys, and the two lines.
                height = self.room.height - 4
                free = height - rows - len(self._cursor.groups) - _EDGES
                self.query_one("#preview").styles.height = max(_PREVIEW, height // 4, free)

    def _preview(self, frame: Frame, review: ReviewView | None) -> Frame:
        """The frame about the chosen trial, of which terminal, verdict and task are shown."""
        chosen = self._cursor.trial if review is not None else None
        view = chosen.trial if chosen is not None else None
        self.previewed = [view.trial] if view is not None else []
        self.query_one(TrialLines).display = review is not None and self.room.height >= LINED
        self.query_one("#preview").display = review is not None and self.roomy
        if view is not None:
            self.query_one(VerdictPane).transcript = frame.run.stories.transcript(view)
        return replace(frame, selected=view)

    def _begin(self, review: ReviewView | None) -> None:
        """Begin a review that is new here at its first suspect trial."""
        if review is not None and review.step != self._begun:
            self._begun = review.step
            self._cursor.begin()

    def _review(self, state: RunState) -> ReviewView | None:
        """The one that was chosen, or the first of those that are open."""
        if self._step is not None and self._step in state.reviews:
            return state.reviews[self._step]
        self._step = None
        return next(iter(state.reviews.values()), None)

    @property
    def review(self) -> ReviewView | None:
        """The review that is shown now."""
        return self._review(run_app_of(self).live_run.state)

    @property
    def chosen_trial(self) -> str | None:
        return None if self._cursor.trial is None else self._cursor.trial.name

    # What people do

    def idle_keys(self) -> Iterable[str]:
        state, group, trial = (
            run_app_of(self).live_run.state,
            self._cursor.group,
            self._cursor.trial,
        )
        if self.review is None:
            yield from ("next-suspect", "accept")
        elif not any(each.suspicions for group in self._cursor.groups for each in group.trials):
            yield "next-suspect"
        if group is None or not group.missing(int(state.settings.get("group_size", 0))):
            yield "refill"
        if trial is None or not trial.undecided:
            yield "accept-trial"
        if trial is None or not trial.suspicions:
            yield "always"
        view = trial.trial if trial is not None else None
        if view is None:
            yield from ("open-reviewed", "reviewed-group")
        for key, verb in _TRIAL_KEYS.items():
            if view is None or meant(verb, standing(view, state))[1]:
                yield key

    def action_back(self) -> None:
        self.dismiss()

    def action_next_review(self) -> None:
        """Show another step that waits too."""
        steps, shown = list(run_app_of(self).live_run.state.reviews), self.review
        if shown is not None:
            self._step = steps[(steps.index(shown.step) + 1) % len(steps)]
            self.post_message(Redraw())

    def action_suspect(self) -> None:
        if not self._cursor.next_suspect() and self.review is not None:
            self.notify("None of these trials is suspect.", markup=False, timeout=2)
        self.post_message(Redraw())

    def action_open(self) -> None:
        from tbtui.ui.screens.trial import TrialScreen

        if (trial := self._cursor.trial) is not None and trial.trial is not None:
            self.app.push_screen(TrialScreen(trial.name))

    def on_review_groups_opened(self) -> None:
        self.action_open()

    def on_reviewed_trials_opened(self) -> None:
        self.action_open()

    def action_open_group(self) -> None:
        from tbtui.ui.screens.group import GroupScreen

        if (trial := self._cursor.trial) is not None and trial.trial is not None:
            self.app.push_screen(GroupScreen(trial.name))

    def action_steer(self, verb: CommandVerb) -> None:
        if (trial := self._cursor.trial) is not None and trial.trial is not None:
            run_app_of(self).steering.ask(verb, trial.trial)

    def action_refill(self) -> None:
        if (group := self._cursor.group) is not None:
            run_app_of(self).decisions.refill(group)

    def action_accept_trial(self) -> None:
        if (trial := self._cursor.trial) is not None:
            run_app_of(self).decisions.accept_trial(trial)

    def action_accept(self) -> None:
        if (review := self.review) is not None:
            run_app_of(self).decisions.accept(review)

    def action_always(self) -> None:
        review, trial = self.review, self._cursor.trial
        if review is not None and trial is not None:
            run_app_of(self).decisions.always(review.step, trial)


@dataclass(frozen=True, slots=True)
class Relabelling:
    """A reward and the reason; None undoes an earlier one."""

    reward: float | None
    reason: str


class RelabelDialog(Dialog[Relabelling | None]):
    """Asks for a reward and a reason; None: do nothing."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "give_up", "go back")]
    AUTO_FOCUS = "#reward"

    def __init__(self, trial: TrialView) -> None:
        super().__init__()
        self._trial = trial

    def compose(self) -> ComposeResult:
        trial = self._trial
        verdict = "gave none" if trial.verdict is None else f"said {trial.verdict:g}"
        back = " Leave the reward empty to undo yours." if trial.relabelled else ""
        reward = "" if trial.reward is None else f"{trial.reward:g}"
        with Vertical(id="dialog"):
            yield Static(Content(visible(f"Another reward for {trial.label}?")), id="question")
            yield Static(
                Content(
                    f"The verifier {verdict}, which stays recorded; training uses yours.{back}"
                ),
                id="detail",
            )
            yield Input(reward, placeholder="reward, such as 0, 0.5 or 1", id="reward")
            yield Input(
                visible(trial.relabel_reason),
                placeholder="reason (shown in the run's history)",
                id="reason",
                max_length=200,
            )
            yield Static(id="problem")
            yield Hint(
                ("enter  confirm", ""), ("tab  other field", ""), ("esc  go back", "give_up")
            )

    def on_input_changed(self) -> None:
        self.query_one("#problem", Static).update("")

    def on_input_submitted(self, event: Input.Submitted) -> None:
        reward = self.query_one("#reward", Input)
        reason = self.query_one("#reason", Input)
        text = reward.value.strip()
        if not text and self._trial.relabelled:
            self.dismiss(Relabelling(None, ""))
        elif (value := _finite(text)) is None:
            self._refuse(reward, "the reward must be a number" if text else "which reward?")
        elif not reason.value.strip():
            # Typed in the first line, enter goes on to the second.
            asked = event.input is reason
            self._refuse(reason, "a reason is needed" if asked else "")
        else:
            self.dismiss(Relabelling(value, reason.value.strip()))

    def _refuse(self, line: Input, problem: str) -> None:
        self.set_focus(line)
        self.query_one("#problem", Static).update(Content(problem))

    def action_give_up(self) -> None:
        self.dismiss(None)


def _finite(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


class RuleDialog(Dialog[ReviewRule | None]):
    """Shows the rule before it is written; None: write none."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter,y", "write", "write it"),
        Binding("t", "task", "task"),
        Binding("o", "outcome", "outcome"),
        Binding("escape,n,q", "give_up", "go back"),
    ]

    def __init__(self, rule: ReviewRule, file: Path) -> None:
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
                    visible(
                        f"It goes to the end of {self._file}, applies from the next review on, "
                    )
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
            ("enter  write", "write"),
            ("esc  go back", "give_up"),
            (f"t  {task}", "task"),
            (f"o  {outcome}", "outcome"),
        )

    def action_task(self) -> None:
        """Make the rule match this task alone, or every task."""
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
