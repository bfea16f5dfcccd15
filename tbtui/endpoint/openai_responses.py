"""OpenAI's Responses, without state on the server: every request brings its whole conversation."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from tbtui.chat import Message, Role, Tool, ToolCall
from tbtui.endpoint.calls import Api, CallRefused, ModelAnswer, ModelCall
from tbtui.endpoint.openai_chat import positive, text_of, tool_choice
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
    without_hosted,
)

_REFUSED: dict[str, tuple[object, ...]] = {
    "previous_response_id": (),
    "conversation": (),
    "background": (False,),
    "prompt": (),
    "truncation": ("disabled",),
    "top_logprobs": (0,),
    "frequency_penalty": (0,),
    "presence_penalty": (0,),
}
_HONOURED = frozenset(
    {
        *_REFUSED,
        *("model", "input", "instructions", "tools", "tool_choice", "parallel_tool_calls"),
        *("max_output_tokens", "stream", "text"),
        # They change nothing that is sampled.
        *("user", "metadata", "store", "service_tier", "prompt_cache_key", "safety_identifier"),
        *("include", "stream_options", "client_metadata"),
    }
)
_HOSTED = (
    *("web_search", "file_search", "code_interpreter", "image_generation", "tool_search"),
    "namespace",  # Codex's groups of further tools; it works without them
)
"""Tools that OpenAI's servers carry out. A model that isn't offered them just doesn't call them."""
_ROLES: dict[str, Role] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
}


class _Request(msgspec.Struct):
    input: str | list[dict[str, Any]]
    model: str = ""
    instructions: str | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    max_output_tokens: int | None = None
    stream: bool | None = None
    text: dict[str, Any] | None = None


class OpenAIResponses:
    """Implements `tbtui.endpoint.wire.Codec`."""

    api: Api = "responses"

    def decode(self, body: bytes) -> ModelCall:
        whole, request = read(body, _Request)
        refuse_given(whole, _REFUSED)
        form = (request.text or {}).get("format") or {"type": "text"}
        if form != {"type": "text"}:
            raise unsupported("text.format", "the policy writes plain text")
        tools, left_out = without_hosted(request.tools, _HOSTED)
        return ModelCall(
            api=self.api,
            model=request.model,
            messages=_messages(request),
            tools=tuple(map(_tool, tools)),
            tool_choice=tool_choice(request.tool_choice),
            one_tool_call=request.parallel_tool_calls is False,
            max_tokens=positive(request.max_output_tokens, "max_output_tokens"),
            stream=bool(request.stream),
            ignored=(*ignored(whole, _HONOURED), *left_out),
        )

    def encode(self, call: ModelCall, answer: ModelAnswer) -> bytes:
        return to_json(_response(call, answer, new_id("resp_"), _items(answer)))

    def stream(self, call: ModelCall) -> _Stream:
        return _Stream(call)

    def error(self, refusal: CallRefused) -> tuple[int, bytes]:
        return error_response(refusal)


class _Stream:
    def __init__(self, call: ModelCall) -> None:
        self._call = call
        self._id = new_id("resp_")
        self._sequence = 0
        self._begun = False

    def keep_alive(self) -> bytes:
        # Some clients take comments for silence, so it is an event that changes nothing.
        return b"".join(self._begin()) + self._event("response.in_progress", response=self._now())

    def answer(self, answer: ModelAnswer) -> Iterator[bytes]:
        yield from self._begin()
        items = _items(answer)
        for index, item in enumerate(items):
            yield from self._item(index, item)
        whole = _response(self._call, answer, self._id, items)
        yield self._event(f"response.{whole['status']}", response=whole)

    def error(self, refusal: CallRefused) -> bytes:
        error = error_object(refusal)
        failed = {
            **self._now(),
            "status": "failed",
            "error": {"code": error["code"] or error["type"], "message": error["message"]},
        }
        return b"".join(self._begin()) + self._event("response.failed", response=failed)

    def _begin(self) -> Iterator[bytes]:
        if not self._begun:
            self._begun = True
            yield self._event("response.created", response=self._now())
            yield self._event("response.in_progress", response=self._now())

    def _item(self, index: int, item: dict[str, Any]) -> Iterator[bytes]:
        at = {"output_index": index, "item_id": item["id"]}
        match item["type"]:
            case "reasoning":
                empty: dict[str, Any] = {"content": []}
                part = {**at, "content_index": 0}
                text = item["content"][0]["text"]
                inner = [
                    ("response.reasoning_text.delta", {**part, "delta": text}),
                    ("response.reasoning_text.done", {**part, "text": text}),
                ]
            case "message":
                empty = {"content": [], "status": "in_progress"}
                part = {**at, "content_index": 0}
                whole = item["content"][0]
                text = whole["text"]
                inner = [
                    ("response.content_part.added", {**part, "part": {**whole, "text": ""}}),
                    ("response.output_text.delta", {**part, "delta": text, "logprobs": []}),
                    ("response.output_text.done", {**part, "text": text, "logprobs": []}),
                    ("response.content_part.done", {**part, "part": whole}),
                ]
            case _:
                empty = {"arguments": "", "status": "in_progress"}
                text, name = item["arguments"], item["name"]
                inner = [
                    ("response.function_call_arguments.delta", {**at, "delta": text}),
                    (
                        "response.function_call_arguments.done",
                        {**at, "arguments": text, "name": name},
                    ),
                ]
        added = {**item, **empty}
        yield self._event("response.output_item.added", output_index=index, item=added)
        for kind, fields in inner:
            yield self._event(kind, **fields)
        yield self._event("response.output_item.done", output_index=index, item=item)

    def _now(self) -> dict[str, Any]:
        return {**_response(self._call, None, self._id, []), "status": "in_progress"}

    def _event(self, kind: str, **fields: Any) -> bytes:
        number, self._sequence = self._sequence, self._sequence + 1
        return event({"type": kind, "sequence_number": number, **fields}, kind)


