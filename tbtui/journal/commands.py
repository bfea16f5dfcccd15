"""A command to a live run, what a person types into a trial's terminal, and how a run ended.

What is typed is a command's arguments:

    {"input": [{"text": "touch solved"}, {"key": "Enter"}, {"paste": "a\\nb"}]}

Text goes to the program in the terminal as it is; keys have tmux's names; what is pasted is
bracketed where the program asked for that.
"""

from __future__ import annotations

import getpass
import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

from tbtui.errors import UserError
from tbtui.vocabulary import CommandVerb

RUN = "run"
"""The target that means the whole run."""
_RULE = "rule:"
TIMEOUT = "timeout"
"""The actor of decisions that a review's timeout makes."""


def rule_actor(rule: str) -> str:
    """The actor of commands that a rule of the review gives."""
    return _RULE + rule


def is_rule(actor: str) -> bool:
    """Whether an actor is a rule of the review."""
    return actor.startswith(_RULE)


def is_person(actor: str) -> bool:
    """Whether an actor is a person or a person's script: no rule of the review, nor its timeout."""
    return not is_rule(actor) and actor != TIMEOUT


@dataclass(frozen=True, slots=True)
class Command:
    """A request to the engine, written to the journal before it is carried out.

    It gets no direct answer: what came of it is read from the journal.
    """

    verb: CommandVerb
    target: str
    """A trial's id, or `RUN`."""
    actor: str = field(default_factory=getpass.getuser)
    reason: str = ""
    arguments: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """Further values that the verb needs, as JSON has them."""
    id: str = field(default_factory=lambda: uuid.uuid4().hex[:12])


@dataclass(frozen=True, slots=True)
class RunEnd:
    """How a run ended, and why in one line."""

    status: Literal["finished", "failed", "interrupted", "refused"]
    """`refused`: what was asked for can't be run; there is no journal."""
    reason: str


TypedKind = Literal["text", "key", "paste"]
MAX_TYPED_BYTES = 16 << 10
"""In one command. A longer paste is typed by several."""
MAX_TYPED_PARTS = 512

_NAMES: Mapping[str, str] = MappingProxyType(
    {
        "Enter": "\r",
        "Tab": "\t",
        "BTab": "\x1b[Z",
        "BSpace": "\x7f",
        "Escape": "\x1b",
        "Space": " ",
        "Up": "\x1b[A",
        "Down": "\x1b[B",
        "Right": "\x1b[C",
        "Left": "\x1b[D",
        "Home": "\x1b[H",
        "End": "\x1b[F",
        "IC": "\x1b[2~",
        "DC": "\x1b[3~",
        "PPage": "\x1b[5~",
        "NPage": "\x1b[6~",
        **{f"F{number}": f"\x1bO{'PQRS'[number - 1]}" for number in range(1, 5)},
        **{
            f"F{number}": f"\x1b[{code}~"
            for number, code in zip(range(5, 13), (15, 17, 18, 19, 20, 21, 23, 24), strict=True)
        },
    }
)
"""Keys, and what a terminal sends for each."""
_KEY = re.compile(r"(?P<modifiers>(?:[CMS]-)*)(?P<name>" + "|".join(_NAMES) + r"|[!-~])")


class TypedError(UserError):
    """What is to be typed can't be; the message says why in one line."""


@dataclass(frozen=True, slots=True)
class Typed:
    """One key, some text, or a paste."""

    kind: TypedKind
    text: str
    """A key's is its name."""


def to_arguments(parts: Sequence[Typed]) -> dict[str, Any]:
    """What was typed, as a command's arguments."""
    return {"input": [{part.kind: part.text} for part in parts]}


def from_arguments(arguments: Mapping[str, Any]) -> tuple[Typed, ...]:
    """What was typed, from a command's arguments. Raises `TypedError`."""
    match arguments:
        case {"input": [_, *_] as items} if len(items) <= MAX_TYPED_PARTS:
            parts = tuple(map(_part, items))
        case {"input": [_, *_]}:
            raise TypedError(f"more than {MAX_TYPED_PARTS} parts at once")
        case _:
            raise TypedError('nothing to type; say what: {"input": [{"text": "ls"}, {"key": …}]}')
    if (size := sum(len(part.text.encode()) for part in parts)) > MAX_TYPED_BYTES:
        raise TypedError(f"{size} bytes at once; at most {MAX_TYPED_BYTES} can be typed")
    return parts


def message_text(arguments: Mapping[str, Any]) -> str:
    """What a person writes to an agent, from a command's arguments. Raises `TypedError`."""
    text = arguments.get("text")
    if not isinstance(text, str) or not text.strip():
        raise TypedError("nothing to say; write a message")
    if (size := len(text.encode("utf-8", "replace"))) > MAX_TYPED_BYTES:
        raise TypedError(f"{size} bytes; a message has at most {MAX_TYPED_BYTES}")
    return text.encode("utf-8", "replace").decode().strip()


def as_sent(part: Typed) -> str:
    """What a terminal sends for it, for a recording; of text and pastes they themselves."""
    if part.kind != "key" or (found := _KEY.fullmatch(part.text)) is None:
        return part.text
    name, modifiers = found["name"], found["modifiers"]
    sent = _NAMES.get(name, name)
    if "C-" in modifiers and len(sent) == 1:
        sent = "\x7f" if sent == "?" else chr(ord(sent.upper()) & 0x1F)
    return "\x1b" + sent if "M-" in modifiers else sent


def readable(parts: Sequence[Typed]) -> str:
    """For people: text as it is, keys as `<Up>`, each Enter the end of a line."""
    shown = []
    for part in parts:
        if part.kind != "key":
            shown.append(part.text)
        else:
            shown.append("⏎\n" if part.text == "Enter" else f"<{part.text}>")
    return "".join(shown)


def _part(item: object) -> Typed:
    match item:
        case {"text": str(text), **rest} if text and not rest:
            kind: TypedKind = "text"
        case {"key": str(text), **rest} if text and not rest:
            kind = "key"
        case {"paste": str(text), **rest} if text and not rest:
            kind = "paste"
        case _:
            raise TypedError(f"not to be typed: {str(item)[:80]!r}; it must be text, key or paste")
    if kind == "key" and not _KEY.fullmatch(text):
        raise TypedError(f"no key is named {text[:20]!r}; see tmux's names: Enter, C-c, Up, F1")
    if "\0" in text:
        raise TypedError("NUL can't be typed as text; the key is C-Space")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise TypedError("half a surrogate pair can't be typed") from None
    return Typed(kind, text)
