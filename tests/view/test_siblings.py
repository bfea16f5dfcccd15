"""Siblings aligned by turn: what is the same, and where they part."""

from __future__ import annotations

from tbtui.journal.events import AgentCommand
from tbtui.view.groups import TurnCell, aligned, first_difference, first_divergence
from tbtui.view.transcript import Transcript, TurnView


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