def _messages(request: _Request) -> tuple[Message, ...]:
    """The conversation; items of one answer of the assistant become one message."""
    given = request.input
    items = [{"role": "user", "content": given}] if isinstance(given, str) else given
    if not items:
        raise CallRefused("invalid_request", "input: empty", parameter="input")
    answers: list[list[Message]] = []
    for number, item in enumerate(items):
        message = _message(item, f"input[{number}]")
        if answers and _continues(answers[-1][-1], message):
            answers[-1].append(message)
        else:
            answers.append([message])
    instructions = (Message("system", request.instructions),) if request.instructions else ()
    return (*instructions, *map(_joined, answers))


def _continues(last: Message, message: Message) -> bool:
    """Whether two items of the assistant are of one answer: it thinks, then speaks, then calls."""
    if last.role != "assistant" or message.role != "assistant" or message.thinking:
        return False
    return bool(message.tool_calls) or not (last.content or last.tool_calls)


def _joined(items: list[Message]) -> Message:
    """The message that the items of one answer are."""
    if len(items) == 1:
        return items[0]
    return Message(
        "assistant",
        next((each.content for each in items if each.content), ""),
        items[0].thinking,
        tuple(call for each in items for call in each.tool_calls),
    )


def _message(item: dict[str, Any], where: str) -> Message:
    match item.get("type", "message"):
        case "message":
            role = _ROLES.get(str(item.get("role")))
            if role is None:
                raise CallRefused("invalid_request", f"{where}.role: unknown", parameter=where)
            return Message(role, text_of(_content(item.get("content"), where), f"{where}.content"))
        case "function_call":
            fields = [_text(item, key, where) for key in ("call_id", "name", "arguments")]
            return Message("assistant", "", tool_calls=(ToolCall(*fields),))
        case "function_call_output":
            output = text_of(_content(item.get("output"), where), f"{where}.output")
            return Message("tool", output, tool_call_id=_text(item, "call_id", where))
        case "reasoning":
            parts = item.get("content") or item.get("summary") or []
            return Message("assistant", "", "\n".join(_text(part, "text", where) for part in parts))
        case kind:
            raise unsupported(where, f"no items of type {kind}: write the conversation out")


def _content(content: Any, where: str) -> str | list[dict[str, Any]] | None:
    parts = content if isinstance(content, list) else []
    if not isinstance(content, str | list | None) or not all(isinstance(p, dict) for p in parts):
        raise CallRefused("invalid_request", f"{where}: no text and no parts", parameter=where)
    return content


def _text(item: Any, key: str, where: str) -> str:
    value = item.get(key) if isinstance(item, dict) else None
    if not isinstance(value, str):
        raise CallRefused("invalid_request", f"{where}.{key}: no text", parameter=f"{where}.{key}")
    return value


def _tool(given: dict[str, Any]) -> Tool:
    if given.get("type") != "function":
        raise unsupported("tools", f"functions alone, no {given.get('type')}")
    return tool(given.get("name"), given.get("description"), given.get("parameters"), "tools")


def _items(answer: ModelAnswer) -> list[dict[str, Any]]:
    """The output items, with ids."""
    items: list[dict[str, Any]] = []
    if answer.thinking:
        content = [{"type": "reasoning_text", "text": answer.thinking}]
        items.append({"type": "reasoning", "id": new_id("rs_"), "summary": [], "content": content})
    status = "incomplete" if answer.stop == "length" else "completed"
    if answer.text or not answer.tool_calls:
        part = {"type": "output_text", "text": answer.text, "annotations": [], "logprobs": []}
        items.append(
            {
                "type": "message",
                "id": new_id("msg_"),
                "role": "assistant",
                "status": status,
                "content": [part],
            }
        )
    items += [
        {
            "type": "function_call",
            "id": new_id("fc_"),
            "call_id": call.id,
            "name": call.name,
            "arguments": call.arguments,
            "status": "completed",
        }
        for call in answer.tool_calls
    ]
    return items


def _response(
    call: ModelCall, answer: ModelAnswer | None, id: str, items: Sequence[dict[str, Any]]
) -> dict[str, Any]:
    cut = answer is not None and answer.stop == "length"
    return {
        "id": id,
        "object": "response",
        "created_at": int(time.time()),
        "status": "incomplete" if cut else "completed",
        "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
        "error": None,
        "instructions": None,
        "model": call.model,
        "output": list(items),
        "parallel_tool_calls": not call.one_tool_call,
        "previous_response_id": None,
        "store": False,
        "temperature": None,
        "top_p": None,
        "tool_choice": call.tool_choice,
        "tools": [
            {
                "type": "function",
                "name": each.name,
                "description": each.description,
                "parameters": msgspec.Raw(each.parameters.encode()),
                "strict": False,
            }
            for each in call.tools
        ],
        "max_output_tokens": call.max_tokens,
        "metadata": {},
        "usage": _usage(answer) if answer is not None else None,
    }


def _usage(answer: ModelAnswer) -> dict[str, Any]:
    return {
        "input_tokens": answer.prompt_tokens,
        "input_tokens_details": {"cached_tokens": answer.cached_tokens, "cache_write_tokens": 0},
        "output_tokens": answer.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": answer.prompt_tokens + answer.completion_tokens,
    }
