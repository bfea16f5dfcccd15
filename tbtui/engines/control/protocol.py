"""The protocol of a run's control socket: JSON objects, one a line, in UTF-8.

The client begins with `Hello`, and the server answers with `Welcome`. Every request after that
has an `id` and gets one answer with the same: `Accepted` or `Refused`. Without being asked the
server says who has the controls (`ControlsChanged`) and how the run has ended (`Ended`); after
that it closes.

`Accepted` means that the run has got the command. What came of it is in the journal, as
`CommandDone` with the number that `Accepted` names.

    > {"do":"hello","version":1,"name":"ada","viewer":false}
    < {"is":"welcome","version":1,"run":"r","pid":4711,"holder":"","yours":false,"exclusive":false}
    > {"do":"ask","id":"1","verb":"pause","target":"copy-01-2","reason":"looks stuck"}
    < {"is":"accepted","id":"1","command":"3f2a9c10d4e5"}
"""

from __future__ import annotations

import json
from typing import Annotated, Any

import msgspec

from tbtui.vocabulary import CommandVerb

VERSION = 1
MAX_LINE = 64 * 1024
"""Bytes, the end of the line included."""

Id = Annotated[str, msgspec.Meta(max_length=64)]
Text = Annotated[str, msgspec.Meta(max_length=1000)]


class Hello(msgspec.Struct, tag="hello", tag_field="do", frozen=True):
    version: int
    name: Text = ""
    """Who commands; empty: the user that the process belongs to."""
    viewer: bool = False
    """It stays, and commands only while it has the controls; else it sends single commands."""


class Ask(msgspec.Struct, tag="ask", tag_field="do", frozen=True):
    """Hand a command to the run."""

    id: Id
    verb: CommandVerb
    target: Text
    reason: Text = ""
    arguments: dict[str, Any] = {}
    command: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{0,32}$")] = ""
    """The number that it is to have in the journal; empty: the run gives one."""


class Take(msgspec.Struct, tag="take", tag_field="do", frozen=True):
    """Take the controls, from the client that has them; for viewers."""

    id: Id
    reason: Text = ""
    exclusive: bool = False
    """Single commands of others are refused too."""
    if_free: bool = False
    """Only if nobody has them."""


class Release(msgspec.Struct, tag="release", tag_field="do", frozen=True):
    """Give up the controls."""

    id: Id


Request = Ask | Take | Release


class Welcome(msgspec.Struct, tag="welcome", tag_field="is", frozen=True):
    version: int
    run: str
    """Its name."""
    pid: int
    holder: str
    """Who has the controls; empty: nobody."""
    yours: bool
    exclusive: bool


class Accepted(msgspec.Struct, tag="accepted", tag_field="is", frozen=True):
    id: str
    command: str = ""
    """Its number in the journal; empty where there is nothing to be journalled."""


class Refused(msgspec.Struct, tag="refused", tag_field="is", frozen=True):
    id: str
    """Empty: the line could not be read, or the connection is refused."""
    reason: str


class ControlsChanged(msgspec.Struct, tag="controls", tag_field="is", frozen=True):
    holder: str
    yours: bool
    exclusive: bool
    reason: str = ""


class Ended(msgspec.Struct, tag="ended", tag_field="is", frozen=True):
    """The run is over and cleaned up."""

    status: str
    reason: str


Answer = Welcome | Accepted | Refused | ControlsChanged | Ended


class ProtocolError(Exception):
    """A line that is none of the protocol's; says why."""


_HELLO = msgspec.json.Decoder(Hello)
_REQUEST: msgspec.json.Decoder[Request] = msgspec.json.Decoder(Request)
_ANSWER: msgspec.json.Decoder[Answer] = msgspec.json.Decoder(Answer)


def encode(message: Hello | Request | Answer) -> bytes:
    """A line. What of a person's words is no UTF-8 becomes question marks, as in the journal."""
    try:
        return msgspec.json.encode(message) + b"\n"
    except UnicodeEncodeError:
        plain = json.dumps(msgspec.to_builtins(message), ensure_ascii=False)
        return plain.encode("utf-8", "replace") + b"\n"


def read_hello(line: bytes) -> Hello:
    """The greeting in a line of a client. Raises `ProtocolError`."""
    return _read(_HELLO, line)


def read_request(line: bytes) -> Request:
    """The request in a line of a client. Raises `ProtocolError`."""
    return _read(_REQUEST, line)


def read_answer(line: bytes) -> Answer:
    """The answer in a line of the run. Raises `ProtocolError`."""
    return _read(_ANSWER, line)


def _read[T](decoder: msgspec.json.Decoder[T], line: bytes) -> T:
    try:
        return decoder.decode(line)
    # msgspec gives up on an object that is nested too deeply with the last of these.
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ProtocolError(f"not understood: {error}") from error
