"""Anthropic's own client against the endpoint."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import anthropic
import pytest

from tbtui.chat import Message, ToolCall
from tbtui.endpoint.calls import CallRefused, ModelAnswer
from tests.endpoint.served import SECRET, Scripted, Served
from tests.endpoint.test_openai import CALLS, OVERFLOW, SCHEMA, TOOL, user

ANTHROPIC_TOOL: Any = {
    "name": "bash",
    "description": "Runs a command.",
    "input_schema": SCHEMA,
}


@pytest.fixture
async def client(here: Served) -> AsyncIterator[anthropic.AsyncAnthropic]:
    async with anthropic.AsyncAnthropic(base_url=here.url, api_key=SECRET) as client:
        yield client


async def test_tools_both_ways(handler: Scripted, client: anthropic.AsyncAnthropic) -> None:
    handler.answers = [CALLS, ModelAnswer("x", stop="stop_sequence", stop_sequence="END")]
    messages: list[Any] = user()
    answer = await client.messages.create(
        model="any",
        system=[{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
        messages=messages,
        tools=[ANTHROPIC_TOOL],
        max_tokens=99,
    )
    assert [block.type for block in answer.content] == ["thinking", "text", "tool_use"]
    assert answer.stop_reason == "tool_use"
    usage = answer.usage
    assert (usage.input_tokens, usage.cache_read_input_tokens, usage.output_tokens) == (12, 8, 5)
    messages += [
        {"role": "assistant", "content": [block.model_dump() for block in answer.content]},
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "call_1", "content": "a.txt"},
                {"type": "text", "text": "Go on."},
                {"type": "text", "text": "Please."},
            ],
        },
    ]
    answer = await client.messages.create(
        model="any", messages=messages, max_tokens=9, stop_sequences=["END"]
    )
    assert (answer.stop_reason, answer.stop_sequence) == ("stop_sequence", "END")
    first, second = handler.calls
    assert first.messages == (Message("system", "Be brief."), Message("user", "hello"))
    assert (first.tools, first.max_tokens) == ((TOOL,), 99)
    assert second.messages[0] == Message("user", "hello")
    said, result, more = second.messages[1:]
    assert (said.content, said.thinking) == ("Let me look.", "hm")
    assert [(c.id, c.name, json.loads(c.arguments)) for c in said.tool_calls] == [
        ("call_1", "bash", {"command": "ls"})
    ]
    assert (result, more) == (
        Message("tool", "a.txt", tool_call_id="call_1"),
        Message("user", "Go on.\nPlease."),
    )
    assert second.stop == ("END",)


async def test_streamed(handler: Scripted, client: anthropic.AsyncAnthropic) -> None:
    handler.answers = [CALLS]
    async with client.messages.stream(
        model="any", messages=user(), tools=[ANTHROPIC_TOOL], max_tokens=9
    ) as stream:
        whole = await stream.get_final_message()
    thinking, text, use = whole.content
    assert (thinking.type, text.type, use.type) == ("thinking", "text", "tool_use")
    assert use.input == {"command": "ls"}
    assert (whole.stop_reason, whole.usage.output_tokens) == ("tool_use", 5)


async def test_count_tokens(handler: Scripted, client: anthropic.AsyncAnthropic) -> None:
    count = await client.messages.count_tokens(model="any", system="abc", messages=user())
    assert count.input_tokens == len("abc") + len("hello")


@pytest.mark.parametrize("streamed", [False, True])
async def test_overflow_reads_as_anthropics(
    handler: Scripted, client: anthropic.AsyncAnthropic, streamed: bool
) -> None:
    handler.answers = [OVERFLOW]
    with pytest.raises(anthropic.BadRequestError, match="prompt is too long: 9000 tokens > 8192"):
        await client.messages.create(model="any", messages=user(), max_tokens=9, stream=streamed)
    assert len(handler.calls) == 1


@pytest.mark.parametrize(
    "given",
    [
        {"tool_choice": {"type": "any"}, "tools": [ANTHROPIC_TOOL]},
        {"tools": [{"type": "bash_20250124", "name": "bash"}]},
        {"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]},
        {"messages": [*user(), {"role": "assistant", "content": "{"}]},
    ],
    ids=["forced call", "typed tool", "image", "prefill"],
)
async def test_what_cannot_be_honoured_is_refused(
    handler: Scripted, client: anthropic.AsyncAnthropic, given: dict[str, Any]
) -> None:
    with pytest.raises(anthropic.BadRequestError) as error:
        await client.messages.create(
            **{"model": "any", "messages": user(), "max_tokens": 9, **given}
        )
    body: Any = error.value.body
    assert body["error"]["type"] == "invalid_request_error"
    assert handler.refusals == [("messages", "unsupported")]
    assert not handler.calls


@pytest.mark.parametrize(
    ("kind", "raised"),
    [
        ("rate_limit", anthropic.RateLimitError),
        ("gone", anthropic.PermissionDeniedError),
        ("overloaded", anthropic.InternalServerError),
        ("provider", anthropic.InternalServerError),
    ],
)
async def test_errors(handler: Scripted, here: Served, kind: Any, raised: type[Exception]) -> None:
    handler.answers = [CallRefused(kind, "why")]
    async with anthropic.AsyncAnthropic(base_url=here.url, api_key=SECRET, max_retries=0) as client:
        with pytest.raises(raised, match="why"):
            await client.messages.create(model="any", messages=user(), max_tokens=9)


async def test_models(client: anthropic.AsyncAnthropic) -> None:
    assert [model.id async for model in client.models.list()] == ["policy"]


async def test_hosted_tools_are_left_out(
    handler: Scripted, client: anthropic.AsyncAnthropic
) -> None:
    search: Any = {"type": "web_search_20250305", "name": "web_search"}
    await client.messages.create(
        model="any", messages=user(), max_tokens=9, tools=[search, ANTHROPIC_TOOL]
    )
    assert handler.calls[0].tools == (TOOL,)
    assert handler.calls[0].ignored == ("tools[web_search_20250305]",)


def test_arguments_that_are_no_object_become_an_empty_one() -> None:
    from tbtui.endpoint.wire import arguments_object

    assert arguments_object(ToolCall("1", "bash", "[" * 100_000)) == {}
    assert arguments_object(ToolCall("1", "bash", "3")) == {}
