"""Groups of the trials on the screen: their figures, their order, and that it stands still."""

from __future__ import annotations

import pytest

from tbtui.journal.events import AgentCommand, AnyEvent, TrialPaused, TrialScore
from tbtui.view.current import current_trials
from tbtui.view.groups import (
    HELD_OUT,
    Order,
    TrialGroup,
    TurnCell,
    aligned,
    first_difference,
    first_divergence,
    grouped,
)
from tbtui.view.listing import HOLD_SEC, Filter, Listing
from tbtui.view.state import RunState
from tbtui.view.transcript import Transcript, TurnView
from tests.events import group_scored, trial_queued

from .story import STANDINGS, finished, queued, standing, turn


def state_of(*more: AnyEvent, others: int = 0) -> RunState:
    """Six groups of one trial each, named for how it stands; and others that wait."""
    names = [*STANDINGS, *(f"other-{number}" for number in range(others))]
    return standing({name: name for name in names}, *more)


def names(
    listing: Listing, state: RunState, selected: str | None = None, now: float | None = None
) -> list[str]:
    at = state.time if now is None else now
    listed = listing.chosen_from(current_trials(state), state, selected, at)
    return [trial.trial for trial in listed]


def groups_of(state: RunState) -> dict[str, TrialGroup]:
    return {group.key[2]: group for group in grouped(current_trials(state), state)}


@pytest.mark.parametrize(
    ("order", "first"),
    [
        ("attention", list(STANDINGS)),
        ("queued", list(STANDINGS)),
        ("state", ["paused", "acting", "queued", "lost", "failed", "solved"]),
        ("age", ["acting", "paused", "solved", "failed", "lost", "queued"]),
        ("reward", ["solved", "failed"]),
        ("task", list(STANDINGS)),
    ],
)
def test_orders_of_groups_that_are_all_in_sight(order: Order, first: list[str]) -> None:
    assert names(Listing(order=order), state_of())[: len(first)] == first


def test_of_many_groups_those_that_need_attention_come_first() -> None:
    listed = names(Listing(), state_of(others=6))
    assert listed[:4] == ["paused", "lost", "acting", "queued"]
    assert listed[-2:] == ["solved", "failed"]


def test_a_groups_siblings_stay_together_in_their_places() -> None:
    state = state_of(
        queued("failed-2", group="failed"), queued("solved-2", group="solved"), others=6
    )
    listed = names(Listing(), state)
    for group in ("failed", "solved"):
        assert listed.index(f"{group}-2") == listed.index(group) + 1


def test_the_chosen_group_keeps_its_place_while_others_are_sorted() -> None:
    listing, before = Listing(), state_of(others=6)
    chosen = names(listing, before)[2]
    assert chosen == "acting"
    assert names(listing, before, chosen) == names(Listing(), before)
    later = state_of(finished("acting", 1.0), others=6)
    sorted_by_itself = names(Listing(), later)
    assert sorted_by_itself.index(chosen) != 2
    moved = names(listing, later, chosen, before.time + HOLD_SEC + 1)
    assert moved.index(chosen) == 2
    without = [name for name in sorted_by_itself if name != chosen]
    assert [name for name in moved if name != chosen] == without


def test_groups_of_forks_are_named_for_their_turns_and_stay_in_their_order() -> None:
    """Those of one trial are all of its task, and a search has one for each turn."""
    forks = [
        trial_queued(
            f"f{turn}-{number}", group=f"f{turn}", purpose="fork", parent="a", fork_turn=turn
        )
        for turn in (2, 10)
        for number in (1, 2)
    ]
    state = standing({}, queued("a"), *forks)
    assert {name: each.name for name, each in groups_of(state).items()} == {
        "g": "copy-01", "f2": "copy-01@2", "f10": "copy-01@10",
    }  # fmt: skip
    listed = names(Listing(order="task"), state)
    assert [name for name in listed if name != "a"] == ["f2-1", "f2-2", "f10-1", "f10-2"]


def test_after_a_move_no_group_moves_until_the_next_key_is_out() -> None:
    listing, before = Listing(), state_of(others=6)
    rows = names(listing, before)
    assert names(listing, before, rows[3]) == rows
    later = state_of(finished("acting", 1.0), others=6)
    assert names(listing, later, rows[3], before.time + HOLD_SEC / 2) == rows
    assert names(listing, later, rows[3], before.time + HOLD_SEC) != rows


def test_another_order_and_another_filter_sort_at_once() -> None:
    listing, state = Listing(), state_of(others=6)
    rows = names(listing, state)
    assert names(listing, state, rows[3]) == rows
    listing.order = "reward"
    assert names(listing, state, rows[3])[:2] == ["solved", "failed"]
    listing.filter = Filter(words="queued")
    assert names(listing, state, rows[3])[0] == "queued"


