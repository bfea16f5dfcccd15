"""A whole conversation as a sequence of ids, for a server that takes and gives messages.

Such a server keeps its tokens to itself, while everything here speaks in token ids. So a
conversation is written in pieces of text of our own, with marks between them, and read back exactly
as it was. A piece is about what a tokenizer would make a token of; of an answer whose server gives
log-probabilities, the pieces are the server's own tokens.

    conversation   [TOOLS text END] message* ASSISTANT
    message        role [ABOUT text] [THINKING text] text (CALL text)* END
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from tbtui.chat import Message, Role, Tool, ToolCall
from tbtui.policies.base import Answer
from tbtui.policies.chat.tool_formats import tool_object

_ROLES: tuple[Role, ...] = ("system", "user", "assistant", "tool")
_MARKS = (*_ROLES, "end", "tools", "about", "thinking", "text", "call")
_ASSISTANT, _END, _TOOLS, _ABOUT, _THINKING, _TEXT, _CALL = (
    _MARKS.index(name)
    for name in ("assistant", "end", "tools", "about", "thinking", "text", "call")
)
_PIECE = re.compile(r" ?[^\W\d_]+| ?\d{1,3}| ?[^\w\s]+|\s+|.", re.DOTALL)


class ConversationRenderer:
    """Implements `ChatRenderer` and `ToolRenderer` for messages that a server renders."""

    has_tools = True
    call_end = ""
    stop_ids = (_END,)
    digest: str | None = None
    vocab_size: int | None = None
    notes: tuple[str, ...] = (
        "tokens are pieces of text: the server gives no token ids, and renders prompts itself",
    )

    def __init__(self) -> None:
        self._pieces = [f"<|{name}|>" for name in _MARKS]
        self._ids: dict[str, int] = {}
        self._adding = threading.Lock()
        """Prompts are rendered on threads of their own."""

    def render(self, messages: Sequence[Message], tools: Sequence[Tool] = ()) -> tuple[int, ...]:
        ids: list[int] = []
        if tools:
            ids += [_TOOLS, *self._encode(json.dumps([tool_object(tool) for tool in tools])), _END]
        return (*ids, *self._said(messages, 0), _ASSISTANT)

    def extend(
        self,
        history: Sequence[int],
        messages: Sequence[Message],
        known: int,
        tools: Sequence[Tool] = (),
    ) -> tuple[int, ...]:
        ids = list(history)
        if ids and ids[-1] != _END:
            ids.append(_END)  # a completion that was cut off at its limit
        return (*ids, *self._said(messages, known), _ASSISTANT)

    def answer(self, completion_ids: Sequence[int], tools: Sequence[Tool] = ()) -> Answer:
        said = self._assistant(completion_ids)
        calls = tuple(replace(call, id="") for call in said.tool_calls) if tools else ()
        return Answer(said.content, said.thinking, calls)

    def spell(self, text: str) -> tuple[int, ...]:
        return self.completion(Message("assistant", text), (), ended=True)[0]

    def pieces(self, token_ids: Sequence[int]) -> list[str]:
        return [self._pieces[number] for number in token_ids]

    def completion(
        self, said: Message, pieces: Sequence[str], *, ended: bool
    ) -> tuple[tuple[int, ...], slice | None]:
        """The ids of what a server answered, and where among them its own tokens stand.

        Args:
            pieces: the server's own tokens of `said.content`; not used where they aren't that, and
                then there is no such place.
            ended: it wasn't cut off.
        """
        own = bool(pieces) and "".join(pieces) == said.content
        before = self._thinking(said)
        text = self._numbers(pieces) if own else self._encode(said.content)
        ids = (*before, *text, *self._called(said), *((_END,) if ended else ()))
        return ids, slice(len(before), len(before) + len(text)) if own else None

    def read(self, prompt_ids: Sequence[int]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """The conversation as the API has it: messages and tools."""
        messages: list[dict[str, Any]] = []
        tools: list[dict[str, Any]] = []
        calls_before = 0
        for mark, body in self._parts(prompt_ids[:-1]):
            if mark == _TOOLS:
                tools = json.loads(self._text(body))
                continue
            role, about = _ROLES[mark], ""
            if mark == _ASSISTANT:
                said = self._assistant(body)
                calls_before = len(messages)
                messages.append(_assistant_object(said, calls_before))
                continue
            if body and body[0] == _ABOUT:
                end = body.index(_TEXT)
                about, body = self._text(body[1:end]), body[end + 1 :]
            message: dict[str, Any] = {"role": role, "content": self._text(body)}
            if about:
                message["tool_call_id"] = _call_id(calls_before, int(about))
            messages.append(message)
        return messages, tools

    def _said(self, messages: Sequence[Message], known: int) -> list[int]:
        """The messages after the first `known` ones."""
        ids: list[int] = []
        calls: tuple[ToolCall, ...] = ()
        for index, message in enumerate(messages):
            if message.role == "assistant":
                calls = message.tool_calls
            if index < known:
                continue
            ids.append(_ROLES.index(message.role))
            if message.role == "tool":
                # By its place: the ids of calls are given anew by everybody on the way.
                places = {call.id: place for place, call in enumerate(calls)}
                place = places.get(message.tool_call_id, 0)
                ids += [_ABOUT, *self._encode(str(place)), _TEXT]
            ids += [*self._thinking(message), *self._encode(message.content)]
            ids += [*self._called(message), _END]
        return ids

    def _thinking(self, message: Message) -> list[int]:
        if not message.thinking:
            return []
        return [_THINKING, *self._encode(message.thinking), _TEXT]

    def _called(self, message: Message) -> list[int]:
        ids: list[int] = []
        for call in message.tool_calls:
            written = json.dumps([call.name, call.arguments], ensure_ascii=False)
            ids += [_CALL, *self._encode(written)]
        return ids

    def _assistant(self, body: Sequence[int]) -> Message:
        ids = [number for number in body if number != _END]
        thinking = ""
        if ids and ids[0] == _THINKING:
            end = ids.index(_TEXT) if _TEXT in ids else len(ids)
            thinking, ids = self._text(ids[1:end]), ids[end + 1 :]
        words, *calls = _split(ids, _CALL)
        return Message("assistant", self._text(words), thinking, tuple(self._calls(calls)))

    def _calls(self, written: Sequence[Sequence[int]]) -> Iterator[ToolCall]:
        for ids in written:
            try:
                name, arguments = json.loads(self._text(ids))
            except ValueError:
                continue  # cut at a stop text
            yield ToolCall("", name, arguments)

    def _parts(self, ids: Sequence[int]) -> Iterator[tuple[int, Sequence[int]]]:
        """Each part's mark and what it marks."""
        for part in _split(ids, _END)[:-1]:
            yield part[0], part[1:]

    def _encode(self, text: str) -> list[int]:
        # One by one: all at once, no other thread would run until it is done.
        return self._numbers(found[0] for found in _PIECE.finditer(text))

    def _numbers(self, pieces: Iterable[str]) -> list[int]:
        return [self._number(piece) for piece in pieces]

    def _number(self, piece: str) -> int:
        number = self._ids.get(piece)
        if number is None:
            with self._adding:
                number = self._ids.setdefault(piece, len(self._pieces))
                if number == len(self._pieces):
                    self._pieces.append(piece)
        return number

    def _text(self, ids: Sequence[int]) -> str:
        return "".join(self._pieces[number] for number in ids)


def _split(ids: Sequence[int], mark: int) -> list[list[int]]:
    parts: list[list[int]] = [[]]
    for number in ids:
        if number == mark:
            parts.append([])
        else:
            parts[-1].append(number)
    return parts


def _call_id(message: int, place: int) -> str:
    return f"call_{message}_{place}"


def _assistant_object(said: Message, number: int) -> dict[str, Any]:
    found: dict[str, Any] = {"role": "assistant", "content": said.content}
    if said.tool_calls:
        found["tool_calls"] = [
            {
                "id": _call_id(number, place),
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for place, call in enumerate(said.tool_calls)
        ]
    return found
