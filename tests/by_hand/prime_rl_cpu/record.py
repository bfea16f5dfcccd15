"""Packs what a run has written into one small file, with nothing in it of the machine."""

from __future__ import annotations

import io
import os
import re
import socket
import tarfile
from collections.abc import Mapping
from pathlib import Path

_BINARY = (".safetensors", ".distcp", ".bin", ".pt", ".metadata")
"""Weights, batches and checkpoints: that they are there is all that a watcher reads of them."""
_WEIGHTS = (".safetensors", ".distcp", ".bin")
_RECORDINGS = 4
"""Trials whose terminals are kept."""
_ADDRESS = re.compile(rb"\b(?!127\.0\.0\.1\b|0\.0\.0\.0\b)(?:10|172|192)(?:\.\d{1,3}){3}\b")


def record(home: Path, target: Path, replacements: Mapping[str, str]) -> None:
    """Write `home / "run"` as a compressed tar archive, in which it is `run`.

    Left out are weights, batches and the recordings of all but a few trials. `replacements`:
    paths of this machine, and what stands for them.
    """
    names = {str(Path.home()): "/home/user", **replacements, str(home): "/home/user/cpu"}
    run = home / "run"
    kept = {path.name for path in sorted((run / "trials").iterdir())[:_RECORDINGS]}
    with tarfile.open(target, "w:xz", preset=9) as archive:
        for path in sorted(run.rglob("*")):
            inside = path.relative_to(home)
            if inside.parts[1] == "trials" and not (
                len(inside.parts) > 2 and inside.parts[2] in kept and path.name == "recording.cast"
            ):
                continue
            if path.suffix in _WEIGHTS or "torchrun" in inside.parts:
                continue
            entry = archive.gettarinfo(path, str(inside))
            entry.uid = entry.gid = 0
            entry.uname = entry.gname = ""
            if not entry.isreg():
                archive.addfile(entry)
                continue
            data = b"" if path.name.endswith(_BINARY) else _scrubbed(path.read_bytes(), names)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))


def _scrubbed(data: bytes, names: Mapping[str, str]) -> bytes:
    # The longest first: one path may lie in another.
    for name in sorted(names, key=len, reverse=True):
        data = data.replace(os.fsencode(name), os.fsencode(names[name]))
    host = re.compile(rb"\b" + re.escape(os.fsencode(socket.gethostname())) + rb"\b")
    return _ADDRESS.sub(b"192.0.2.1", host.sub(b"host", data))
