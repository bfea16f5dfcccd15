"""A command to a live run, and how a run ended."""

from __future__ import annotations

import getpass
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from tbtui.journal.vocabulary import CommandVerb

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

    Nobody is answered directly: what came of it is read from the journal.
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
