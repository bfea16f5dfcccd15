"""A model behind a Chat Completions API: what the server is sent, what is kept of its answers, and
`tbtui eval` of it in real trials."""

from __future__ import annotations

import dataclasses
import gzip
import itertools
import json
import math
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import numpy as np
import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from tbtui.chat import Message, Tool, ToolCall
from tbtui.policies.base import (
    ContextOverflowError,
    PolicyError,
    PolicyRefusedError,
    SampleRequest,
    SamplingParams,
)
from tbtui.policies.openai.conversation import ConversationRenderer
from tbtui.policies.openai.policy import OpenAIPolicy
from tbtui.policies.vllm import connection
from tbtui.policies.work import ServerSettings
from tests.policies.served.scripted_chat import Streamed, chatting, chunk, whole
from tests.policies.served.server import VllmServer

Make = Callable[..., Awaitable[OpenAIPolicy]]

TOOLS = (Tool("bash", "Runs a command.", '{"type": "object", "properties": {}}'),)


@pytest.fixture
async def make(vllm_server: VllmServer) -> AsyncIterator[Make]:
    made: list[OpenAIPolicy] = []

    async def make(**settings: Any) -> OpenAIPolicy:
        given = {"model_name": "starter", "base_url": vllm_server.url, **settings}
        policy = OpenAIPolicy(ServerSettings(**given))
        made.append(policy)
        await policy.start()
        return policy

    yield make
    for policy in made:
        await policy.close()


def asking(policy: OpenAIPolicy, *said: Message, tools: tuple[Tool, ...] = ()) -> SampleRequest:
    return SampleRequest(policy.renderer.render(said, tools), 32, SamplingParams(0.7), 5)


texts = st.text(max_size=40)
calls = st.lists(st.tuples(st.sampled_from(["bash", "edit"]), texts), max_size=3)


@given(system=texts, turns=st.lists(st.tuples(texts, texts, texts, calls), max_size=4), last=texts)
def test_a_conversation_is_read_back_as_it_was(
    system: str, turns: list[tuple[str, str, str, list[tuple[str, str]]]], last: str
) -> None:
    """Whatever its texts are, and in whatever order the agent's results come."""
    renderer = ConversationRenderer()
    messages = [Message("system", system)]
    wanted: list[dict[str, Any]] = [{"role": "system", "content": system}]
    for asked, thinking, text, called in turns:
        messages.append(Message("user", asked))
        wanted.append({"role": "user", "content": asked})
        said = Message(
            "assistant",
            text,
            thinking,
            tuple(ToolCall(f"x{n}", name, what) for n, (name, what) in enumerate(called)),
        )
        number = len(messages)
        messages.append(said)
        entry: dict[str, Any] = {"role": "assistant", "content": text}
        if called:
            entry["tool_calls"] = [
                {
                    "id": f"call_{number}_{n}",
                    "type": "function",
                    "function": {"name": name, "arguments": what},
                }
                for n, (name, what) in enumerate(called)
            ]
        wanted.append(entry)
        for n, call in reversed(list(enumerate(said.tool_calls))):
            messages.append(Message("tool", f"result {n}", tool_call_id=call.id))
            wanted.append(
                {"role": "tool", "content": f"result {n}", "tool_call_id": f"call_{number}_{n}"}
            )
    messages.append(Message("user", last))
    wanted.append({"role": "user", "content": last})
    found, tools = renderer.read(renderer.render(messages, TOOLS))
    assert found == wanted
    assert [tool["function"]["name"] for tool in tools] == ["bash"]
    ids = renderer.render(messages)
    assert renderer.read(ids) == (wanted, [])


def test_a_conversation_goes_on_from_the_ids_of_an_answer() -> None:
    renderer = ConversationRenderer()
    prompt = renderer.render([Message("user", "list")], TOOLS)
    said = Message("assistant", "Well.", "hm", (ToolCall("s1", "bash", '{"c": "ls"}'),))
    ids, place = renderer.completion(said, ["We", "ll."], ended=True)
    assert place is not None
    assert renderer.pieces(ids[place]) == ["We", "ll."]
    answer = renderer.answer(ids, TOOLS)
    assert (answer.text, answer.thinking) == ("Well.", "hm")
    assert answer.tool_calls == (ToolCall("", "bash", '{"c": "ls"}'),)
    own = Message("assistant", "Well.", tool_calls=(ToolCall("e9", "bash", '{"c": "ls"}'),))
    messages = [Message("user", "list"), own, Message("tool", "a b", tool_call_id="e9")]
    longer = renderer.extend((*prompt, *ids), messages, 2, TOOLS)
    assert longer[: len(prompt) + len(ids)] == (*prompt, *ids)
    found, _ = renderer.read(longer)
    assert found[1]["tool_calls"][0]["id"] == found[2]["tool_call_id"]
    assert found[2]["content"] == "a b"


