"""What is declared of a setting beside its type and its default: the marks of its `Annotated`.

They are msgspec structs because a dataclass takes forty times as long to define.
"""

from __future__ import annotations

from enum import StrEnum
from typing import ClassVar, Literal

import msgspec

Trust = Literal["code", "class", "host", "path", "alert"]
"""`code` can run programs or take privileges; `class` does where it is `module:Class`; a `host` is
talked to, and may be sent keys; a `path` is read; an `alert` is a program that runs, or a host that
gets a message, when the run needs a person."""


class About(msgspec.Struct, frozen=True):
    """A setting's meaning, bounds and trust. Every setting has one."""

    meaning: str
    why: str
    """The reason for the default."""
    unit: str = ""
    ge: float | None = None
    gt: float | None = None
    le: float | None = None
    lt: float | None = None
    trust: Trust | None = None
    """What a value names that only the person who starts a run may name."""
    depends_on_policy: bool = False
    """Not every policy supports it; `PolicyInfo.honours` says which settings one does."""


class Fixed(StrEnum):
    """Why a resumed run must keep its value. All others may change: how long the run goes on, on
    what and how many at once, what failures of infrastructure lead to, what is evaluated, saved and
    logged."""

    WEIGHTS = "its weights and optimiser are this run's"
    TASKS = "its batches and evaluations are made of these tasks"
    BATCHES = "steps after the checkpoint are trained again on their recorded batches"
    LEARNING = "steps after the checkpoint must lead to the same weights again"
    TRIALS = "a half-finished group would mix trials under two rules"
    EVALUATIONS = "evaluations before and after could not be compared"
    NAME = "a run keeps its name"


class Live(msgspec.Struct, frozen=True):
    """Marks a setting that may change while the run goes on."""

    effect: str
    """From when on a change is felt."""


class SettingGroup(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings that are shown under one heading.

    A msgspec struct has one base only, so that each group extends the one that is shown before it,
    and `RunConfig` the last.
    """

    heading: ClassVar[str]
