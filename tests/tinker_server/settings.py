"""What is served, and a client's session."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

STARTER = "starter"
MAX_LORA_RANK = 32
"""What SkyRL has by default, and the hosted service for large models; it is refused as there."""


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A name under which the embedded model is served. `max_context_length` is only what the
    server reports; None: the true one."""

    max_context_length: int | None = None
    trainable: bool = True
    sampleable: bool = True


@dataclass(frozen=True, slots=True)
class ServerSettings:
    state_dir: Path
    models: Mapping[str, ServedModel] = field(default_factory=lambda: {STARTER: ServedModel()})
    poll_seconds: float = 10.0


@dataclass(slots=True)
class Session:
    session_id: str
    training_run_ids: list[str] = field(default_factory=list)
    finished: bool = False
