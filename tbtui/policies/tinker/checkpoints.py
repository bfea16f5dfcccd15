"""Reads and writes `tinker.json`: what a directory keeps of a checkpoint on a Tinker server.

The weights and the optimiser stay on the server, under a path; the file says where, of what, and
how long they will be there. It holds no credentials.
"""

from __future__ import annotations

import os
import re
import tempfile
import time
import uuid
from pathlib import Path

import msgspec

from tbtui.paths import read_plain
from tbtui.policies.base import PolicyError, PolicyRefusedError

FILE_NAME = "tinker.json"
FORMAT = "tbtui-tinker-checkpoint"
FORMAT_VERSION = 1

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")


class TinkerCheckpoint(msgspec.Struct, frozen=True, kw_only=True):
    """One checkpoint on a server."""

    format: str = FORMAT
    format_version: int = FORMAT_VERSION
    state_path: str
    """`tinker://...` of weights and optimiser."""
    model_name: str
    lora_rank: int
    server: str
    """Its address."""
    weights_version: int
    """Optimiser steps behind the weights."""
    reference: str | None
    """`tinker://...` of the weights that training started from; None: the base model."""
    sdk_version: str
    saved_at: float
    """Seconds since the epoch."""
    expires_at: float | None = None
    """None: it stays until it is deleted."""
    size_bytes: int | None = None
    """At the server; None where it doesn't report that."""

    @property
    def expiry(self) -> str:
        """In words, where the time is over: "; it expired on ..."."""
        if self.expires_at is None or self.expires_at > time.time():
            return ""
        day = time.strftime("%Y-%m-%d %H:%M", time.localtime(self.expires_at))
        return f"; it expired on {day} (checkpoint_ttl_hours)"


def checkpoint_name(run_name: str | None, version: int) -> str:
    """A name on the server that no other checkpoint has, of this run or another."""
    run = _UNSAFE.sub("-", run_name or "tbtui").strip("-.")[:60] or "tbtui"
    return f"{run}-{version:06d}-{uuid.uuid4().hex[:8]}"


def write_checkpoint(directory: Path, checkpoint: TinkerCheckpoint) -> None:
    """Write or replace `directory`'s checkpoint. Raises `PolicyError` when the disk refuses."""
    content = msgspec.json.format(msgspec.json.encode(checkpoint), indent=2) + b"\n"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(dir=directory, prefix=f".{FILE_NAME}.")
        writing = Path(name)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            writing.replace(directory / FILE_NAME)
        finally:
            writing.unlink(missing_ok=True)
    except OSError as error:
        raise PolicyError(f"can't write {directory / FILE_NAME}: {error.strerror}") from error


def read_checkpoint(directory: Path) -> TinkerCheckpoint:
    """Raises `PolicyError` where there is none, or none that can be read."""
    path = directory / FILE_NAME
    try:
        checkpoint = msgspec.json.decode(read_plain(path), type=TinkerCheckpoint)
    except FileNotFoundError:
        raise PolicyRefusedError(
            f"{directory}: there is no checkpoint of a Tinker server ({FILE_NAME} is missing)"
        ) from None
    except OSError as error:
        raise PolicyRefusedError(f"can't read {path}: {error.strerror}") from error
    except (RecursionError, msgspec.DecodeError) as error:
        raise PolicyRefusedError(
            f"{path}: not a checkpoint of a Tinker server ({error})"
        ) from error
    if checkpoint.format != FORMAT or checkpoint.format_version != FORMAT_VERSION:
        raise PolicyRefusedError(
            f"{path}: format {checkpoint.format} {checkpoint.format_version}; this version of"
            f" tbtui reads {FORMAT} {FORMAT_VERSION}"
        )
    return checkpoint


def require_fitting(
    checkpoint: TinkerCheckpoint, where: Path, *, model_name: str, lora_rank: int, server: str
) -> None:
    """Raises `PolicyError` unless training can go on from `checkpoint` with these settings."""
    if checkpoint.model_name != model_name:
        raise PolicyRefusedError(
            f"{where}: a checkpoint of {checkpoint.model_name}, but model_name={model_name}"
        )
    if checkpoint.lora_rank != lora_rank:
        raise PolicyRefusedError(
            f"{where}: a checkpoint with lora_rank={checkpoint.lora_rank}, but"
            f" lora_rank={lora_rank}"
        )
    if checkpoint.server != server:
        raise PolicyRefusedError(
            f"{where}: its weights are at {checkpoint.server}, but the Tinker server is {server};"
            f" set tinker_base_url={checkpoint.server}"
        )


def starting_path(
    checkpoint: str | None, *, model_name: str, lora_rank: int, server: str
) -> str | None:
    """Where on the server the weights are that the setting `checkpoint` names; None for None.

    Raises:
        PolicyError: it names a directory that holds no fitting checkpoint.
    """
    if checkpoint is None or checkpoint.startswith("tinker://"):
        return checkpoint
    directory = Path(checkpoint).expanduser()
    found = read_checkpoint(directory)
    require_fitting(found, directory, model_name=model_name, lora_rank=lora_rank, server=server)
    return found.state_path
