"""A trial's transcript: one entry for every call of the model."""

from __future__ import annotations

import msgspec

from tbtui.journal.events import Entry, TurnParsed, TurnSampled, TurnStarted
from tbtui.view.transcript import Transcript
from tests.events import turn_sampled


def sampled(sample: int, text: str, purpose: str) -> TurnSampled:
    return turn_sampled("t", turn=3, purpose=purpose, sample=sample, text=text, prompt_tokens=10)


def test_a_call_that_summarises_is_no_turn() -> None:
    events = [
        TurnStarted(trial="t", turn=3, purpose="summarize-summary"),
        sampled(1, "so far: much", "summarize-summary"),
        TurnStarted(trial="t", turn=3),
        sampled(2, "an answer", "turn"),
        TurnParsed(trial="t", turn=3, analysis="a", plan="p", commands=(), task_complete=False),
    ]
    transcript = Transcript()
    assert transcript.apply(Entry(n, float(n), event) for n, event in enumerate(events, 1))
    summary, turn = transcript.turns
    assert (summary.purpose, summary.sample, summary.text) == (
        "summarize-summary",
        1,
        "so far: much",
    )
    assert not summary.plan
    assert (turn.purpose, turn.sample, turn.plan) == ("turn", 2, "p")


def test_thinking_and_what_was_cached_belong_to_the_turn() -> None:
    answer = msgspec.structs.replace(
        sampled(1, "an answer", "turn"), turn=1, thinking="let me see", cached_tokens=8
    )
    transcript = Transcript()
    transcript.apply(
        Entry(n, float(n), event)
        for n, event in enumerate([TurnStarted(trial="t", turn=1), answer], 1)
    )
    (turn,) = transcript.turns
    assert (turn.thinking, turn.text) == ("let me see", "an answer")
    assert (turn.cached_tokens, turn.prompt_tokens) == (8, 10)
