"""What a step under review would be trained with, as it is shown."""

from __future__ import annotations

import pytest

from tbtui.findings import Rule
from tbtui.journal.events import (
    AnyEvent,
    GroupUnderReview,
    ReviewChanged,
    ReviewClosed,
    ReviewOpened,
    RunPaused,
    RunResumed,
    StepStarted,
    Suspicion,
    TrialRetried,
    TrialScore,
)
from tbtui.view.current import siblings
from tbtui.view.review import reviewed_groups
from tbtui.view.state import RunState

from .story import finished, folded, queued, started


def begun(*events: AnyEvent) -> RunState:
    return folded(started(), *events)


def group(name: str, *scores: tuple[float | None, float | None, int]) -> GroupUnderReview:
    """By reward, advantage and tokens of each trial."""
    trials = {
        f"{name}-{number}": TrialScore(reward=reward, advantage=advantage, tokens=tokens)
        for number, (reward, advantage, tokens) in enumerate(scores, start=1)
    }
    trained = any(score.advantage for score in trials.values())
    return GroupUnderReview(
        group=name,
        task="copy-01",
        disposition="trained" if trained else "constant",
        baseline=0.5,
        trials=trials,
        suspects={f"{name}-1": (Suspicion(suspect=Rule.FEW_TURNS, why="one turn"),)},
    )


MIXED = group("g", (1.0, 0.5, 100), (0.0, -0.5, 200), (None, None, 50))
LEVEL = group("h", (1.0, 0.0, 100), (1.0, 0.0, 100))
OTHER = group("i", (1.0, 0.5, 100), (0.0, -0.5, 200))


def test_shares_are_of_what_the_step_would_train() -> None:
    state = begun(ReviewOpened(step=1, groups=(MIXED, LEVEL, OTHER), undecided=("g-1",)))
    mixed, level, other = reviewed_groups(state.reviews[1], state)
    assert [each.share for each in mixed.trials] == pytest.approx([1 / 6, 1 / 3, None])
    assert (mixed.share, level.share, other.share) == pytest.approx((0.5, 0.0, 0.5))
    assert (mixed.spread, level.spread) == (0.5, 0.0)
    assert (mixed.advantages, level.advantages) == ((-0.5, 0.5), None)
    assert (mixed.undecided, level.undecided) == (1, 0)
    assert mixed.suspects == {"few_turns": 1}


def test_fresh_attempts_run_in_the_places_of_those_they_replace() -> None:
    state = begun(
        StepStarted(step=1, groups={"g": "copy-01"}),
        *(queued(f"g-{number}") for number in (1, 2, 3)),
        *(finished(f"g-{number}", 1.0) for number in (1, 2, 3)),
        ReviewOpened(step=1, groups=(MIXED,)),
        TrialRetried(trial="g-2", successor="g-4", reason="asked for", wait_sec=0.0),
        queued("g-4"),
    )
    (shown,) = reviewed_groups(state.reviews[1], state)
    assert [each.name for each in shown.trials] == ["g-1", "g-4", "g-3"]
    assert (shown.trials[1].score, shown.trials[1].share) == (None, None)
    assert [each.trial for each in siblings(state.trials["g-1"], state)] == ["g-1", "g-4", "g-3"]


def test_its_time_stands_still_while_the_run_is_paused() -> None:
    # One event a second, from 1001 on.
    opened = ReviewOpened(step=1, groups=(MIXED,), timeout_sec=60)
    running = begun(opened)
    assert running.reviews[1].left(1012.0) == 50.0
    paused = begun(opened, RunPaused())
    assert paused.reviews[1].left(1500.0) == 59.0
    resumed = begun(opened, RunPaused(), started(), RunResumed())
    assert resumed.reviews[1].left(1005.0) == 59.0
    assert begun(ReviewOpened(step=1, groups=())).reviews[1].left(1e9) is None


def test_a_change_shows_at_once_and_a_closed_review_is_remembered() -> None:
    opened = ReviewOpened(step=1, groups=(MIXED,), undecided=("g-1",))
    changed = ReviewChanged(step=1, groups=(OTHER,))
    state = begun(opened, changed)
    assert (state.reviews[1].groups, state.reviews[1].undecided) == ((OTHER,), ())
    state = begun(opened, changed, ReviewClosed(step=1, how="accepted", actor="ada"))
    assert not state.reviews
    assert state.review_closed is not None
    assert state.review_closed.ending == "accepted by ada"
