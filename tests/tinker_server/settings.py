"""What is served, and a client's session."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

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
    client_config: Mapping[str, Any] = field(default_factory=dict)
    """Flags for the SDK (`tinker.types.ClientConfigResponse`)."""
    sampler_processes: int = 2
    poll_seconds: float = 10.0
    log: IO[bytes] | None = None


@dataclass(slots=True)
class Session:
    session_id: str
    user_metadata: dict[str, str] | None
    display_name: str | None
    training_run_ids: list[str] = field(default_factory=list)
    sampler_ids: list[str] = field(default_factory=list)
    finished: bool = False
