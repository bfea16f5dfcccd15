"""Training runs and checkpoints on disk, where they outlive the server.

    runs/<run>/run.json
    runs/<run>/weights/<name>/{policy.npz, checkpoint.json}
    ephemeral/<sampling session>/policy.npz

The last are snapshots without a name; they are gone at the next start.
"""

from __future__ import annotations

import json
import shutil
import time
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tbtui.policies.local.checkpoint_file import FILE_NAME
from tests.tinker_server.errors import HttpError

SCHEME = "tinker://"
KIND = "weights"
SHORTEST_TTL, LONGEST_TTL = 3600, 10 * 365 * 86400


@dataclass(frozen=True, slots=True)
class RunRecord:
    """What is known of a training run, also of one whose client is gone."""

    run_id: str
    base_model: str
    created_at: float


@dataclass(frozen=True, slots=True)
class CheckpointRecord:
    run_id: str
    name: str
    base_model: str
    created_at: float
    expires_at: float | None = None

    @property
    def path(self) -> str:
        return f"{SCHEME}{self.run_id}/{KIND}/{self.name}"

    @property
    def expired(self) -> bool:
        return self.expires_at is not None and time.time() >= self.expires_at


class CheckpointStore:
    """All methods raise `HttpError` 404 for what isn't there (any more)."""

    def __init__(self, state_dir: Path) -> None:
        self._runs = state_dir / "runs"
        self._ephemeral = state_dir / "ephemeral"
        self._runs.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(self._ephemeral, ignore_errors=True)

    def add_run(self, record: RunRecord) -> None:
        directory = self._runs / record.run_id
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "run.json").write_text(json.dumps(asdict(record)))

    def run(self, run_id: str) -> RunRecord:
        try:
            return RunRecord(**json.loads((self._runs / run_id / "run.json").read_text()))
        except (FileNotFoundError, NotADirectoryError) as error:
            raise HttpError(404, f"training run {run_id} not found") from error

    def runs(self) -> list[RunRecord]:
        """Newest first."""
        found = [self.run(path.parent.name) for path in self._runs.glob("*/run.json")]
        return sorted(found, key=lambda run: -run.created_at)

    def delete_run(self, run_id: str) -> None:
        self.run(run_id)
        shutil.rmtree(self._runs / run_id)

    def directory(self, record: CheckpointRecord) -> Path:
        return self._runs / record.run_id / KIND / record.name

    def ephemeral(self, sampling_session_id: str) -> Path:
        return self._ephemeral / sampling_session_id

    def write_record(self, record: CheckpointRecord) -> None:
        (self.directory(record) / "checkpoint.json").write_text(json.dumps(asdict(record)))

    def find(self, path: str) -> CheckpointRecord:
        """The checkpoint of a tinker:// path."""
        parts = path.removeprefix(SCHEME).split("/")
        if not path.startswith(SCHEME) or len(parts) != 3 or parts[1] != KIND:
            raise HttpError(422, f"{path} is not a path of a checkpoint")
        file = self._runs / parts[0] / parts[1] / parts[2] / "checkpoint.json"
        if not file.exists():
            raise HttpError(404, f"checkpoint {path} not found")
        record = CheckpointRecord(**json.loads(file.read_text()))
        if record.expired:
            raise HttpError(404, f"checkpoint {path} has expired")
        return record

    def of_run(self, run_id: str) -> list[CheckpointRecord]:
        """Those that have not expired, oldest first."""
        files = (self._runs / run_id).glob("*/*/checkpoint.json")
        found = [CheckpointRecord(**json.loads(file.read_text())) for file in files]
        return sorted((r for r in found if not r.expired), key=lambda r: r.created_at)

    def delete(self, path: str) -> None:
        shutil.rmtree(self.directory(self.find(path)))

    def set_expiry(self, path: str, expires_at: float) -> None:
        self.write_record(replace(self.find(path), expires_at=expires_at))

    def describe(self, record: CheckpointRecord) -> dict[str, Any]:
        """As the protocol tells it."""
        return {
            "checkpoint_id": f"{KIND}/{record.name}",
            "checkpoint_type": "training",
            "time": _timestamp(record.created_at),
            "tinker_path": record.path,
            "size_bytes": (self.directory(record) / FILE_NAME).stat().st_size,
            "public": False,
            "expires_at": None if record.expires_at is None else _timestamp(record.expires_at),
        }


def expiry(ttl_seconds: int | None) -> float | None:
    """When a checkpoint made now expires. Raises `HttpError` 422."""
    if ttl_seconds is None:
        return None
    if not SHORTEST_TTL <= ttl_seconds <= LONGEST_TTL:
        raise HttpError(422, f"ttl_seconds must be {SHORTEST_TTL} to {LONGEST_TTL}")
    return time.time() + ttl_seconds


def _timestamp(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()
