"""Messages between the client and the policy's process. Pickled; both are this program."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tbtui.policies.base import (
    Datum,
    GradientResult,
    LossSettings,
    OptimSettings,
    Sample,
    SampleRequest,
    StepResult,
)
from tbtui.policies.local.model import Array

Weights = Literal["trained", "reference"]


@dataclass(frozen=True, slots=True)
class SampleBatch:
    requests: tuple[SampleRequest, ...]


@dataclass(frozen=True, slots=True)
class Accumulate:
    data: tuple[Datum, ...]
    loss: LossSettings


@dataclass(frozen=True, slots=True)
class Apply:
    settings: OptimSettings


@dataclass(frozen=True, slots=True)
class Score:
    data: tuple[Datum, ...]
    weights: Weights


@dataclass(frozen=True, slots=True)
class Publish:
    pass


@dataclass(frozen=True, slots=True)
class Save:
    directory: Path


@dataclass(frozen=True, slots=True)
class Load:
    directory: Path


@dataclass(frozen=True, slots=True)
class Scored:
    logprobs: tuple[Array, ...]


Order = SampleBatch | Accumulate | Apply | Score | Publish | Save | Load
Result = tuple[Sample, ...] | GradientResult | StepResult | Scored | int | None
