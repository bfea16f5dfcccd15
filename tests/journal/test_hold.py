"""What may hold a trial, and what each command makes of that: all of it."""

from __future__ import annotations

from typing import get_args

import pytest

from tbtui.journal.hold import ENDED, FROZEN, PAUSED, RUNNING, Hold, HoldState, HoldVerb, typed_in
from tbtui.journal.verbs import Standing, already_so

ADA, BOB = typed_in("ada"), typed_in("bob")
VERBS: tuple[HoldVerb, ...] = get_args(HoldVerb)
TABLE: dict[Hold, tuple[Hold | None, ...]] = {
    # after: pause, freeze, resume, take_over by bob, give_back
    RUNNING: (PAUSED, FROZEN, RUNNING, BOB, RUNNING),
    PAUSED: (PAUSED, FROZEN, RUNNING, BOB, PAUSED),
    FROZEN: (FROZEN, FROZEN, RUNNING, BOB, FROZEN),
    ADA: (ADA, FROZEN, RUNNING, BOB, PAUSED),
    ENDED: (None, None, ENDED, None, ENDED),
}


def test_the_table_is_whole() -> None:
    assert {hold.state for hold in TABLE} == set(get_args(HoldState))
    assert {hold for hold in TABLE if hold.paused} == {PAUSED, FROZEN, ADA}


@pytest.mark.parametrize("hold", TABLE, ids=lambda hold: hold.state)
def test_what_each_command_makes_of_a_hold(hold: Hold) -> None:
    assert tuple(hold.after(verb, "bob") for verb in VERBS) == TABLE[hold]
    for verb in ("pause", "freeze", "give_back"):
        # It is said to be so already just where the command changes nothing.
        stands = Standing("t", hold=hold)
        assert bool(already_so(verb, stands)) == (hold.after(verb) == hold), verb  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("state", "typist"),
    [*((state, "ada") for state in get_args(HoldState) if state != "typed_in"), ("typed_in", "")],
)
def test_no_other_hold_can_be_written_down(state: HoldState, typist: str) -> None:
    with pytest.raises(ValueError, match=state):
        Hold(state, typist)
    assert typed_in("") == PAUSED  # as a journal from elsewhere may have it
