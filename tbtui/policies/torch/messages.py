"""Orders to the trainer's process, and their results."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt

from tbtui.policies.base import (
    Datum,
    GradientResult,
    LossSettings,
    OptimSettings,
    PolicyInfo,
    StepResult,
)

Array = npt.NDArray[np.float32]
Weights = Literal["trained", "reference"]


@dataclass(frozen=True, slots=True)
class Loaded:
    """What the process says of its model before it takes orders."""

    info: PolicyInfo
    device: str
    dtype: Literal["bfloat16", "float32"]
    vocab_size: int


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
    root: Path
    """Where the weights' directory is made."""


@dataclass(frozen=True, slots=True)
class Release:
    """Give the GPU memory that isn't in use to other programs."""


@dataclass(frozen=True, slots=True)
class Save:
    directory: Path


@dataclass(frozen=True, slots=True)
class Load:
    directory: Path


@dataclass(frozen=True, slots=True)
class Scored:
    logprobs: tuple[Array, ...]


@dataclass(frozen=True, slots=True)
class Published:
    version: int
    directory: Path | None
    """For the sampler to read; None: it was given this version before."""


Order = Accumulate | Apply | Score | Publish | Release | Save | Load
Result = GradientResult | StepResult | Scored | Published | None
