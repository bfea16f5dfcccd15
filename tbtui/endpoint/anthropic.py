"""Anthropic's Messages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from tbtui.chat import Message, Tool, ToolCall, ToolChoice
from tbtui.endpoint.calls import Api, CallRefused, ModelAnswer, ModelCall, RefusalKind
from tbtui.endpoint.openai_chat import positive, stop_texts, text_of
from tbtui.endpoint.wire import (
    arguments_object,
    event,
    ignored,
    new_id,
    read,
    refuse_given,
    to_json,
    tool,
    unsupported,
    without_hosted,
)

_REFUSED: dict[str, tuple[object, ...]] = {
    "mcp_servers": ([],),
    "container": (),
    "output_format": (),
}
_HONOURED = frozenset(
    {
        *_REFUSED,
        *("model", "messages", "system", "tools", "tool_choice", "max_tokens", "stop_sequences"),
        *("stream", "metadata", "service_tier", "cache_control"),
    }
)
_HOSTED = ("web_search", "web_fetch", "code_execution", "tool_search")
"""Tools that Anthropic's servers carry out. A model that isn't offered them just doesn't call
them."""
_STOPS = {
    "stop": "end_turn",
    "length": "max_tokens",
    "stop_sequence": "stop_sequence",
    "tool_calls": "tool_use",
}
_ERRORS: dict[RefusalKind, tuple[int, str]] = {
    "unauthorized": (401, "authentication_error"),
    "not_found": (404, "not_found_error"),
    "invalid_request": (400, "invalid_request_error"),
    "unsupported": (400, "invalid_request_error"),
    "context_overflow": (400, "invalid_request_error"),
    "rate_limit": (429, "rate_limit_error"),
    "gone": (403, "permission_error"),
    "overloaded": (529, "overloaded_error"),
    "provider": (500, "api_error"),
}


class _Message(msgspec.Struct):
    role: str
    content: str | list[dict[str, Any]]


class _Request(msgspec.Struct):
    messages: list[_Message]
    model: str = ""
    max_tokens: int | None = None
    system: str | list[dict[str, Any]] | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: dict[str, Any] | None = None
    stop_sequences: list[str] | None = None
    stream: bool | None = None


class AnthropicMessages:
    """Implements `tbtui.endpoint.wire.Codec`."""

    api: Api = "messages"

    def decode(self, body: bytes) -> ModelCall:
        call = self.decode_count(body)
        if call.max_tokens is None:
            raise CallRefused(
                "invalid_request", "max_tokens: Field required", parameter="max_tokens"
            )
        return call

    def decode_count(self, body: bytes) -> ModelCall:
        """A request that only asks how many tokens its prompt has."""
        whole, request = read(body, _Request)
        refuse_given(whole, _REFUSED)
        if not request.messages:
            raise CallRefused("invalid_request", "messages: empty", parameter="messages")
        if request.messages[-1].role == "assistant":
            raise unsupported("messages", "the last one must be the user's")
        messages = [
            each for n, m in enumerate(request.messages) for each in _messages(m, f"messages.{n}")
        ]
        if system := text_of(request.system, "system"):
            messages.insert(0, Message("system", system))
        tools, left_out = without_hosted(request.tools, _HOSTED)
        choice = request.tool_choice or {}
        return ModelCall(
            api=self.api,
            model=request.model,
            messages=tuple(messages),
            tools=tuple(map(_tool, tools)),
            tool_choice=_tool_choice(choice),
            one_tool_call=choice.get("disable_parallel_tool_use") is True,
            stop=stop_texts(request.stop_sequences, "stop_sequences"),
            max_tokens=positive(request.max_tokens, "max_tokens"),
            stream=bool(request.stream),
            ignored=(*ignored(whole, _HONOURED), *left_out),
        )

    def encode(self, call: ModelCall, answer: ModelAnswer) -> bytes:
        return to_json(
            {
                **_head(call, answer),
                "content": _blocks(answer),
                "stop_reason": _STOPS[answer.stop],
                "stop_sequence": answer.stop_sequence,
            }
        )

    def stream(self, call: ModelCall) -> _Stream:
        return _Stream(call)

    def error(self, refusal: CallRefused) -> tuple[int, bytes]:
        return _ERRORS[refusal.kind][0], to_json(_error(refusal))


class _Stream:
    def __init__(self, call: ModelCall) -> None:
        self._call = call

    def keep_alive(self) -> bytes:
        return event({"type": "ping"}, "ping")

    def answer(self, answer: ModelAnswer) -> Iterator[bytes]:
        head = {
            **_head(self._call, answer),
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
        }
        yield event({"type": "message_start", "message": head}, "message_start")
        for index, block in enumerate(_blocks(answer)):
            at = {"index": index}
            empty, deltas = _deltas(block)
            start = {"type": "content_block_start", **at, "content_block": empty}
            yield event(start, "content_block_start")
            for delta in deltas:
                yield event(
                    {"type": "content_block_delta", **at, "delta": delta}, "content_block_delta"
                )
            yield event({"type": "content_block_stop", **at}, "content_block_stop")
        end = {"stop_reason": _STOPS[answer.stop], "stop_sequence": answer.stop_sequence}
        usage = {"output_tokens": answer.completion_tokens}
        yield event({"type": "message_delta", "delta": end, "usage": usage}, "message_delta")
        yield event({"type": "message_stop"}, "message_stop")

    def error(self, refusal: CallRefused) -> bytes:
        return event(_error(refusal), "error")


def _messages(given: _Message, where: str) -> list[Message]:
    """A user's message becomes several where it has tool results."""
    content = given.content
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    match given.role:
        case "assistant":
            return [_assistant(blocks, where)]
        case "user":
            return _user(blocks, where)
        case "system":
            return [Message("system", text_of(blocks, where))]
        case role:
            raise CallRefused("invalid_request", f"{where}.role: {role!r} is none", parameter=where)


