"""Chat messages, tools and tool calls, as every model API has them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Role = Literal["system", "user", "assistant", "tool"]
ToolChoice = Literal["auto", "none"]
"""Whether a completion may call tools; "none" leaves them in the prompt, and reads no calls."""


@dataclass(frozen=True, slots=True)
class Tool:
    """A function that the model may call."""

    name: str
    description: str
    parameters: str
    """JSON schema of its arguments, as text."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call of a tool by the model."""

    id: str
    name: str
    arguments: str
    """A JSON object, as text."""


@dataclass(frozen=True, slots=True)
class Message:
    """One chat message."""

    role: Role
    content: str
    thinking: str = ""
    """What the assistant thought before it."""
    tool_calls: tuple[ToolCall, ...] = ()
    """What the assistant calls."""
    tool_call_id: str = ""
    """The call whose result a tool's message is."""
    name: str = ""
    """The tool whose result it is; empty: unknown."""


_CHARS_PER_TOKEN = 16
"""More than any tokenizer's tokens hold of a whole prompt: some hold 128, of white space, but a
mean of 4 is usual and of 8 much."""
_SMALL_CHARS = 1 << 16
"""A prompt of so many is counted exactly, however small the context is."""


def most_chars(context_limit: int) -> int:
    """How many characters a prompt may have that is worth to be tokenised: a longer one fits into
    no context of so many tokens."""
    return _SMALL_CHARS + _CHARS_PER_TOKEN * context_limit


def chars_of(messages: Iterable[Message], tools: Iterable[Tool] = ()) -> int:
    """Characters of a prompt; each message counts as one token more, which none is without."""
    said = sum(
        _CHARS_PER_TOKEN
        + len(message.content)
        + len(message.thinking)
        + sum(len(call.name) + len(call.arguments) for call in message.tool_calls)
        for message in messages
    )
    described = (len(t.name) + len(t.description) + len(t.parameters) for t in tools)
    return said + sum(described)
