"""What the codecs of all APIs share: reading a request's JSON, and writing JSON and SSE frames."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from typing import Any, Protocol

import msgspec

from tbtui.chat import Tool, ToolCall
from tbtui.endpoint.calls import Api, CallRefused, ModelAnswer, ModelCall

_encode = msgspec.json.Encoder().encode


class Stream(Protocol):
    """The SSE frames of one streamed answer."""

    def keep_alive(self) -> bytes:
        """What is sent while the answer is awaited."""
        ...

    def answer(self, answer: ModelAnswer) -> Iterator[bytes]:
        """All frames of the answer, to the end of the stream."""
        ...

    def error(self, refusal: CallRefused) -> bytes:
        """The end of a stream that has begun and fails."""
        ...


class Codec(Protocol):
    """One API: requests to calls, answers and refusals to what its clients read."""

    @property
    def api(self) -> Api: ...

    def decode(self, body: bytes) -> ModelCall:
        """Raises `CallRefused` for what is no request of this API, or can't be honoured."""
        ...

    def encode(self, call: ModelCall, answer: ModelAnswer) -> bytes:
        """The answer to a request that isn't streamed."""
        ...

    def stream(self, call: ModelCall) -> Stream: ...

    def error(self, refusal: CallRefused) -> tuple[int, bytes]:
        """HTTP status and body."""
        ...


def read[T](body: bytes, kind: type[T]) -> tuple[dict[str, Any], T]:
    """Decode a request: all that it gives, and what `kind` knows of it.

    Raises `CallRefused` that names the field at fault.
    """
    try:
        given = msgspec.json.decode(body, type=dict[str, Any])
        return given, msgspec.convert(given, kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        place = str(error).partition(" - at `$.")[2].rstrip("`")
        raise CallRefused("invalid_request", str(error), parameter=place or None) from error


def unsupported(parameter: str, why: str) -> CallRefused:
    return CallRefused("unsupported", f"{parameter}: {why}", parameter=parameter)


def refuse_given(request: dict[str, Any], refused: dict[str, tuple[object, ...]]) -> None:
    """Raise `CallRefused` for the first parameter in `refused` whose value is none of those that
    change nothing (absent, null, or named with it)."""
    for name, harmless in refused.items():
        value = request.get(name)
        if value is not None and value not in harmless:
            raise unsupported(name, "a policy under training can't do this; leave it out")


def ignored(request: dict[str, Any], honoured: frozenset[str]) -> tuple[str, ...]:
    """Names of the parameters that are given and have no effect."""
    return tuple(
        name for name, value in request.items() if value is not None and name not in honoured
    )


def tool(name: Any, description: Any, schema: Any, where: str) -> Tool:
    """A tool of a request. Raises `CallRefused` where it isn't one."""
    if not isinstance(name, str) or not name:
        raise CallRefused("invalid_request", f"{where}: a tool needs a name", parameter=where)
    if schema is not None and not isinstance(schema, dict):
        raise CallRefused(
            "invalid_request", f"{where}: the schema of {name} is no object", parameter=where
        )
    text = to_json(schema or {"type": "object", "properties": {}}).decode()
    return Tool(name, description if isinstance(description, str) else "", text)


def arguments_object(call: ToolCall) -> dict[str, Any]:
    """A call's arguments, decoded; empty where they are no JSON object."""
    try:
        value = msgspec.json.decode(call.arguments)
    except (msgspec.DecodeError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def to_json(value: object) -> bytes:
    return _encode(value)


def event(data: object, name: str = "") -> bytes:
    """One SSE frame."""
    head = f"event: {name}\n".encode() if name else b""
    return head + b"data: " + to_json(data) + b"\n\n"


def new_id(prefix: str) -> str:
    return prefix + secrets.token_hex(12)
