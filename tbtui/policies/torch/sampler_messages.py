"""Orders to the sampler's process, and their results. The client's end doesn't import torch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tbtui.policies.base import Sample, SampleRequest


@dataclass(frozen=True, slots=True)
class Publish:
    version: int
    weights: Path


Order = SampleRequest | Publish
Result = Sample | None