def _assistant(blocks: list[dict[str, Any]], where: str) -> Message:
    texts, thinking, calls = [], [], []
    for block in blocks:
        match block.get("type"):
            case "thinking":
                thinking.append(_text(block, "thinking", where))
            case "redacted_thinking":
                pass  # the endpoint gives none out
            case "tool_use":
                arguments = to_json(block.get("input") or {}).decode()
                name = _text(block, "name", where)
                calls.append(ToolCall(_text(block, "id", where), name, arguments))
            case _:
                texts.append(text_of([block], where))
    return Message("assistant", "\n".join(texts), "\n".join(thinking), tuple(calls))


def _user(blocks: list[dict[str, Any]], where: str) -> list[Message]:
    messages: list[Message] = []
    texts: list[str] = []

    def say() -> None:
        if texts:
            messages.append(Message("user", "\n".join(texts)))
            texts.clear()

    for block in blocks:
        if block.get("type") == "tool_result":
            say()
            content = block.get("content")
            parts = content if isinstance(content, str | list | None) else None
            result = text_of(parts, f"{where}.tool_result")
            messages.append(
                Message("tool", result, tool_call_id=_text(block, "tool_use_id", where))
            )
        else:
            texts.append(text_of([block], where))
    say()
    return messages


def _text(block: dict[str, Any], key: str, where: str) -> str:
    value = block.get(key)
    if not isinstance(value, str):
        raise CallRefused("invalid_request", f"{where}.{key}: no text", parameter=f"{where}.{key}")
    return value


def _tool(given: dict[str, Any]) -> Tool:
    if given.get("type") not in (None, "custom"):
        raise unsupported("tools", f"those with a schema of their own alone, no {given['type']}")
    return tool(given.get("name"), given.get("description"), given.get("input_schema"), "tools")


def _tool_choice(choice: dict[str, Any]) -> ToolChoice:
    match choice.get("type", "auto"):
        case "auto":
            return "auto"
        case "none":
            return "none"
        case _:
            raise unsupported(
                "tool_choice", "the policy decides whether it calls a tool: auto or none"
            )


def _head(call: ModelCall, answer: ModelAnswer) -> dict[str, Any]:
    usage = {
        "input_tokens": answer.prompt_tokens - answer.cached_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": answer.cached_tokens,
        "output_tokens": answer.completion_tokens,
    }
    head = {"id": new_id("msg_"), "type": "message", "role": "assistant", "model": call.model}
    return {**head, "usage": usage}


def _blocks(answer: ModelAnswer) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = []
    if answer.thinking:
        blocks.append({"type": "thinking", "thinking": answer.thinking, "signature": ""})
    if answer.text:
        blocks.append({"type": "text", "text": answer.text})
    for call in answer.tool_calls:
        use = {"type": "tool_use", "id": call.id, "name": call.name}
        blocks.append({**use, "input": arguments_object(call)})
    return blocks


def _deltas(block: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """A block as it starts, and what is added to it."""
    match block["type"]:
        case "thinking":
            added = {"type": "thinking_delta", "thinking": block["thinking"]}
            return {**block, "thinking": ""}, [added, {"type": "signature_delta", "signature": ""}]
        case "text":
            return {**block, "text": ""}, [{"type": "text_delta", "text": block["text"]}]
        case _:
            arguments = to_json(block["input"]).decode()
            return {**block, "input": {}}, [{"type": "input_json_delta", "partial_json": arguments}]


def _error(refusal: CallRefused) -> dict[str, Any]:
    message = refusal.message
    if refusal.kind == "context_overflow":
        # The words that agents and client libraries look for.
        tokens, limit = refusal.prompt_tokens, refusal.context_limit
        how_long = f"{tokens} tokens > {limit} maximum" if limit else message
        message = f"prompt is too long: {how_long}"
    error = {"type": _ERRORS[refusal.kind][1], "message": message}
    return {"type": "error", "error": error, "request_id": new_id("req_")}
