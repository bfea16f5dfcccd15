"""OpenAI's own client against the endpoint: Chat Completions and Responses."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import openai
import pytest

from tbtui.chat import Message, Tool, ToolCall
from tbtui.endpoint.calls import CallRefused, ModelAnswer
from tests.endpoint.served import SECRET, Scripted, Served

SCHEMA = {"type": "object", "properties": {"command": {"type": "string"}}}
TOOL = Tool("bash", "Runs a command.", json.dumps(SCHEMA, separators=(",", ":")))
CALL = ToolCall("call_1", "bash", '{"command": "ls"}')
CALLS = ModelAnswer("Let me look.", "hm", (CALL,), "tool_calls", None, 20, 5, 8)
CHAT_TOOL: Any = {
    "type": "function",
    "function": {"name": "bash", "description": "Runs a command.", "parameters": SCHEMA},
}
RESPONSES_TOOL: Any = {
    **{"type": "function", "name": "bash", "description": "Runs a command."},
    "parameters": SCHEMA,
}
OVERFLOW = CallRefused("context_overflow", "too long", prompt_tokens=9000, context_limit=8192)


@pytest.fixture
async def client(here: Served) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=f"{here.url}/v1", api_key=SECRET) as client:
        yield client


def user(text: str = "hello") -> Any:
    return [{"role": "user", "content": text}]


async def test_chat_with_tools_both_ways(handler: Scripted, client: openai.AsyncOpenAI) -> None:
    handler.answers = [CALLS, ModelAnswer("done", prompt_tokens=3, completion_tokens=1)]
    messages: list[Any] = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
    ]
    answer = await client.chat.completions.create(
        model="any", messages=messages, tools=[CHAT_TOOL], stop=["END"], max_tokens=99
    )
    (choice,) = answer.choices
    assert choice.finish_reason == "tool_calls"
    assert choice.message.content == "Let me look."
    assert choice.message.model_extra == {"reasoning_content": "hm"}
    (call,) = choice.message.tool_calls or ()
    assert call.type == "function"
    assert (call.id, call.function.name) == ("call_1", "bash")
    assert json.loads(call.function.arguments) == {"command": "ls"}
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.total_tokens) == (20, 25)
    first = handler.calls[0]
    assert first.messages == (Message("system", "Be brief."), Message("user", "a\nb"))
    assert first.tools == (TOOL,)
    assert (first.stop, first.max_tokens, first.tool_choice) == (("END",), 99, "auto")

    messages += [
        choice.message.model_dump(exclude_none=True),
        {"role": "tool", "tool_call_id": "call_1", "content": "a.txt"},
    ]
    answer = await client.chat.completions.create(model="any", messages=messages)
    assert answer.choices[0].finish_reason == "stop"
    assert handler.calls[1].messages[2:] == (
        Message("assistant", "Let me look.", "hm", (CALL,)),
        Message("tool", "a.txt", tool_call_id="call_1"),
    )
    assert not handler.gone


async def test_streamed_chat(handler: Scripted, client: openai.AsyncOpenAI) -> None:
    handler.answers = [CALLS]
    async with client.chat.completions.stream(
        model="any", messages=user(), stream_options={"include_usage": True}
    ) as stream:
        async for _ in stream:
            pass
        whole = await stream.get_final_completion()
    message = whole.choices[0].message
    assert message.content == "Let me look."
    assert message.tool_calls is not None
    assert message.tool_calls[0].function.arguments == CALL.arguments
    assert whole.choices[0].finish_reason == "tool_calls"
    assert whole.usage is not None
    assert whole.usage.completion_tokens == 5


async def test_responses_with_tools_both_ways(
    handler: Scripted, client: openai.AsyncOpenAI
) -> None:
    handler.answers = [CALLS, ModelAnswer("cut", stop="length")]
    given: list[Any] = user()
    answer = await client.responses.create(
        model="any", instructions="Be brief.", input=given, tools=[RESPONSES_TOOL]
    )
    assert [item.type for item in answer.output] == ["reasoning", "message", "function_call"]
    assert answer.output_text == "Let me look."
    assert answer.usage is not None
    assert answer.usage.input_tokens_details.cached_tokens == 8
    given += [item.model_dump() for item in answer.output]
    given.append({"type": "function_call_output", "call_id": "call_1", "output": "a.txt"})
    answer = await client.responses.create(model="any", input=given, max_output_tokens=7)
    assert answer.status == "incomplete"
    assert answer.incomplete_details is not None
    assert answer.incomplete_details.reason == "max_output_tokens"
    assert handler.calls[0].messages[0] == Message("system", "Be brief.")
    assert handler.calls[0].tools == (TOOL,)
    assert handler.calls[1].messages == (
        Message("user", "hello"),
        Message("assistant", "Let me look.", "hm", (CALL,)),
        Message("tool", "a.txt", tool_call_id="call_1"),
    )


async def test_streamed_response(handler: Scripted, client: openai.AsyncOpenAI) -> None:
    handler.answers = [CALLS]
    async with client.responses.stream(model="any", input="hello") as stream:
        events = [event async for event in stream]
        whole = await stream.get_final_response()
    assert whole.output_text == "Let me look."
    numbers = [event.sequence_number for event in events if hasattr(event, "sequence_number")]
    assert numbers == sorted(set(numbers))
    kinds = [event.type for event in events]
    assert kinds[0] == "response.created"
    assert kinds[-1] == "response.completed"
    assert {"response.output_text.delta", "response.function_call_arguments.done"} <= set(kinds)


@pytest.mark.parametrize(
    "given",
    [
        {"n": 2},
        {"logit_bias": {"5": 1}},
        {"logprobs": True},
        {"response_format": {"type": "json_object"}},
        {"tool_choice": "required", "tools": [CHAT_TOOL]},
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]},
    ],
    ids=lambda given: next(iter(given)),
)
async def test_what_cannot_be_honoured_is_refused(
    handler: Scripted, client: openai.AsyncOpenAI, given: dict[str, Any]
) -> None:
    with pytest.raises(openai.BadRequestError) as error:
        await client.chat.completions.create(**{"model": "any", "messages": user(), **given})
    assert error.value.code == "unsupported_value"
    assert str(error.value.param).startswith(tuple(given))
    assert handler.refusals == [("chat-completions", "unsupported")]
    assert not handler.calls


async def test_harmless_values_are_taken(handler: Scripted, here: Served) -> None:
    """What the run decides is named, and changes nothing."""
    async with openai.AsyncOpenAI(base_url=here.url, api_key=SECRET) as client:
        raw = await client.chat.completions.with_raw_response.create(
            model="any", messages=user(), n=1, logit_bias={}, temperature=0.3, top_p=1, user="me"
        )
    assert raw.headers["x-ignored-parameters"] == "temperature, top_p"
    assert set(handler.calls[0].ignored) == {"temperature", "top_p"}


@pytest.mark.parametrize("streamed", [False, True])
async def test_overflow_reads_as_openais(
    handler: Scripted, client: openai.AsyncOpenAI, streamed: bool
) -> None:
    handler.answers = [OVERFLOW]
    with pytest.raises(openai.BadRequestError, match="maximum context length is 8192") as error:
        await client.chat.completions.create(model="any", messages=user(), stream=streamed)
    assert error.value.code == "context_length_exceeded"
    with pytest.raises(openai.BadRequestError) as error:
        await client.responses.create(model="any", input="hello", stream=streamed)
    assert error.value.code == "context_length_exceeded"
    assert len(handler.calls) == 2  # nothing is asked again


@pytest.mark.parametrize(
    ("kind", "raised", "again"),
    [
        ("rate_limit", openai.RateLimitError, False),
        ("gone", openai.PermissionDeniedError, False),
        ("overloaded", openai.InternalServerError, True),
        ("provider", openai.InternalServerError, True),
    ],
)
async def test_errors(
    handler: Scripted, here: Served, kind: Any, raised: type[Exception], again: bool
) -> None:
    handler.answers = [CallRefused(kind, "why")]
    async with openai.AsyncOpenAI(base_url=here.url, api_key=SECRET, max_retries=1) as client:
        with pytest.raises(raised, match="why"):
            await client.chat.completions.create(model="any", messages=user())
    assert len(handler.calls) == 1 + again


async def test_models(handler: Scripted, client: openai.AsyncOpenAI) -> None:
    assert [model.id async for model in client.models.list()] == ["policy"]
    assert (await client.models.retrieve("other")).id == "other"


async def test_malformed_requests(here: Served) -> None:
    import aiohttp

    headers = {"Authorization": f"Bearer {SECRET}"}
    async with aiohttp.ClientSession(headers=headers) as session:
        for body in (b"{", b"[]", b'{"messages": 3}', b'{"messages": []}', b"[" * 100_000, b"\xff"):
            async with session.post(f"{here.url}/v1/chat/completions", data=body) as response:
                error = (await response.json())["error"]
                assert (response.status, error["type"]) == (400, "invalid_request_error")
        async with session.post(f"{here.url}/v1/embeddings", data=b"{}") as response:
            assert response.status == 404