async def test_the_server_gets_messages_and_its_tokens_are_kept(
    make: Make, vllm_server: VllmServer
) -> None:
    policy = await make()
    assert policy.info.context_limit == 1024
    vllm_server.asked.clear()
    sample = await policy.sample(
        asking(policy, Message("system", "Be brief."), Message("user", "Hello!"), tools=TOOLS)
    )
    (body,) = vllm_server.asked
    assert body["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hello!"},
    ]
    assert body["tools"][0]["function"]["name"] == "bash"
    assert (body["temperature"], body["seed"], body["max_tokens"]) == (0.7, 5, 32)
    assert len(sample.logprobs) == len(sample.completion_ids)
    assert (sample.logprobs < 0).any()
    text = policy.renderer.answer(sample.completion_ids).text
    assert text
    assert text in "".join(policy.renderer.pieces(sample.completion_ids))


async def test_what_is_drawn_from_is_asked_for_and_never_left_out(
    make: Make, vllm_server: VllmServer
) -> None:
    """A run that went on without would be another one than was asked for."""
    policy = await make()
    vllm_server.asked.clear()
    asked = asking(policy, Message("user", "Hello!"))
    await policy.sample(asked)
    sampling = SamplingParams(0.7, top_p=0.9, top_k=20, min_p=0.01, stop=("END",))
    sample = await policy.sample(dataclasses.replace(asked, sampling=sampling))
    plain, shaped = vllm_server.asked
    shape = {"top_p": 0.9, "top_k": 20, "min_p": 0.01, "stop": ["END"]}
    assert shaped == plain | shape
    assert not plain.keys() & shape.keys()
    assert sample.model_logprobs is not None
    assert np.isnan(sample.model_logprobs).all()
    vllm_server.served.refuses = ("top_k",)
    with pytest.raises(PolicyRefusedError, match="'top_k' is not supported"):
        await make(sampling=sampling)


async def test_what_a_server_does_not_take_is_left_out_and_said(
    make: Make, vllm_server: VllmServer
) -> None:
    vllm_server.served.refuses = ("temperature", "seed", "logprobs", "max_tokens", "stream")
    policy = await make()
    said = " ".join(policy.info.notes)
    assert "refuses temperature" in said
    assert "refuses seed" in said
    assert "no log-probabilities" in said
    vllm_server.asked.clear()
    sample = await policy.sample(asking(policy, Message("user", "Hello!")))
    (body,) = vllm_server.asked
    assert body.keys() == {"model", "messages", "max_completion_tokens"}
    assert not np.any(sample.logprobs)
    assert not sample.has_logprobs


async def test_tool_calls_and_thinking_of_a_server(make: Make, vllm_server: VllmServer) -> None:
    policy = await make()
    call = {"id": "c", "type": "function", "function": {"name": "bash", "arguments": '{"c": 1}'}}
    vllm_server.served.changes = {
        "message": {"content": None, "reasoning_content": "hm", "tool_calls": [call]},
        "finish_reason": "tool_calls",
        "logprobs": None,
    }
    sample = await policy.sample(asking(policy, Message("user", "go"), tools=TOOLS))
    answer = policy.renderer.answer(sample.completion_ids, TOOLS)
    assert answer.thinking == "hm"
    assert [(each.name, json.loads(each.arguments)) for each in answer.tool_calls] == [
        ("bash", {"c": 1})
    ]
    assert sample.stop_reason == "stop"


