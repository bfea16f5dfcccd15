"""Histories that outgrow the context: Terminus-2's summaries in real trials, and their record."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import numpy as np
import pytest

from tbtui.algorithm.segments import merge
from tbtui.chat import Message
from tbtui.engines.grpo.sampling import Conversation, LoopTurns, SamplingLimits
from tbtui.journal.events import Outcome, TurnSampled, TurnStarted
from tbtui.journal.reader import JournalReader
from tbtui.journal.rundir import RunDirectory
from tbtui.journal.writer import JournalWriter
from tbtui.policies.base import Policy, Sample, SampleRequest
from tbtui.policies.local.renderer import LocalRenderer
from tbtui.policies.local.tokenizer import TOKENIZER, LocalTokenizer
from tbtui.rollout.messages import (
    Completion,
    PauseEntered,
    PauseLeft,
    SampleWanted,
    TrialFacts,
    TrialSpec,
    TurnUnderstood,
)
from tbtui.rollout.outcome import decide
from tbtui.sampling import MODEL_ITSELF
from tests.rollout.scripted import (
    DONE,
    HELLO,
    Cut,
    Fail,
    Script,
    ScriptedEngine,
    Silence,
    act,
    changed,
)

pytestmark = pytest.mark.asyncio(loop_scope="session")

LONG_OUTPUT = act("seq 1000 2800\n", duration=0.3)
"""9,000 characters: with the first prompt about 3,000 tokens, as the scripted engine counts."""
SUMMARY, QUESTIONS, ANSWERS = "so far so good", "what is left?", "to say done"
SUMMARISED = [SUMMARY, QUESTIONS, ANSWERS]
STEPS = [f"summarize-{step}" for step in ("summary", "questions", "answers")]


@pytest.fixture
def filling(spec: TrialSpec) -> TrialSpec:
    """Summarises when it has used 2,400 tokens: after `LONG_OUTPUT` has been shown."""
    free = spec.context_limit - 2_400
    return changed(spec, enable_summarize=True, proactive_summarization_threshold=free)


def asked(engine: ScriptedEngine, spec: TrialSpec) -> list[tuple[str, int]]:
    return [(ask.purpose, ask.turn) for ask in engine.seen[spec.trial].of(SampleWanted)]


def understood(engine: ScriptedEngine, spec: TrialSpec) -> list[int]:
    return [message.turn for message in engine.seen[spec.trial].of(TurnUnderstood)]


async def test_a_history_near_the_threshold_is_summarised(
    engine: ScriptedEngine, filling: TrialSpec
) -> None:
    # As many turns as the main agent takes: summaries are none.
    spec = changed(filling, max_turns=4)
    facts = await engine.run(spec, [LONG_OUTPUT, HELLO, *SUMMARISED, DONE, DONE])
    assert (facts.finish, facts.turns, facts.verdict) == ("completed", 4, 1.0)
    main = [("turn", 1), ("turn", 2)], [("turn", 3), ("turn", 4)]
    assert asked(engine, spec) == [*main[0], *((step, 2) for step in STEPS), *main[1]]
    assert understood(engine, spec) == [1, 2, 3, 4]

    first, second, summary, questions, answers, third, fourth = (
        ask.messages for ask in engine.seen[spec.trial].of(SampleWanted)
    )
    assert summary[:-1] == (*second, Message("assistant", HELLO))
    assert len(questions) == 1
    assert SUMMARY in questions[0].content
    assert answers[:-1] == (*summary, Message("assistant", SUMMARY))
    assert answers[-1].content.endswith(QUESTIONS)
    # The main agent goes on from its first prompt, the questions and their answers.
    assert third[:-1] == (first[0], questions[0], Message("assistant", QUESTIONS))
    assert ANSWERS in third[-1].content
    assert fourth[:-1] == (*third, Message("assistant", DONE))


async def test_an_empty_history_is_not_summarised(engine: ScriptedEngine, spec: TrialSpec) -> None:
    """A threshold beyond the context: before every turn but the first."""
    spec = changed(spec, enable_summarize=True, proactive_summarization_threshold=40_000)
    facts = await engine.run(spec, [HELLO, *SUMMARISED, DONE, *SUMMARISED, DONE])
    assert (facts.finish, facts.turns) == ("completed", 3)
    purposes = [purpose for purpose, _ in asked(engine, spec)]
    assert purposes == ["turn", *STEPS, "turn", *STEPS, "turn"]
    first = engine.seen[spec.trial].of(SampleWanted)[0].messages
    assert "Format your response as JSON" in first[0].content


async def test_without_a_threshold_only_a_full_context_is(
    engine: ScriptedEngine, spec: TrialSpec
) -> None:
    spec = changed(spec, enable_summarize=True, proactive_summarization_threshold=0)
    facts = await engine.run(spec, [LONG_OUTPUT, HELLO, DONE, DONE])
    assert (facts.finish, facts.turns) == ("completed", 4)
    assert {purpose for purpose, _ in asked(engine, spec)} == {"turn"}


async def withheld(engine: ScriptedEngine, spec: TrialSpec, step: str) -> SampleWanted:
    return await engine.wait_for(spec.trial, SampleWanted, lambda wanted: wanted.purpose == step)


@pytest.mark.parametrize("number", [0, 1, 2])
async def test_pause_and_stop_between_the_steps(
    engine: ScriptedEngine, filling: TrialSpec, number: int
) -> None:
    """A pause holds the trial behind the step that is asked for; then it goes on, or ends."""
    step, spec = STEPS[number], filling
    script = [LONG_OUTPUT, HELLO, *SUMMARISED[:number], Silence(), *SUMMARISED[number + 1 :], DONE]
    engine.start(spec, script)
    wanted = await withheld(engine, spec, step)
    engine.pool.control(spec.trial, "pause")
    engine.pool.reply(Completion(wanted.request, wanted.trial, SUMMARISED[number], False, 900, 4))
    await engine.wait_for(spec.trial, PauseEntered)
    assert asked(engine, spec)[-1] == (step, 2)
    if number == 1:
        engine.pool.control(spec.trial, "stop")
        facts = await engine.facts(spec.trial)
        assert asked(engine, spec)[-1] == (step, 2)
        assert (facts.finish, facts.turns, facts.verdict) == ("stopped", 2, 1.0)
    else:
        engine.pool.control(spec.trial, "resume")
        await engine.wait_for(spec.trial, PauseLeft)
        facts = await engine.facts(spec.trial)
        assert (facts.finish, facts.turns, facts.verdict) == ("completed", 4, 1.0)
        assert [p for p, _ in asked(engine, spec)].count(step) == 1


@pytest.mark.parametrize(
    ("answer", "finish", "outcome"),
    [
        pytest.param(*(Silence(), "too_slow", Outcome.TOO_SLOW), marks=pytest.mark.slow),
        (Fail("provider_error"), "provider_error", Outcome.PROVIDER_ERROR),
    ],
)
async def test_a_policy_that_fails_in_a_summary(
    engine: ScriptedEngine, filling: TrialSpec, answer: Silence | Fail, finish: str, outcome: object
) -> None:
    spec = changed(filling, budget_sec=4.0)
    facts = await engine.run(spec, [LONG_OUTPUT, HELLO, answer])
    assert (facts.finish, facts.verdict, decide(facts).outcome) == (finish, None, outcome)
    assert asked(engine, spec)[-1] == (STEPS[0], 2)


@pytest.mark.slow
async def test_a_summary_counts_against_the_budget(
    engine: ScriptedEngine, filling: TrialSpec
) -> None:
    """An agent whose commands outlast the budget, behind a summary that was slow."""
    spec = changed(filling, budget_sec=6.0)
    engine.start(spec, [LONG_OUTPUT, HELLO, *SUMMARISED, act("sleep 30\n", duration=30)])
    facts = await engine.facts(spec.trial)
    assert (facts.finish, facts.turns, facts.verdict) == ("budget", 3, 1.0)
    assert facts.seconds.sampling + facts.seconds.commands < 9


SUMMARY_FAILS: list[tuple[Script, list[str]]] = [
    # Too long for the sub-agent as well: Terminus-2 asks for a short summary.
    (
        [HELLO, Fail("context_overflow"), Fail("context_overflow"), "short", DONE, DONE],
        ["turn", "turn", STEPS[0], "summarize-short", "turn", "turn"],
    ),
    # A summary that was cut is none.
    (
        [HELLO, Fail("context_overflow"), SUMMARY, Cut(QUESTIONS), "short", DONE, DONE],
        ["turn", "turn", *STEPS[:2], "summarize-short", "turn", "turn"],
    ),
    # Not even that: it goes on with the instruction.
    (
        [HELLO, *[Fail("context_overflow")] * 3, DONE, DONE],
        ["turn", "turn", STEPS[0], "summarize-short", "turn", "turn"],
    ),
]


@pytest.mark.parametrize(("script", "purposes"), SUMMARY_FAILS)
async def test_a_full_context_whose_summary_fails(
    engine: ScriptedEngine, spec: TrialSpec, script: Script, purposes: list[str]
) -> None:
    spec = changed(spec, enable_summarize=True)
    facts = await engine.run(spec, script)
    assert (facts.finish, facts.turns, facts.verdict) == ("completed", 3, 1.0)
    assert [purpose for purpose, _ in asked(engine, spec)] == purposes
    assert understood(engine, spec) == [1, 2, 3]


async def test_a_proactive_summary_that_fails_is_tried_again_and_changes_nothing(
    engine: ScriptedEngine, filling: TrialSpec
) -> None:
    script = [LONG_OUTPUT, HELLO, SUMMARY, Cut("what"), DONE, *SUMMARISED, DONE]
    facts = await engine.run(filling, script)
    assert (facts.finish, facts.turns) == ("completed", 4)
    wanted = engine.seen[filling.trial].of(SampleWanted)
    assert [w.purpose for w in wanted] == ["turn", "turn", *STEPS[:2], "turn", *STEPS, "turn"]
    assert wanted[4].messages[:-1] == (*wanted[1].messages, Message("assistant", HELLO))


async def test_a_context_that_a_summary_does_not_empty(
    engine: ScriptedEngine, spec: TrialSpec
) -> None:
    """Else Terminus-2 takes "Technical difficulties" for the policy's answer, turn after turn."""
    overflow = Fail("context_overflow", "40000 > 32768")
    spec = changed(spec, enable_summarize=True)
    facts = await engine.run(spec, [HELLO, overflow, *SUMMARISED, overflow])
    assert (facts.finish, facts.turns, facts.verdict) == ("context_overflow", 1, 1.0)
    assert understood(engine, spec) == [1]
    summaries = [(step, 1) for step in STEPS]
    assert asked(engine, spec) == [("turn", 1), ("turn", 2), *summaries, ("turn", 2)]
    assert decide(facts).outcome is Outcome.CONTEXT_OVERFLOW
    # Two full contexts with something in between are another matter.
    again = changed(spec, trial=f"{spec.trial}-again")
    script = [HELLO, overflow, *SUMMARISED, DONE, overflow, *SUMMARISED, DONE]
    facts = await engine.run(again, script)
    assert (facts.finish, facts.turns) == ("completed", 3)


