"""Which trials the grid shows, in which order; what is chosen stays."""

from __future__ import annotations

import pytest

from tbtui.journal.events import AnyEvent, Outcome, TrialPhase, TrialPhaseChanged
from tbtui.view.current import current_trials
from tbtui.view.groups import grouped
from tbtui.view.listing import Filter, Listing, RewardRange, rewarded
from tbtui.view.state import RunState

from .story import STANDINGS, finished, standing


def state_of(*more: AnyEvent) -> RunState:
    """One group of six trials, named for how they stand."""
    return standing(dict.fromkeys(STANDINGS, "g"), *more)


def names(listing: Listing, state: RunState, selected: str | None = None) -> list[str]:
    return [
        trial.trial
        for trial in listing.chosen_from(current_trials(state), state, selected, state.time)
    ]


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ("", [*STANDINGS]),
        ("acting", ["acting"]),
        ("FAILED", ["failed"]),
        ("infrastructure", ["lost"]),
        ("running", ["acting", "paused"]),
        ("copy done", ["solved", "failed", "lost"]),
        ("copy nothing-like-it", []),
        ("left out", ["lost"]),
    ],
)
def test_every_word_must_be_found(words: str, wanted: list[str]) -> None:
    assert names(Listing(Filter(words=words)), state_of()) == wanted


@pytest.mark.parametrize("wanted", [Filter(words="failed"), Filter(rewards=RewardRange("1", 1, 2))])
def test_a_filter_dims_and_changes_no_figure(wanted: Filter) -> None:
    state = state_of()
    (whole,) = grouped(current_trials(state), state)
    (group,) = grouped(Listing(wanted).chosen_from(whole.trials, state, None, 0.0), state)
    assert len(group.listed) == 1 and len(group.dimmed) == 5
    assert group.trials == whole.trials
    assert (group.mean, group.spread, group.complete) == (0.5, 0.5, False)


def test_what_is_chosen_stays_listed_until_the_filter_changes() -> None:
    listing = Listing(Filter(words="acting"))
    assert names(listing, state_of(), "acting") == ["acting"]
    later = state_of(TrialPhaseChanged(trial="acting", phase=TrialPhase.MODEL))
    assert names(listing, later, "acting") == ["acting"]
    listing.filter = Filter(words="failed")
    assert names(listing, later, "acting") == ["failed"]


def test_a_bar_of_the_histogram_lists_its_trials_though_they_are_over() -> None:
    state = state_of()
    listing = Listing(Filter(rewards=RewardRange("1.0", 0.5, 2.0)))
    assert names(listing, state) == ["solved"]
    assert not listing.earlier
    assert sorted(trial.reward or 0.0 for trial in rewarded(state)) == sorted(state.rewards)
    assert listing.filter.in_words == "reward 1.0"


def test_a_task_with_nothing_under_way_shows_its_earlier_trials() -> None:
    state = state_of()
    listing = Listing()
    listing.by_task(task="copy-01")
    assert len(listing.chosen_from([], state, None, state.time)) == 6
    assert listing.earlier
    assert names(listing, state)[0] == "solved"
    assert not listing.earlier
    listing.by_task(task="copy-01")
    assert not listing.filter


def test_flakes_and_excluded_outcomes_are_told_apart() -> None:
    task = state_of(finished("acting", None, Outcome.CONTEXT_OVERFLOW)).tasks["copy-01"]
    assert (task.unscored, task.lost) == (2, 1)
    assert task.flake_rate == pytest.approx(1 / 4)