def drawn(text: str, *logprobs: object) -> dict[str, Any]:
    """An answer that gives log-probabilities of its first characters."""
    tokens = [{"token": a, "logprob": b} for a, b in zip(text, logprobs, strict=False)]
    return {"message": {"content": text}, "logprobs": {"content": tokens}}


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"finish_reason": "content_filter"}, "withholds the completion (content_filter)"),
        ({"finish_reason": "abort"}, "gave the completion up (abort)"),
        ({"message": None}, "can't be read"),
        ({"message": {"content": "x", "tool_calls": [{}]}}, "can't be read"),
        ({"message": {"content": 5}}, "int for a text"),
        ({"message": {"content": "", "reasoning": {"a": 1}}}, "dict for a text"),
        ({"finish_reason": ["stop"]}, "can't be read"),
        ({"message": {"content": "x" * 200_000}, "logprobs": None}, "characters; max_tokens=32"),
        (drawn("ab", -0.5, 0.5), "0.5 for a log-probability"),
        (drawn("ab", 10**400), "for a log-probability"),
        (drawn("ab", "-0.5"), "-0.5 for a log-probability"),
        (drawn("abc", -0.5, -0.5), "log-probabilities of 2 tokens, which are 2 of its answer's 3"),
    ],
)
async def test_an_answer_that_is_none(
    make: Make, vllm_server: VllmServer, changes: dict[str, Any], text: str
) -> None:
    policy = await make()
    vllm_server.served.changes = changes
    with pytest.raises(PolicyError, match=r".*") as caught:
        await policy.sample(asking(policy, Message("user", "go")))
    assert text in str(caught.value)


def endless(body: dict[str, Any]) -> Streamed:
    return Streamed(itertools.repeat(chunk({"content": "x" * 500_000})))


def packed(body: dict[str, Any]) -> web.Response:
    spaces = gzip.compress(b" " * (80 << 20), 1)
    return web.Response(body=spaces, headers={"Content-Encoding": "gzip"})


def nested(body: dict[str, Any]) -> web.Response:
    return web.Response(body=b"[" * 100_000 + b"]" * 100_000)


def event(text: bytes) -> Callable[[dict[str, Any]], web.Response]:
    return lambda body: web.Response(body=b"data: " + text, content_type="text/event-stream")


def broken(body: dict[str, Any]) -> web.Response:
    return web.Response(body=b"none", headers={"Content-Encoding": "gzip"})


def unsound(logprob: float) -> Callable[[dict[str, Any]], web.Response]:
    answer = whole("a")
    answer["choices"][0] |= drawn("a", logprob)
    return lambda body: web.json_response(answer)


@pytest.mark.slow
async def test_an_answer_is_read_as_far_as_one_can_be_long() -> None:
    kinds = {"endless": endless, "packed": packed, "nested": nested, "broken": broken}
    logprobs = {"nan": unsound(math.nan), "inf": unsound(-math.inf)}
    events = {"nested_event": event(b"[" * 100_000), "long_event": event(b"x" * (9 << 20))}
    async with chatting(**kinds, **logprobs, **events) as server:
        policy = OpenAIPolicy(ServerSettings(model_name="stub", base_url=server.url))
        await policy.start()
        for kind, text in {
            "endless": "it has more than 64 MiB",
            "packed": "it has more than 64 MiB",
            "nested": "the answer is no JSON",
            "broken": "answer can't be read",
            "nan": "nan for a log-probability",
            "inf": "-inf for a log-probability",
            "nested_event": "an event of the answer is no JSON",
            "long_event": "an event of it has more than 8 MiB",
        }.items():
            with pytest.raises(PolicyError, match=text):
                await policy.sample(asking(policy, Message("user", f"KIND:{kind}")))
        await policy.close()


async def test_a_prompt_that_is_too_long_for_the_server(
    make: Make, vllm_server: VllmServer
) -> None:
    vllm_server.served.context = None  # and so the policy knows no limit
    policy = await make()
    with pytest.raises(ContextOverflowError, match="maximum context length"):
        await policy.sample(asking(policy, Message("user", "word " * 4000)))


async def test_a_server_without_the_model_or_out_of_reach(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "_WAITS_SEC", (0.0,))
    with pytest.raises(PolicyRefusedError, match="the nearest is starter"):
        await make(model_name="startr")
    with pytest.raises(PolicyError, match="openai_base_url right"):
        await make(base_url="http://127.0.0.1:9/v1")
    with pytest.raises(PolicyRefusedError, match="openai_base_url=ftp://x: no address"):
        await make(base_url="ftp://x")
