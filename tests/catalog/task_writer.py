"""Writes sound tasks, and broken ones, for the catalog's tests."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

MINIMAL_TOML = 'schema_version = "1.4"\n'
SOUND: Mapping[str, str] = {
    "instruction.md": "Do it.\n",
    "environment/Dockerfile": "FROM debian:bookworm-slim\nWORKDIR /app\n",
    "tests/test.sh": "#!/bin/bash\necho 1 > /logs/verifier/reward.txt\n",
    "solution/solve.sh": "#!/bin/bash\ntrue\n",
}
Files = dict[str, str | bytes | None]
WriteTask = Callable[..., Path]


def write_task(
    root: Path, name: str, toml: str | None = MINIMAL_TOML, files: Files | None = None
) -> Path:
    """A task in `root/name`; `files` replaces or adds files, or leaves them out (None)."""
    contents: Files = {"task.toml": toml, **SOUND, **(files or {})}
    for file, content in contents.items():
        if content is None:
            continue
        path = root / name / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        if path.suffix == ".sh":
            path.chmod(0o755)
    return root / name
