"""OpenAI's Chat Completions."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from tbtui.chat import Message, Role, Tool, ToolCall, ToolChoice
from tbtui.endpoint.calls import Api, CallRefused, ModelAnswer, ModelCall
from tbtui.endpoint.openai_errors import error_object, error_response
from tbtui.endpoint.wire import (
    event,
    ignored,
    new_id,
    read,
    refuse_given,
    to_json,
    tool,
    unsupported,
)

_REFUSED: dict[str, tuple[object, ...]] = {
    "n": (1,),
    "logit_bias": ({},),
    "logprobs": (False,),
    "top_logprobs": (0,),
    "frequency_penalty": (0,),
    "presence_penalty": (0,),
    "repetition_penalty": (1,),
    "response_format": ({"type": "text"},),
    "modalities": (["text"],),
    "audio": (),
    "web_search_options": (),
    "functions": ([],),
    "function_call": ("auto", "none"),
    "best_of": (1,),
    "echo": (False,),
}
_HONOURED = frozenset(
    {
        *_REFUSED,
        *("model", "messages", "tools", "tool_choice", "parallel_tool_calls", "stop", "stream"),
        *("stream_options", "max_tokens", "max_completion_tokens"),
        # They change nothing that is sampled.
        *("user", "metadata", "store", "service_tier", "prompt_cache_key", "safety_identifier"),
    }
)
_ROLES: dict[str, Role] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
}
_FINISH = {"stop": "stop", "stop_sequence": "stop", "length": "length", "tool_calls": "tool_calls"}


class _Function(msgspec.Struct):
    name: str
    arguments: str = "{}"


class _Call(msgspec.Struct):
    id: str
    function: _Function
    type: str = "function"


class _Message(msgspec.Struct):
    role: str
    content: str | list[dict[str, Any]] | None = None
    tool_calls: list[_Call] | None = None
    tool_call_id: str | None = None
    name: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    function_call: dict[str, Any] | None = None


class _Request(msgspec.Struct):
    messages: list[_Message]
    model: str = ""
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    stop: str | list[str] | None = None
    stream: bool | None = None
    stream_options: dict[str, Any] | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None


class OpenAIChat:
    """Implements `tbtui.endpoint.wire.Codec`."""

    api: Api = "chat-completions"

    def decode(self, body: bytes) -> ModelCall:
        whole, request = read(body, _Request)
        refuse_given(whole, _REFUSED)
        if not request.messages:
            raise CallRefused("invalid_request", "messages: empty", parameter="messages")
        limit = request.max_completion_tokens or request.max_tokens
        return ModelCall(
            api=self.api,
            model=request.model,
            messages=tuple(_message(m, n) for n, m in enumerate(request.messages)),
            tools=tuple(_tool(each) for each in request.tools or ()),
            tool_choice=tool_choice(request.tool_choice),
            one_tool_call=request.parallel_tool_calls is False,
            stop=stop_texts(request.stop, "stop"),
            max_tokens=positive(limit, "max_completion_tokens"),
            stream=bool(request.stream),
            stream_usage=bool((request.stream_options or {}).get("include_usage")),
            ignored=ignored(whole, _HONOURED),
        )

    def encode(self, call: ModelCall, answer: ModelAnswer) -> bytes:
        message: dict[str, Any] = {
            "role": "assistant",
            "content": answer.text or (None if answer.tool_calls else ""),
            "refusal": None,
        }
        if answer.thinking:
            message["reasoning_content"] = answer.thinking
        if answer.tool_calls:
            message["tool_calls"] = [_call_json(each) for each in answer.tool_calls]
        choice = {
            "index": 0,
            "message": message,
            "logprobs": None,
            "finish_reason": _FINISH[answer.stop],
        }
        return to_json(
            {
                "id": new_id("chatcmpl-"),
                "object": "chat.completion",
                "created": int(time.time()),
                "model": call.model,
                "choices": [choice],
                "usage": _usage(answer),
            }
        )

    def stream(self, call: ModelCall) -> _Stream:
        return _Stream(call)

    def error(self, refusal: CallRefused) -> tuple[int, bytes]:
        return error_response(refusal)


class _Stream:
    def __init__(self, call: ModelCall) -> None:
        self._usage = call.stream_usage
        self._head = {
            "id": new_id("chatcmpl-"),
            "object": "chat.completion.chunk",
            "created": int(time.time()),
            "model": call.model,
        }

    def keep_alive(self) -> bytes:
        return b": waiting\n\n"

    def answer(self, answer: ModelAnswer) -> Iterator[bytes]:
        yield self._delta({"role": "assistant", "content": ""})
        if answer.thinking:
            yield self._delta({"reasoning_content": answer.thinking})
        if answer.text:
            yield self._delta({"content": answer.text})
        for index, call in enumerate(answer.tool_calls):
            yield self._delta({"tool_calls": [{"index": index, **_call_json(call)}]})
        yield self._delta({}, _FINISH[answer.stop])
        if self._usage:
            yield event({**self._head, "choices": [], "usage": _usage(answer)})
        yield b"data: [DONE]\n\n"

    def error(self, refusal: CallRefused) -> bytes:
        return event({"error": error_object(refusal)})

    def _delta(self, delta: dict[str, Any], finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return event({**self._head, "choices": [choice]})


def text_of(content: str | list[dict[str, Any]] | None, where: str) -> str:
    """The text of a message's content. Raises `CallRefused` for parts that are no text."""
    if isinstance(content, str):
        return content
    texts = []
    for part in content or ():
        kind = part.get("type")
        text = part.get("refusal" if kind == "refusal" else "text")
        if kind not in ("text", "input_text", "output_text", "refusal"):
            raise unsupported(where, f"the policy reads text alone, no {kind}")
        if not isinstance(text, str):
            raise CallRefused("invalid_request", f"{where}: a part has no text", parameter=where)
        texts.append(text)
    return "\n".join(texts)


