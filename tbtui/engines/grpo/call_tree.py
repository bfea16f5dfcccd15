"""Finds what the policy said before in a conversation that an agent hands in, by its content.

An agent's calls are a tree: it goes on from its last answer, from an earlier one, or, as a
sub-agent or after compacting its history, from nothing that was before. Messages come back as their
API carries them: ids of tool calls may be new, arguments written otherwise, thinking left out.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

from tbtui.algorithm.segments import Call
from tbtui.chat import Message, Tool

_Key = tuple[str, str, tuple[tuple[str, str], ...]]
"""What a message is known by: its role, its content, and its calls' names and arguments."""


@dataclass(frozen=True, slots=True)
class Known:
    """A conversation's beginning of which the exact tokens are known."""

    length: int
    """How many messages it has, the policy's own as the last."""
    tokens: tuple[int, ...]


@dataclass(slots=True)
class _Node:
    """A message after those that lead to it."""

    next: dict[_Key, _Node] = field(default_factory=dict)
    answers: list[tuple[Message, int]] = field(default_factory=list)
    """When the policy said it: the message, and which of the calls it answered."""
    begun: tuple[int, ...] = ()
    """The tokens up to here of another trial, which this one goes on from."""


class CallTree:
    """The calls of one trial, by what the agent knows of them."""

    def __init__(self, calls: Sequence[Call]) -> None:
        """`calls`: those of the trial, kept by the caller."""
        self._calls = calls
        self._roots: dict[tuple[Tool, ...], _Node] = {}
        """With other tools, the same messages are other tokens."""

    def add(
        self, tools: tuple[Tool, ...], messages: Sequence[Message], answer: Message, call: int
    ) -> None:
        """Note that after `messages` the policy said `answer`, in this one of the calls."""
        node = self._roots.setdefault(tools, _Node())
        for message in (*messages, answer):
            node = node.next.setdefault(_key(message), _Node())
        node.answers.append((answer, call))

    def begin(self, messages: Sequence[Message], tokens: tuple[int, ...]) -> None:
        """Note the tokens of a conversation that another trial has had."""
        node = self._roots.setdefault((), _Node())
        for message in messages:
            node = node.next.setdefault(_key(message), _Node())
        node.begun = tokens

    def find(self, tools: tuple[Tool, ...], messages: Sequence[Message]) -> Known | None:
        """The longest beginning of `messages` that ends with an answer of the policy."""
        node = self._roots.get(tools)
        found = None
        for length, message in enumerate(messages, 1):
            node = node.next.get(_key(message)) if node is not None else None
            if node is None:
                break
            if node.answers or node.begun:
                found = length, message, node
        if found is None:
            return None
        length, message, node = found
        if not node.answers:
            return Known(length, node.begun)
        call = self._meant(node.answers, message)
        return Known(length, call.prompt_ids + call.completion_ids)

    def _meant(self, answers: Sequence[tuple[Message, int]], message: Message) -> Call:
        """The call whose answer is meant where several read the same: that with the message's call
        ids and thinking, else the latest that was not abandoned."""

        def likeness(answer: tuple[Message, int]) -> tuple[bool, bool, bool]:
            said, call = answer
            same_ids = [c.id for c in said.tool_calls] == [c.id for c in message.tool_calls]
            same_thinking = bool(message.thinking) and said.thinking == message.thinking
            return same_ids, same_thinking, not self._calls[call].abandoned

        return self._calls[max(reversed(answers), key=likeness)[1]]


def _key(message: Message) -> _Key:
    calls = tuple((call.name, _canonical(call.arguments)) for call in message.tool_calls)
    return message.role, message.content, calls


def _canonical(arguments: str) -> str:
    try:
        return json.dumps(json.loads(arguments), sort_keys=True)
    except (ValueError, RecursionError):
        return arguments
