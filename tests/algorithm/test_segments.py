"""Segments: every sampled token exactly once, whatever the history."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tbtui.algorithm.segments import Call, merge

ids = st.lists(st.integers(0, 50), min_size=1, max_size=8).map(tuple)


def call(prompt: tuple[int, ...], completion: tuple[int, ...]) -> Call:
    return Call(prompt, completion, -np.arange(1, len(completion) + 1, dtype=np.float32))


@st.composite
def trials(draw: st.DrawFn) -> list[Call]:
    """Calls that extend each other, with now and then a rewritten history."""
    calls: list[Call] = []
    history: tuple[int, ...] = ()
    for _ in range(draw(st.integers(1, 6))):
        prompt = draw(ids) if draw(st.integers(0, 4)) == 0 else history + draw(ids)
        calls.append(call(prompt, draw(ids)))
        history = prompt + calls[-1].completion_ids
    return calls


@given(trials())
def test_every_sampled_token_is_trained_on_exactly_once(calls: list[Call]) -> None:
    segments = merge(calls)
    numbers = [number for s in segments for number in s.trained]
    assert sorted(numbers) == list(range(len(calls)))
    drawn = [token for number in numbers for token in calls[number].completion_ids]
    kept = [int(token) for s in segments for token in s.tokens[s.mask]]
    assert kept == drawn
    logprobs = np.concatenate([s.logprobs[s.mask] for s in segments])
    np.testing.assert_array_equal(logprobs, np.concatenate([calls[n].logprobs for n in numbers]))


@given(trials())
def test_each_completion_is_preceded_by_its_own_prompt(calls: list[Call]) -> None:
    segments = merge(calls)
    prefixes = [tuple(s.tokens[:n].tolist()) for s in segments for n in range(len(s.tokens) + 1)]
    for c in calls:
        assert c.prompt_ids + c.completion_ids in prefixes


@given(trials())
def test_the_first_token_is_never_trained_on(calls: list[Call]) -> None:
    assert not any(segment.mask[0] for segment in merge(calls))


def test_turns_that_extend_each_other_become_one_sequence() -> None:
    segments = merge([call((1, 2), (3,)), call((1, 2, 3, 4), (5, 6))])
    assert [s.tokens.tolist() for s in segments] == [[1, 2, 3, 4, 5, 6]]
    assert segments[0].mask.tolist() == [False, False, True, False, True, True]


def test_a_rewritten_history_opens_a_new_segment() -> None:
    segments = merge([call((1, 2), (3,)), call((1, 9), (5,))])
    assert [s.tokens.tolist() for s in segments] == [[1, 2, 3], [1, 9, 5]]


def test_a_prompt_that_stops_inside_the_history_opens_a_new_segment() -> None:
    assert len(merge([call((1, 2), (3, 4)), call((1, 2, 3), (7,))])) == 2


def test_missing_log_probabilities_are_an_error() -> None:
    with pytest.raises(ValueError, match="2 tokens but 1 log-probabilities"):
        merge([Call((1,), (2, 3), np.zeros(1, np.float32))])


@given(trials(), st.data())
def test_masked_summaries_stay_as_context(calls: list[Call], data: st.DataObject) -> None:
    calls = [dataclasses.replace(c, summary=data.draw(st.booleans())) for c in calls]
    everything, without = merge(calls), merge(calls, train_summaries=False)
    for whole, masked in zip(everything, without, strict=True):
        np.testing.assert_array_equal(whole.tokens, masked.tokens)
        assert not masked.logprobs[~masked.mask].any()
    numbers = [number for s in without for number in s.trained]
    assert sorted(numbers) == [number for number, c in enumerate(calls) if not c.summary]
    kept = [int(token) for s in without for token in s.tokens[s.mask]]
    assert kept == [token for number in numbers for token in calls[number].completion_ids]


@given(trials())
def test_as_few_segments_as_rewrites_of_history(calls: list[Call]) -> None:
    histories = [c.prompt_ids + c.completion_ids for c in calls]
    rewrites = sum(
        c.prompt_ids[: len(before)] != before
        for before, c in zip(histories, calls[1:], strict=False)
    )
    assert len(merge(calls)) <= rewrites + 1


def test_branches_grow_from_where_they_left() -> None:
    """A sub-agent's call between two of the main agent's, and a retry of the same prompt."""
    main, sub = call((1, 2), (3,)), call((7,), (8,))
    again = call((1, 2), (5,))
    later = call((1, 2, 3, 4), (6,))
    segments = merge([main, sub, again, later])
    assert [s.tokens.tolist() for s in segments] == [[1, 2, 3, 4, 6], [7, 8], [1, 2, 5]]
    assert [s.trained for s in segments] == [(0, 3), (1,), (2,)]
    assert [s.rewritten for s in segments] == [False, False, False]
    assert not segments[2].mask[:2].any()


def test_rewritten_history_is_told_from_other_branches() -> None:
    said = call((1, 2), (3, 4))
    assert [s.rewritten for s in merge([said, call((1, 2, 3, 9), (5,))])] == [False, True]
    assert [s.rewritten for s in merge([said, call((1, 2, 9), (5,))])] == [False, True]
    assert [s.rewritten for s in merge([said, call((1, 9), (5,))])] == [False, False]


def test_abandoned_calls_have_no_part_unless_they_are_wanted() -> None:
    gone = dataclasses.replace(call((1, 2), (3,)), abandoned=True)
    kept = call((1, 2), (5,))
    (segment,) = merge([gone, kept])
    assert segment.tokens.tolist() == [1, 2, 5]
    assert len(merge([gone, kept], train_abandoned=True)) == 2
    side = dataclasses.replace(call((8, 2), (3,)), side=True)
    assert [each.trained for each in merge([side, kept])] == [(1,)]
    assert len(merge([side, kept], train_side_calls=True)) == 2
