"""Random trees of model calls through the endpoint: what is trained on is what was sampled."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import anthropic
import numpy as np
import openai
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tbtui.algorithm.segments import Call, merge
from tbtui.chat import Message, Tool, ToolCall, most_chars
from tbtui.endpoint.calls import Api, CallRefused, ModelAnswer, ModelCall
from tbtui.engines.grpo.sampling import Conversation, LoopTurns, SamplingLimits
from tbtui.journal.events import AnyEvent, TurnAbandoned, TurnSampled, TurnStarted, TurnWriting
from tbtui.journal.samples import SampleRecord
from tbtui.journal.writer import JournalWriter
from tbtui.policies.base import (
    ContextOverflowError,
    Policy,
    PolicyError,
    Sample,
    SampleRequest,
    UnrenderableError,
)
from tbtui.policies.chat.make import make_renderer
from tbtui.policies.chat.template import TemplateRenderer
from tbtui.policies.chat.vocabulary import Vocabulary
from tbtui.rollout.messages import SampleWanted
from tbtui.sampling import MODEL_ITSELF, SamplingParams
from tests.endpoint.served import SECRET, Scripted, served
from tests.policies.chat.chat_models import TOOL_NAMES, write_model
from tests.policies.chat.test_tools import TOOLS, written

LIMITS = SamplingLimits(context=100_000, completion=400)


@dataclass
class Written:
    """A journal that keeps everything in lists."""

    events: list[AnyEvent] = field(default_factory=list)
    samples: list[SampleRecord] = field(default_factory=list)

    def append(self, event: AnyEvent) -> int:
        self.events.append(event)
        return len(self.events)

    def add_sample(self, record: SampleRecord) -> int:
        self.samples.append(record)
        return len(self.samples)


@dataclass
class Babbler:
    """A policy that says something at random in a model's format, spelt in tokens at random: as a
    sampler does, not as the tokenizer would."""

    name: str
    renderer: TemplateRenderer
    drawn: list[tuple[tuple[int, ...], tuple[int, ...]]] = field(default_factory=list)

    async def sample(self, request: SampleRequest) -> Sample:
        dice = random.Random(request.seed)
        await asyncio.sleep(0)
        text = dice.choice(["Let me see. ", " yes\n", "Größe 🙂 ", ""])
        if dice.random() < 0.5:
            text = written(self.name, {"command": dice.choice(["ls", "pwd"]), "times": 1})
        if dice.random() < 0.2:
            text += "STOP and more"
        vocabulary: Vocabulary = self.renderer._vocabulary
        ids: list[int] = []
        while text:
            length = dice.randint(1, 9)
            # Marks of the format are single tokens; the rest is cut anywhere.
            for mark in ("<tool_call>", "</tool_call>", *vocabulary.ids):
                if text.startswith(mark):
                    length = len(mark)
                    break
            else:
                cut = min((at for m in vocabulary.ids if (at := text.find(m)) > 0), default=length)
                length = min(length, cut)
            ids += vocabulary.encode(text[:length])
            text = text[length:]
        ids = ids[: request.max_tokens - 1]
        if dice.random() < 0.9:
            ids.append(self.renderer.stop_ids[-1])
        logprobs = np.array([-dice.random() for _ in ids], np.float32)
        self.drawn.append((request.prompt_ids, tuple(ids)))
        return Sample(tuple(ids), logprobs, "stop", 1)


class Trial:
    """A conversation with a policy that babbles, as a trial's agent has it."""

    def __init__(
        self, policy: Babbler, seed: int = 1, sampling: SamplingParams = MODEL_ITSELF
    ) -> None:
        self.policy = policy
        self.journal = Written()
        self.talk = Conversation(
            "t",
            seed,
            sampling,
            LIMITS,
            cast(Policy, policy),
            cast(JournalWriter, self.journal),
            LoopTurns(),
        )
        self.turn = 0
        self.said: list[tuple[object, int]] = []

    async def ask(
        self, messages: Sequence[Message], tools: tuple[Tool, ...] = TOOLS, **asked: Any
    ) -> tuple[Message, int]:
        self.turn += 1
        turn = self.turn
        wanted = SampleWanted(turn, "t", turn, tuple(messages), tools=tools, **asked)
        answer = await self.talk.answer(wanted, self.policy.sample)
        said = Message("assistant", answer.text, answer.thinking, answer.tool_calls)
        self.said.append((reading(said), turn))
        return said, turn

    def call(self, turn: int) -> Call:
        return self.talk.calls[self.talk._turn_of[turn]]

    def went_on(self, said: Message, turn: int) -> bool:
        """Whether this turn's prompt begins with the tokens of that answer, or of one that reads
        the same."""
        prompt = self.call(turn).prompt_ids
        alike = [self.call(t) for read, t in self.said if read == reading(said) and t != turn]
        whole = [call.prompt_ids + call.completion_ids for call in alike]
        return any(prompt[: len(tokens)] == tokens for tokens in whole)

    def check(self) -> None:
        """Every token that was sampled, and not cut off or abandoned, is trained on once, after
        exactly the prompt that it was drawn for."""
        records = self.journal.samples
        assert [r.prompt_ids for r in records] == [c.prompt_ids for c in self.talk.calls]
        drawn = {(prompt, ids) for prompt, ids in self.policy.drawn}
        for call in self.talk.calls:
            assert any(
                call.prompt_ids == prompt and ids[: len(call.completion_ids)] == call.completion_ids
                for prompt, ids in drawn
            )
        for kept in (False, True):
            segments = merge(self.talk.calls, train_abandoned=kept)
            wanted = {n for n, call in enumerate(self.talk.calls) if kept or not call.abandoned}
            trained = [number for segment in segments for number in segment.trained]
            assert sorted(trained) == sorted(wanted)
            total = sum(len(self.talk.calls[number].completion_ids) for number in wanted)
            assert sum(segment.action_tokens for segment in segments) == total
            for segment in segments:
                tokens = tuple(segment.tokens.tolist())
                for number in segment.trained:
                    call = self.talk.calls[number]
                    whole = call.prompt_ids + call.completion_ids
                    assert tokens[: len(whole)] == whole
                    where = slice(len(call.prompt_ids), len(whole))
                    assert segment.mask[where].all()
                    np.testing.assert_array_equal(segment.logprobs[where], call.logprobs)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, TemplateRenderer]:
    folder = tmp_path_factory.mktemp("models")
    made = {}
    for name in TOOL_NAMES:
        renderer = make_renderer("template", str(write_model(name, folder)), "keep")
        assert isinstance(renderer, TemplateRenderer)
        made[name] = renderer
    return made