def tool_choice(choice: str | dict[str, Any] | None) -> ToolChoice:
    """Raises `CallRefused` where a call is demanded: nothing can make a policy call."""
    if choice in (None, "auto"):
        return "auto"
    if choice == "none":
        return "none"
    raise unsupported("tool_choice", "the policy decides whether it calls a tool: auto or none")


def stop_texts(stop: str | list[str] | None, where: str) -> tuple[str, ...]:
    texts = (stop,) if isinstance(stop, str) else tuple(stop or ())
    if "" in texts:
        raise CallRefused("invalid_request", f"{where}: an empty text", parameter=where)
    return texts


def positive(number: int | None, where: str) -> int | None:
    if number is not None and number < 1:
        raise CallRefused("invalid_request", f"{where}: less than 1", parameter=where)
    return number


def _message(message: _Message, number: int) -> Message:
    where = f"messages[{number}]"
    role = _ROLES.get(message.role)
    if role is None:
        raise CallRefused(
            "invalid_request", f"{where}.role: {message.role!r} is none", parameter=f"{where}.role"
        )
    if message.function_call:
        raise unsupported(f"{where}.function_call", "write it as tool_calls")
    calls = message.tool_calls or []
    for call in calls:
        if call.type != "function":
            raise unsupported(f"{where}.tool_calls", f"no tools of type {call.type}")
    return Message(
        role,
        text_of(message.content, f"{where}.content"),
        thinking=(message.reasoning_content or message.reasoning or "") * (role == "assistant"),
        tool_calls=tuple(ToolCall(c.id, c.function.name, c.function.arguments) for c in calls),
        tool_call_id=message.tool_call_id or "",
        name=(message.name or "") if role == "tool" else "",
    )


def _tool(given: dict[str, Any]) -> Tool:
    function = given.get("function")
    if given.get("type", "function") != "function" or not isinstance(function, dict):
        raise unsupported("tools", f"functions alone, no {given.get('type')}")
    return tool(
        function.get("name"), function.get("description"), function.get("parameters"), "tools"
    )


# As a client of another server


def request_object(
    messages: Sequence[Message], tools: Sequence[Tool] = (), choice: ToolChoice = "auto"
) -> dict[str, Any]:
    """A request's messages, and its tools where there are any."""
    request: dict[str, Any] = {"messages": [_message_json(message) for message in messages]}
    if tools:
        request["tools"] = [_tool_json(each) for each in tools]
        request["tool_choice"] = choice
    return request


def answered_message(message: dict[str, Any]) -> Message:
    """The assistant's message of a server's answer. Raises `ValueError` where it is none."""
    try:
        return _message(msgspec.convert({**message, "role": "assistant"}, _Message), 0)
    except (msgspec.ValidationError, CallRefused) as error:
        raise ValueError(str(error)) from error


def _message_json(message: Message) -> dict[str, Any]:
    given: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.tool_calls:
        given["tool_calls"] = [_call_json(call) for call in message.tool_calls]
    if message.thinking:
        given["reasoning_content"] = message.thinking
    if message.tool_call_id:
        given["tool_call_id"] = message.tool_call_id
    return given


def _tool_json(tool: Tool) -> dict[str, Any]:
    function = {
        "name": tool.name,
        "description": tool.description,
        "parameters": msgspec.json.decode(tool.parameters),
    }
    return {"type": "function", "function": function}


def _call_json(call: ToolCall) -> dict[str, Any]:
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": call.id, "type": "function", "function": function}


def _usage(answer: ModelAnswer) -> dict[str, Any]:
    return {
        "prompt_tokens": answer.prompt_tokens,
        "completion_tokens": answer.completion_tokens,
        "total_tokens": answer.prompt_tokens + answer.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": answer.cached_tokens},
    }
