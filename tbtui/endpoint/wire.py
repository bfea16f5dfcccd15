"""What the codecs of all APIs share: reading a request's JSON, and writing JSON and SSE frames."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from typing import Any, Protocol, cast

import msgspec

from tbtui.chat import Tool, ToolCall
from tbtui.endpoint.calls import Api, CallRefused, ModelAnswer, ModelCall

_encode = msgspec.json.Encoder().encode
_NULL = msgspec.Raw(b"null")
_HARMLESS_BYTES = 64
_MOST_DEPTH = 64
"""How deep a request may be nested: chat templates, and what else reads it, call themselves."""
_TEXTS_PER_NEST = 8
"""Texts of a request, names of fields included, for each of its objects and arrays."""


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


def read[T](body: bytes, kind: type[T]) -> tuple[dict[str, msgspec.Raw], T]:
    """Decode a request: all that it gives, as text, and what `kind` knows of it.

    Raises `CallRefused` that names the field at fault.
    """
    try:
        # Nothing is made of what `kind` doesn't know: as objects it would be many times as large.
        request = msgspec.json.decode(body, type=kind)
        given = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        place = str(error).partition(" - at `$.")[2].rstrip("`")
        raise CallRefused("invalid_request", str(error), parameter=place or None) from error
    if _is_deep(request):
        raise CallRefused("invalid_request", f"nested more than {_MOST_DEPTH} deep")
    return given, request


def require_few(body: bytes, most: int) -> None:
    """Raise `CallRefused` for a request of more objects and arrays than `most`, or of more texts
    than so many have.

    As Python's objects they are many times as large as in the request, and all else in the process
    waits while they are made. To count them makes none; what is in texts doesn't count.
    """
    quotes = 2 * _TEXTS_PER_NEST * most
    if body.count(b"{") + body.count(b"[") <= most and body.count(b'"') <= quotes:
        return
    plain = body.replace(rb"\\", b"").replace(rb"\"", b"")
    if plain.count(b'"') <= quotes:
        outside = b"".join(plain.split(b'"')[::2])
        if outside.count(b"{") + outside.count(b"[") <= most:
            return
    raise CallRefused("invalid_request", f"more than {most} objects and arrays, or too many texts")


def _is_deep(value: object) -> bool:
    level = [value]
    for _ in range(_MOST_DEPTH):
        level = [
            inner
            for outer in level
            for inner in (
                outer.values()
                if isinstance(outer, dict)
                else outer
                if isinstance(outer, list)
                else msgspec.structs.asdict(cast(msgspec.Struct, outer)).values()
            )
            if isinstance(inner, dict | list | msgspec.Struct) and inner
        ]
        if not level:
            return False
    return True


def unsupported(parameter: str, why: str) -> CallRefused:
    return CallRefused("unsupported", f"{parameter}: {why}", parameter=parameter)


def refuse_given(request: dict[str, msgspec.Raw], refused: dict[str, tuple[object, ...]]) -> None:
    """Raise `CallRefused` for the first parameter in `refused` whose value is none of those that
    change nothing (absent, null, or named with it)."""
    for name, harmless in refused.items():
        given = request.get(name, _NULL)
        # What is longer is none of them.
        if len(bytes(given)) > _HARMLESS_BYTES or (
            (value := msgspec.json.decode(given)) is not None and value not in harmless
        ):
            raise unsupported(name, "a policy under training can't do this; leave it out")


def ignored(request: dict[str, msgspec.Raw], honoured: frozenset[str]) -> tuple[str, ...]:
    """Names of the parameters that are given and have no effect."""
    return tuple(name for name, value in request.items() if value != _NULL and name not in honoured)


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


def without_hosted(
    tools: Sequence[dict[str, Any]] | None, hosted: tuple[str, ...]
) -> tuple[list[dict[str, Any]], tuple[str, ...]]:
    """The tools but those that the API's own servers carry out, and how an answer names these."""
    kept, left_out = [], []
    for each in tools or ():
        if str(each.get("type")).startswith(hosted):
            left_out.append(f"tools[{each['type']}]")
        else:
            kept.append(each)
    return kept, tuple(left_out)


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