def reading(said: Message) -> object:
    return said.content, [(call.name, call.arguments) for call in said.tool_calls]


def results(said: Message) -> list[Message]:
    """What an agent sends after an answer."""
    if not said.tool_calls:
        return [Message("user", "Go on.")]
    return [Message("tool", f"result of {c.name}", tool_call_id=c.id) for c in said.tool_calls]


def rewritten(said: Message) -> Message:
    """An answer that an agent doesn't hand back as it was."""
    return replace(said, content=f" {said.content.strip()} really")


async def random_tree(trial: Trial, dice: random.Random) -> int:
    """An agent's calls at random; returns how many of them rewrote an answer."""
    first = [Message("system", "Be brief."), Message("user", "What is here?")]
    said, _ = await trial.ask(first)
    conversations = [[*first, said]]
    rewrote = 0
    for _ in range(dice.randint(1, 9)):
        history = dice.choice(conversations)
        asked: dict[str, Any] = {}
        if dice.random() < 0.3:
            asked["stop"] = ("STOP", "never said")
        if dice.random() < 0.2:
            asked["one_tool_call"] = True
        if dice.random() < 0.1:
            asked["max_tokens"] = 5
        messages = [*history, *results(history[-1])]
        match dice.choice(
            ["on", "on", "on", "retry", "sub-agent", "compact", "rewrite", "parallel"]
        ):
            case "on":
                said, turn = await trial.ask(messages, **asked)
                assert trial.went_on(history[-1], turn)
                history[:] = [*messages, said]
            case "retry":
                _, turn = await trial.ask(messages, **asked)
                trial.talk.abandoned(turn)
                said, turn = await trial.ask(messages, **asked)
                assert trial.went_on(history[-1], turn)
                history[:] = [*messages, said]
            case "sub-agent":
                own = [Message("system", "You search."), Message("user", f"Find {dice.random()}")]
                tools = dice.choice([(), TOOLS])
                said, _ = await trial.ask(own, tools, **asked)
                if tools:  # with others later, it would be another prompt
                    conversations.append([*own, said])
            case "compact":
                short = [*first, Message("user", f"So far: {dice.random()}")]
                said, _ = await trial.ask(short, **asked)
                history[:] = [*short, said]
            case "rewrite":
                rewrote += 1
                changed = [*history[:-1], rewritten(history[-1]), *results(history[-1])]
                said, _ = await trial.ask(changed, **asked)
                history[:] = [*changed, said]
            case "parallel":
                one, two = await asyncio.gather(
                    trial.ask(messages, **asked), trial.ask(messages, **asked)
                )
                assert trial.went_on(history[-1], one[1])
                assert trial.went_on(history[-1], two[1])
                conversations.append([*messages, two[0]])
                history[:] = [*messages, one[0]]
    return rewrote


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32), name=st.sampled_from(TOOL_NAMES))
@example(seed=3279464, name="hermes")  # two at once, one of which says nothing
def test_random_trees_train_on_what_was_sampled(
    models: dict[str, TemplateRenderer], seed: int, name: str
) -> None:
    trial = Trial(Babbler(name, models[name]), seed)
    rewrote = asyncio.run(random_tree(trial, random.Random(seed)))
    trial.check()
    assert sum(segment.rewritten for segment in merge(trial.talk.calls)) <= rewrote