def test_figures_of_a_group() -> None:
    more = [queued("b", group="solved"), finished("b", 0.0)]
    group = groups_of(state_of(*more, queued("c", group="solved")))["solved"]
    assert (group.mean, group.spread, group.complete) == (0.5, 0.5, False)
    assert group.advantages is None
    scores = {
        name: TrialScore(reward=reward, advantage=2 * reward - 1, tokens=10)
        for name, reward in (("solved", 1.0), ("b", 0.0))
    }
    scored = group_scored("solved", scores)
    group = groups_of(state_of(*more, scored))["solved"]
    assert group.disposition == "trained"
    assert group.advantages == (-1.0, 1.0)


def test_who_holds_a_group_up_is_who_is_held_by_a_person_else_the_oldest() -> None:
    two = [queued("old"), queued("young"), *turn("old", 1), *turn("young", 1)]
    for more, expected in (([], "old"), ([TrialPaused(trial="young")], "young")):
        groups = groups_of(state_of(*two, *more))
        slowest = groups["g"].slowest
        assert slowest is not None
        assert slowest.trial == expected
        assert groups["solved"].slowest is None


def test_an_evaluation_that_tries_each_task_once_is_one_group() -> None:
    def held_out(trial: str, task: str) -> AnyEvent:
        return trial_queued(
            trial, label=f"{task}/1", task=task, group=f"e0-{task}", step=0, purpose="eval"
        )

    once = state_of(held_out("a", "move-07"), held_out("b", "move-08"))
    (group,) = (each for each in grouped(once.trials.values(), once) if each.held_out)
    assert (group.name, len(group.trials), group.many_tasks) == (HELD_OUT, 2, True)
    twice = state_of(held_out("a", "move-07"), held_out("b", "move-08"), held_out("c", "move-07"))
    tasks = [each.name for each in grouped(twice.trials.values(), twice) if each.held_out]
    assert tasks == ["move-07", "move-08"]


# Siblings aligned by turn: what is the same, and where they part


def transcript(*turns: tuple[str, str], purpose: str = "turn") -> Transcript:
    """A transcript of keystrokes and answers."""
    return Transcript(
        turns=[
            TurnView(
                number,
                float(number),
                purpose,
                commands=(AgentCommand(keystrokes=keys, duration_sec=0.1),),
                observation=answer,
            )
            for number, (keys, answer) in enumerate(turns, start=1)
        ]
    )


def parts(cells: list[list[TurnCell]]) -> list[list[str]]:
    return [
        ["=" if cell.against is None else f"{cell.where} {cell.against}" for cell in each]
        for each in cells
    ]


def test_the_fewer_part_from_the_more_and_each_parts_once() -> None:
    cells = aligned(
        [
            transcript(("ls", "a"), ("cp", "ok"), ("ls", "a b")),
            transcript(("ls", "a"), ("mv", "ok"), ("ls", "a b")),
            transcript(("ls", "a"), ("cp", "ok"), ("ls", "b")),
            transcript(("ls", "a"), ("cp", "ok"), ("ls", "a b")),
        ]
    )
    assert parts(cells) == [
        ["=", "=", "="],
        ["=", "action 0", "="],
        ["=", "=", "answer 0"],
        ["=", "=", "="],
    ]
    assert first_divergence(cells) == 1
    assert [cell.alike for cell in cells[3]] == [4, 3, 2]
    # The same end after another way is another history.
    assert cells[1][2].alike == 1
    # What all share is dimmed for all; what some share, for all but the first of them.
    assert [cell.repeated for cell in cells[0]] == [True, False, False]
    assert [cell.repeated for cell in cells[3]] == [True, True, True]


def test_a_turn_under_way_is_compared_with_none() -> None:
    cells = aligned([transcript(("ls", "a"), ("cp", "ok")), transcript(("ls", "a"), ("mv", ""))])
    assert parts(cells) == [["=", "="], ["=", "="]]
    assert first_divergence(cells) is None


def test_summaries_are_no_turns_and_lengths_may_differ() -> None:
    with_summary = transcript(("ls", "a"), ("cp", "ok"))
    with_summary.turns.insert(1, TurnView(1, 1.5, "summary"))
    cells = aligned([with_summary, transcript(("ls", "a")), Transcript()])
    assert [len(each) for each in cells] == [2, 1, 0]
    assert first_divergence(cells) is None
    assert aligned([]) == []


def test_the_first_differing_token() -> None:
    assert first_difference(["a", "b", "c"], ["a", "x", "c"]) == 1
    assert first_difference(["a"], ["a", "b"]) == 1
    assert first_difference(["a"], ["a"]) is None
    assert first_difference([], ["a"]) is None