async def test_an_answer_cut_off_behind_a_summary(engine: ScriptedEngine, spec: TrialSpec) -> None:
    spec = changed(spec, enable_summarize=True)
    script = [HELLO, Fail("context_overflow"), *SUMMARISED, Cut('{"analysis": "'), DONE, DONE]
    facts = await engine.run(spec, script)
    assert (facts.finish, facts.turns) == ("completed", 4)
    turns = engine.seen[spec.trial].of(TurnUnderstood)
    assert [turn.turn for turn in turns] == [1, 2, 3, 4]
    assert turns[1].error is not None
    assert "cut at 512 tokens" in turns[1].error


# The engine's side


class Speller:
    """Answers by script, letter by letter: tokens that its text alone would not give."""

    def __init__(self) -> None:
        self._tokenizer = LocalTokenizer(TOKENIZER)
        self.renderer = LocalRenderer(self._tokenizer)
        self.says = ""

    async def sample(self, request: SampleRequest) -> Sample:
        letters = [token for letter in self.says for token in self._tokenizer.encode(letter)]
        ids = (*letters, self._tokenizer.end_id)
        return Sample(ids, np.full(len(ids), -0.5, np.float32), "stop", 7)


async def recorded(
    engine: ScriptedEngine, spec: TrialSpec, script: Script, journal: JournalWriter
) -> tuple[TrialFacts, Conversation]:
    """A trial, and the same conversation as the engine keeps it."""
    facts = await engine.run(spec, script)
    policy = Speller()
    conversation = Conversation(
        spec.trial,
        1,
        MODEL_ITSELF,
        SamplingLimits(100_000, 5_000),
        cast(Policy, policy),
        journal,
        LoopTurns(),
    )
    for wanted, answer in zip(engine.seen[spec.trial].of(SampleWanted), script, strict=True):
        assert isinstance(answer, str | Cut)
        policy.says = answer.text if isinstance(answer, Cut) else answer
        assert (await conversation.answer(wanted, policy.sample)).text == policy.says
    return facts, conversation


