"""Messages between the sampler's client and its process. Pickled; both are this program, and the
client's end doesn't import torch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tbtui.policies.base import Sample, SampleRequest
from tbtui.policies.torch.sampling import SamplerSettings


@dataclass(frozen=True, slots=True)
class Begin:
    """Client to process, once and first: load the model."""

    settings: SamplerSettings


@dataclass(frozen=True, slots=True)
class Draw:
    """Client to process: answer under this number."""

    number: int
    request: SampleRequest


@dataclass(frozen=True, slots=True)
class Cancel:
    """Client to process: completion `number` isn't wanted any more; there is no answer."""

    number: int


@dataclass(frozen=True, slots=True)
class Publish:
    number: int
    version: int
    weights: Path


@dataclass(frozen=True, slots=True)
class Ready:
    """Process to client, once: the model is loaded."""


@dataclass(frozen=True, slots=True)
class Running:
    """Process to client: so many completions are computed from now on."""

    count: int


@dataclass(frozen=True, slots=True)
class Done:
    """Process to client: what was asked for under `number` is done."""

    number: int
    result: Sample | None


@dataclass(frozen=True, slots=True)
class Failed:
    """Process to client: what was asked for under `number` failed (None: the process could not
    start)."""

    number: int | None
    reason: str


ToProcess = Begin | Draw | Cancel | Publish
FromProcess = Ready | Running | Done | Failed