@pytest.mark.parametrize(
    ("id", "logprob", "says"),
    [
        (-1, -0.5, "token id"),
        (1 << 40, -0.5, "token id"),
        (1_000_000, -0.5, "token id"),
        (5, 0.5, "positive"),
        (5, np.nan, "finite"),
        (5, -np.inf, "finite"),
    ],
)
async def test_what_no_sampler_draws_is_not_recorded(
    models: dict[str, TemplateRenderer], id: int, logprob: float, says: str
) -> None:
    trial = Trial(Babbler("hermes", models["hermes"]))

    async def draw(request: SampleRequest) -> Sample:
        return Sample((5, id), np.array([-0.1, logprob], np.float32), "stop", 1)

    with pytest.raises(PolicyError, match=says):
        await trial.talk.answer(SampleWanted(1, "t", 1, (Message("user", "x"),)), draw)
    assert not trial.journal.samples
    assert not trial.talk.calls


async def test_what_the_chat_format_does_not_take_is_the_callers(
    models: dict[str, TemplateRenderer], monkeypatch: pytest.MonkeyPatch
) -> None:
    trial = Trial(Babbler("hermes", models["hermes"]))

    def apply(*args: object, **variables: object) -> str:
        return str(1 // 0)

    template = replace(models["hermes"]._template, apply=apply)
    monkeypatch.setattr(models["hermes"], "_template", template)
    with pytest.raises(UnrenderableError, match="the chat template fails"):
        await trial.ask([Message("user", "x")])


async def test_a_long_prompt_keeps_the_loop_from_nothing(
    models: dict[str, TemplateRenderer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that fits into no context is not even rendered."""
    trial = Trial(Babbler("hermes", models["hermes"]))
    ran, render, alone = threading.Event(), trial.policy.renderer.render, threading.Lock()

    def rendered(messages: Sequence[Message], tools: Sequence[Tool] = ()) -> tuple[int, ...]:
        assert alone.acquire(blocking=False), "two prompts of a trial at a time"
        assert ran.wait(10), "the loop stands still"
        alone.release()
        return render(messages, tools)

    monkeypatch.setattr(trial.policy.renderer, "render", rendered)
    prompt = [Message("user", "What is here? " * 1000)]
    asked = [asyncio.create_task(trial.ask(prompt, count_only=n > 0)) for n in range(3)]
    await asyncio.sleep(0.01)
    ran.set()
    await asyncio.gather(*asked)
    ran.clear()
    long = [Message("user", "")] * (2 * LIMITS.context)
    for prompt in (long, [Message("user", "x" * most_chars(LIMITS.context))]):
        with pytest.raises(ContextOverflowError, match="characters; the maximum context length"):
            await trial.ask(prompt, count_only=True)


async def test_long_prompts_of_all_trials_are_rendered_one_after_the_other() -> None:
    """And short ones meanwhile."""
    turns, go, alone = LoopTurns(), threading.Event(), threading.Lock()

    def render() -> None:
        with contextlib.ExitStack() as stack:
            assert alone.acquire(blocking=False), "two long prompts at a time"
            stack.callback(alone.release)
            assert go.wait(10), "a short prompt waits for a long one"

    long = [asyncio.create_task(turns.beside(render, 1 << 20)) for _ in range(3)]
    await asyncio.sleep(0)
    await turns.beside(lambda: None, 1000)
    go.set()
    await asyncio.gather(*long)


async def test_a_linear_conversation_is_one_segment(models: dict[str, TemplateRenderer]) -> None:
    for name in TOOL_NAMES:
        trial = Trial(Babbler(name, models[name]), 5)
        messages = [Message("user", "What is here?")]
        for _ in range(6):
            said, _ = await trial.ask(messages)
            # As an API carries it back: other ids, arguments in another form, no thinking.
            calls = tuple(
                ToolCall(f"x{c.id}", c.name, json.dumps(json.loads(c.arguments), indent=1))
                for c in said.tool_calls
            )
            messages += [replace(said, tool_calls=calls, thinking=""), *results(said)]
        (segment,) = merge(trial.talk.calls)
        assert (segment.calls, segment.rewritten) == (6, False)


async def test_an_answer_is_journalled_as_it_is_drawn(
    models: dict[str, TemplateRenderer],
) -> None:
    """At once, and not again within a second: a fast model's journal has one event more."""
    trial = Trial(Babbler("hermes", models["hermes"]), 3)
    babble, pieces = trial.policy.sample, trial.policy.renderer.pieces

    async def sample(request: SampleRequest) -> Sample:
        drawn = await babble(request)
        assert request.on_drawn is not None
        request.on_drawn(0, drawn.completion_ids[:3])
        request.on_drawn(3, drawn.completion_ids[3:4])
        return drawn

    wanted = SampleWanted(1, "t", 1, (Message("user", "the task"),), tools=TOOLS)
    await trial.talk.answer(wanted, sample)
    started, *written = [
        e for e in trial.journal.events if isinstance(e, TurnStarted | TurnWriting)
    ]
    assert isinstance(started, TurnStarted) and started.prompt == "the task"
    ((_, ids),) = trial.policy.drawn
    assert [(e.before, e.tokens, e.text) for e in written if isinstance(e, TurnWriting)] == [
        (0, 3, "".join(pieces(ids[:3]))),
    ]


async def test_rewritten_history_splits_and_is_counted(
    models: dict[str, TemplateRenderer],
) -> None:
    trial = Trial(Babbler("hermes", models["hermes"]), 3)
    messages = [Message("user", "What is here?")]
    said, _ = await trial.ask(messages)
    messages += [rewritten(said), *results(said)]
    await trial.ask(messages)
    await trial.ask([Message("user", "Another agent's question")])
    assert [segment.rewritten for segment in merge(trial.talk.calls)] == [False, True, False]


async def test_a_call_beside_the_conversation_is_marked_before_it_or_after(
    models: dict[str, TemplateRenderer],
) -> None:
    trial = Trial(Babbler("hermes", models["hermes"]), 3)
    await trial.ask([Message("user", "A title, please")], ())
    await trial.ask([Message("user", "What is here?")])
    trial.talk.side_call(1)
    trial.talk.side_call(3)
    await trial.ask([Message("user", "Is that safe?")], ())
    assert [call.side for call in trial.talk.calls] == [True, False, True]
    assert [segment.trained for segment in merge(trial.talk.calls)] == [(1,)]


@pytest.mark.parametrize(
    ("agents", "runs", "told"),
    [
        (("made", "Observation:"), (), "Observation:"),
        (("made",), ("Observation:",), None),  # which the agent has not asked for
        ((), ("Observation:", "made"), None),
    ],
)
async def test_a_stop_text_ends_the_answer(
    models: dict[str, TemplateRenderer],
    agents: tuple[str, ...],
    runs: tuple[str, ...],
    told: str | None,
) -> None:
    """The agent gets what comes before it; tokens are kept up to its end."""
    renderer = models["hermes"]
    vocabulary: Vocabulary = renderer._vocabulary
    asked: list[SampleRequest] = []

    class Says(Babbler):
        async def sample(self, request: SampleRequest) -> Sample:
            asked.append(request)
            ids = (*vocabulary.encode("Thought: x\nObservation: made up"), renderer.stop_ids[-1])
            nats = np.arange(len(ids), dtype=np.float32)
            return Sample(ids, -nats / 64, "stop", 1, model_logprobs=-nats / 32)

    trial = Trial(Says("hermes", renderer), sampling=SamplingParams(0.5, top_p=0.9, stop=runs))
    wanted = SampleWanted(1, "t", 1, (Message("user", "u"),), stop=agents, max_tokens=90)
    answer = await trial.talk.answer(wanted, trial.policy.sample)
    assert asked[0].sampling == SamplingParams(0.5, top_p=0.9, stop=(*agents, *runs))
    assert (answer.text, answer.stop_sequence) == ("Thought: x\n", told)
    assert not answer.truncated
    (call,) = trial.talk.calls
    (record,) = trial.journal.samples
    assert call.completion_ids == record.completion_ids
    # What is trained is the model; what was drawn from is recorded beside it.
    assert record.model_logprobs is not None
    np.testing.assert_array_equal(call.logprobs, record.model_logprobs)
    np.testing.assert_array_equal(record.logprobs, record.model_logprobs / 2)
    assert len(call.logprobs) == len(call.completion_ids)
    assert "".join(record.pieces).startswith("Thought: x\nObservation:")
    (sampled,) = [event for event in trial.journal.events if isinstance(event, TurnSampled)]
    assert sampled.cut_tokens > 0
    following = [*wanted.messages, Message("assistant", answer.text), Message("user", "real")]
    await trial.ask(following, tools=())
    assert len(merge(trial.talk.calls)) == 1


async def test_only_one_call_where_one_is_wanted(models: dict[str, TemplateRenderer]) -> None:
    renderer = models["hermes"]
    vocabulary: Vocabulary = renderer._vocabulary

    class CallsTwice(Babbler):
        async def sample(self, request: SampleRequest) -> Sample:
            ids = tuple(vocabulary.encode(f"{written('hermes')}\n{written('hermes')}"))
            return Sample(ids, np.zeros(len(ids), np.float32), "stop", 1)

    trial = Trial(CallsTwice("hermes", renderer))
    said, _ = await trial.ask([Message("user", "u")], one_tool_call=True)
    assert len(said.tool_calls) == 1
    assert "".join(trial.journal.samples[0].pieces) == written("hermes")
    both, _ = await trial.ask([Message("user", "v")])
    assert len({call.id for call in both.tool_calls}) == 2


async def test_abandoned_before_and_after_the_answer(models: dict[str, TemplateRenderer]) -> None:
    trial = Trial(Babbler("hermes", models["hermes"]))
    trial.talk.abandoned(1)
    await trial.ask([Message("user", "u")])
    await trial.ask([Message("user", "u")])
    trial.talk.abandoned(2)
    trial.talk.abandoned(2)
    await trial.ask([Message("user", "u")])
    assert [call.abandoned for call in trial.talk.calls] == [True, True, False]
    assert sum(isinstance(event, TurnAbandoned) for event in trial.journal.events) == 2
    assert len(merge(trial.talk.calls)) == 1


async def test_counting_samples_nothing(models: dict[str, TemplateRenderer]) -> None:
    trial = Trial(Babbler("hermes", models["hermes"]))
    wanted = SampleWanted(1, "t", 1, (Message("user", "u"),), tools=TOOLS, count_only=True)
    counted = await trial.talk.answer(wanted, trial.policy.sample)
    assert counted.prompt_tokens == len(models["hermes"].render(wanted.messages, TOOLS))
    assert not trial.journal.events
    assert not trial.talk.calls


@dataclass
class Wired(Scripted):
    """The conversation behind the endpoint."""

    trial: Trial | None = None
    turns: dict[int, int] = field(default_factory=dict)

    async def answer(self, call: ModelCall) -> ModelAnswer:
        assert self.trial is not None
        asked = {"stop": call.stop, "max_tokens": call.max_tokens}
        said, turn = await self.trial.ask(call.messages, call.tools, **asked)
        self.turns[id(call)] = turn
        self.calls.append(call)
        stop = "tool_calls" if said.tool_calls else "stop"
        return ModelAnswer(said.content, said.thinking, said.tool_calls, cast(Any, stop))

    def refused(self, api: Api, refusal: CallRefused) -> None:
        raise AssertionError(refusal)


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("api", ["chat", "responses", "messages"])
@pytest.mark.parametrize("name", ["hermes", "tool_marks"])
async def test_real_clients_hand_back_what_is_found_again(
    models: dict[str, TemplateRenderer], name: str, api: str, streamed: bool
) -> None:
    """Whatever an API and its own client make of an answer, the next call goes on from its exact
    tokens: ten calls are one sequence."""
    trial = Trial(Babbler(name, models[name]), 11)
    talk = {"chat": _chat, "responses": _responses, "messages": _messages}[api]
    async with served(Wired(trial=trial)) as here:
        await talk(here.url, streamed)
    trial.check()
    (segment,) = merge(trial.talk.calls)
    assert (segment.calls, segment.rewritten) == (10, False)
    assert any(event.tool_calls for event in trial.journal.events if isinstance(event, TurnSampled))


PARAMETERS = json.loads(TOOLS[0].parameters)


async def _chat(url: str, streamed: bool) -> None:
    tool = {"name": "bash", "description": "d", "parameters": PARAMETERS}
    messages: list[Any] = [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key=SECRET) as client:
        for _ in range(10):
            asked: Any = {"model": "m", "messages": messages}
            asked["tools"] = [{"type": "function", "function": {**tool, "strict": True}}]
            if streamed:
                async with client.chat.completions.stream(**asked) as stream:
                    message = (await stream.get_final_completion()).choices[0].message
            else:
                message = (await client.chat.completions.create(**asked)).choices[0].message
            messages.append(message.model_dump(exclude_none=True, exclude={"parsed"}))
            messages += [
                {"role": "tool", "tool_call_id": call.id, "content": "r"}
                for call in message.tool_calls or ()
            ] or [{"role": "user", "content": "Go on."}]


async def _responses(url: str, streamed: bool) -> None:
    tool = {"type": "function", "name": "bash", "description": "d", "parameters": PARAMETERS}
    items: list[Any] = [{"role": "user", "content": "u"}]
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key=SECRET) as client:
        for _ in range(10):
            asked: Any = {"model": "m", "instructions": "s", "input": items, "tools": [tool]}
            if streamed:
                async with client.responses.stream(**asked) as stream:
                    answer: Any = await stream.get_final_response()
            else:
                answer = await client.responses.create(**asked)
            items += [item.model_dump(exclude_none=True) for item in answer.output]
            calls = [item for item in answer.output if item.type == "function_call"]
            items += [
                {"type": "function_call_output", "call_id": call.call_id, "output": "r"}
                for call in calls
            ] or [{"role": "user", "content": "Go on."}]


async def _messages(url: str, streamed: bool) -> None:
    tool = {"name": "bash", "description": "d", "input_schema": PARAMETERS}
    messages: list[Any] = [{"role": "user", "content": "u"}]
    async with anthropic.AsyncAnthropic(base_url=url, api_key=SECRET) as client:
        for _ in range(10):
            asked: Any = {"model": "m", "system": "s", "messages": messages, "tools": [tool]}
            asked["max_tokens"] = 300
            if streamed:
                async with client.messages.stream(**asked) as stream:
                    answer = await stream.get_final_message()
            else:
                answer = await client.messages.create(**asked)
            blocks = [block.model_dump(exclude_none=True) for block in answer.content]
            messages.append(
                {"role": "assistant", "content": blocks or [{"type": "text", "text": ""}]}
            )
            results = [
                {"type": "tool_result", "tool_use_id": block.id, "content": "r"}
                for block in answer.content
                if block.type == "tool_use"
            ]
            messages.append({"role": "user", "content": results or "Go on."})