async def test_the_record_has_every_token_once_and_knows_what_for(
    engine: ScriptedEngine, filling: TrialSpec, tmp_path: Path
) -> None:
    directory = RunDirectory.create(tmp_path / "run")
    script = [LONG_OUTPUT, HELLO, *SUMMARISED, DONE, DONE]
    with JournalWriter(directory) as journal:
        facts, conversation = await recorded(engine, filling, script, journal)
    assert facts.finish == "completed"
    calls = conversation.calls
    assert [call.summary for call in calls] == [False, False, True, True, True, False, False]
    _, second, summary, questions, answers, third, fourth = calls

    def whole(number: int) -> tuple[int, ...]:
        return calls[number].prompt_ids + calls[number].completion_ids

    # What goes on from something goes on from its very tokens, whatever was asked in between.
    for earlier, later in ((0, second), (1, summary), (2, answers), (5, fourth)):
        assert later.prompt_ids[: len(whole(earlier))] == whole(earlier)
    for unrelated in (questions, third):
        assert unrelated.prompt_ids[: len(whole(0))] != whole(0)

    drawn = [len(call.completion_ids) for call in calls]
    assert sum(segment.action_tokens for segment in merge(calls)) == sum(drawn)
    without = merge(calls, train_summaries=False)
    assert sum(segment.action_tokens for segment in without) == sum(drawn) - sum(drawn[2:5])

    reader = JournalReader(directory)
    events = [entry.event for entry in reader.read(0, 1000)]
    samples = [event for event in events if isinstance(event, TurnSampled)]
    starts = [event for event in events if isinstance(event, TurnStarted)]
    purposes = ["turn", "turn", *STEPS, "turn", "turn"]
    assert [event.purpose for event in samples] == purposes
    assert [event.purpose for event in starts] == purposes
    assert len({event.sample for event in samples}) == len(samples) == len(calls)
    reader.close()


async def test_a_history_that_a_failed_summary_left_alone_goes_on_exactly(
    engine: ScriptedEngine, filling: TrialSpec, tmp_path: Path
) -> None:
    script = [LONG_OUTPUT, HELLO, SUMMARY, Cut("what"), DONE, *SUMMARISED, DONE]
    with JournalWriter(RunDirectory.create(tmp_path / "run")) as journal:
        facts, conversation = await recorded(engine, filling, script, journal)
    assert facts.finish == "completed"
    _, second, _, _, third, *_ = conversation.calls
    before = second.prompt_ids + second.completion_ids
    assert third.prompt_ids[: len(before)] == before
