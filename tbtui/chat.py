"""Chat messages, tools and tool calls, as every model API has them."""

from __future__ import annotations

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
