"""Tools for every renderer: the model's own format where it has one, else in plain words."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol, runtime_checkable

from tbtui.chat import Message, Tool
from tbtui.policies.base import Answer, Renderer
from tbtui.policies.chat.tool_formats import PLAIN, call_object, tool_object


@runtime_checkable
class ToolRenderer(Protocol):
    """A renderer whose prompts have tools, calls and results.

    The methods are those of `Renderer`. Without tools they give what they always give, but for
    messages that have calls or results.
    """

    @property
    def has_tools(self) -> bool:
        """Whether the model's own format has tools."""
        ...

    @property
    def call_end(self) -> str:
        """What ends a tool call in a completion; empty: nothing of its own."""
        ...

    def render(
        self, messages: Sequence[Message], tools: Sequence[Tool] = ()
    ) -> tuple[int, ...]: ...

    def extend(
        self,
        history: Sequence[int],
        messages: Sequence[Message],
        known: int,
        tools: Sequence[Tool] = (),
    ) -> tuple[int, ...]: ...

    def answer(self, completion_ids: Sequence[int], tools: Sequence[Tool] = ()) -> Answer:
        """With `tools`, calls of them are read; their ids are empty."""
        ...

    def pieces(self, token_ids: Sequence[int]) -> list[str]: ...


def with_tools(renderer: Renderer) -> ToolRenderer:
    """The renderer itself where its format has tools, else with tools in plain words."""
    if isinstance(renderer, ToolRenderer) and renderer.has_tools:
        return renderer
    return PlainTools(renderer)


class PlainTools:
    """Tools for a model whose chat format has none, by way of what messages say; implements
    `ToolRenderer`.

    The tools are described in the system message. Calls are JSON between the tags that most models
    know; results are a user's message.
    """

    has_tools = True
    call_end = PLAIN.end

    def __init__(self, renderer: Renderer) -> None:
        self._renderer = renderer

    def render(self, messages: Sequence[Message], tools: Sequence[Tool] = ()) -> tuple[int, ...]:
        return self._renderer.render(_plain(messages, tools))

    def extend(
        self,
        history: Sequence[int],
        messages: Sequence[Message],
        known: int,
        tools: Sequence[Tool] = (),
    ) -> tuple[int, ...]:
        before = _plain(messages[:known], tools)
        return self._renderer.extend(history, [*before, *_plain(messages[known:], ())], len(before))

    def answer(self, completion_ids: Sequence[int], tools: Sequence[Tool] = ()) -> Answer:
        answer = self._renderer.answer(completion_ids)
        if not tools:
            return answer
        said = PLAIN.read(answer.text, tools)
        return replace(answer, text=said.text, tool_calls=said.calls, malformed=said.malformed)

    def pieces(self, token_ids: Sequence[int]) -> list[str]:
        return self._renderer.pieces(token_ids)


def _plain(messages: Sequence[Message], tools: Sequence[Tool]) -> list[Message]:
    """Messages of system, user and assistant that say the same."""
    plain: list[Message] = []
    if tools:
        plain.append(Message("system", _described(tools)))
    results = False
    for message in messages:
        if message.role == "tool":
            result = f"<tool_response>\n{message.content}\n</tool_response>"
            if results:
                plain[-1] = Message("user", f"{plain[-1].content}\n{result}")
            else:
                plain.append(Message("user", result))
        elif message.role == "assistant" and message.tool_calls:
            calls = [_written(call_object(call)["function"]) for call in message.tool_calls]
            words = "\n".join([message.content, *calls] if message.content else calls)
            plain.append(Message("assistant", words))
        elif tools and message.role == "system" and len(plain) == 1:
            plain[0] = Message("system", f"{message.content}\n\n{plain[0].content}")
        else:
            plain.append(Message(message.role, message.content))
        results = message.role == "tool"
    return plain


def _written(call: object) -> str:
    return f"<tool_call>\n{json.dumps(call, ensure_ascii=False)}\n</tool_call>"


def _described(tools: Sequence[Tool]) -> str:
    signatures = "\n".join(json.dumps(tool_object(tool), ensure_ascii=False) for tool in tools)
    return (
        "# Tools\n\nYou may call functions. These are their signatures, as JSON:\n\n"
        f"<tools>\n{signatures}\n</tools>\n\n"
        "To call one, write a JSON object with its name and arguments between these tags:\n\n"
        '<tool_call>\n{"name": "NAME", "arguments": {"ARGUMENT": "VALUE"}}\n</tool_call>'
    )
