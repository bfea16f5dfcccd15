"""What the client and the policy's process say to each other. Pickled; both are this program."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tbtui.policies.base import Datum, PolicyInfo, Sample, SampleRequest, TrainResult, TrainSettings


@dataclass(frozen=True, slots=True)
class SampleBatch:
    requests: tuple[SampleRequest, ...]


@dataclass(frozen=True, slots=True)
class TrainStep:
    data: tuple[Datum, ...]
    settings: TrainSettings


@dataclass(frozen=True, slots=True)
class Publish:
    pass


@dataclass(frozen=True, slots=True)
class Save:
    directory: Path


@dataclass(frozen=True, slots=True)
class Load:
    directory: Path


Order = SampleBatch | TrainStep | Publish | Save | Load
Result = tuple[Sample, ...] | TrainResult | int | None


@dataclass(frozen=True, slots=True)
class Call:
    """Client to process: do `order`, and answer under this number."""

    number: int
    order: Order


@dataclass(frozen=True, slots=True)
class Ready:
    """Process to client, once: the checkpoint is loaded."""

    info: PolicyInfo


@dataclass(frozen=True, slots=True)
class Done:
    """Process to client: call `number` is done."""

    number: int
    result: Result


@dataclass(frozen=True, slots=True)
class Failed:
    """Process to client: call `number` failed (None: the process could not start)."""

    number: int | None
    reason: str


ToProcess = Call
FromProcess = Ready | Done | Failed
