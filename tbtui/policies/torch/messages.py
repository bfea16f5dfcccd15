"""Orders to the trainer's and the sampler's process, and their results; without torch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tbtui.policies.base import PolicyInfo, Sample, SampleRequest
from tbtui.policies.policy_process import Publish, PublishedWeights, TrainingOrder, TrainingResult


@dataclass(frozen=True, slots=True)
class Loaded:
    """What the process says of its model before it takes orders."""

    info: PolicyInfo
    device: str
    dtype: Literal["bfloat16", "float32"]
    vocab_size: int


@dataclass(frozen=True, slots=True)
class ReleaseMemory:
    """Give the GPU memory that isn't in use to other programs."""


type TrainerOrder = TrainingOrder | Publish | ReleaseMemory
type TrainerResult = TrainingResult | PublishedWeights


@dataclass(frozen=True, slots=True)
class ReadWeights:
    """Sample with the weights in a directory, as this version."""

    version: int
    directory: Path


type SamplerOrder = SampleRequest | ReadWeights
type SamplerResult = Sample | None
