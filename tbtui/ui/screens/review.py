"""A step before it is trained: what is odd, what would be trained, and what is to become of it."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult

from tbtui.journal.vocabulary import CommandVerb
from tbtui.ui.context import run_app_of
from tbtui.ui.input.keys import Scope, bindings
from tbtui.ui.panes.bars import StatusLine
from tbtui.ui.panes.key_bar import KeyBar
from tbtui.ui.panes.pane import Frame, Redraw
from tbtui.ui.panes.review import ReviewGroups
from tbtui.ui.panes.reviewed_trials import ReviewedTrials
from tbtui.ui.screens.base import LiveScreen
from tbtui.ui.selection import ReviewCursor
from tbtui.view.review import reviewed_groups
from tbtui.view.state import ReviewView, RunState


class ReviewScreen(LiveScreen):
    """Groups above, the chosen one's trials below; what is decided goes to the engine."""

    SCOPES: ClassVar[tuple[Scope, ...]] = ("review", "deciding", "everywhere")
    BINDINGS = bindings("review", "deciding")
    AUTO_FOCUS = "#review-groups"
    OVERVIEW = ("review-groups",)

    def __init__(self) -> None:
        super().__init__()
        self._cursor = ReviewCursor()
        self._step: int | None = None
        """Which of several open reviews somebody chose; None: the one that is trained first."""
        self._begun: int | None = None
        """The review that was shown last."""
        self._read: tuple[object, ...] = ()
        """What the groups were made of."""

    def compose_panes(self) -> ComposeResult:
        yield StatusLine("status")
        yield ReviewGroups("review-groups", self._cursor)
        yield ReviewedTrials("review-trials", self._cursor)
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
            edges = 3 if self.roomy else 2
            groups.styles.max_height = None if review is None else len(self._cursor.groups) + edges
            self._begin(review)
        groups.review = review
        trials = self.query_one(ReviewedTrials)
        trials.display = review is not None
        if review is None and trials.has_focus:
            self.set_focus(groups)
        super().show(frame, beat)

    def _begin(self, review: ReviewView | None) -> None:
        """A review that is seen for the first time begins at what is odd."""
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

    # What people do

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
            self.notify("Nothing is odd about these trials.", markup=False, timeout=2)
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

    def action_relabel(self) -> None:
        if (trial := self._cursor.trial) is not None and trial.trial is not None:
            run_app_of(self).decisions.relabel(trial.trial)

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
