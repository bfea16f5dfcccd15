"""Tiny Harbor tasks."""

from __future__ import annotations

from pathlib import Path

HELLO = '[ "$(cat /app/hello.txt)" = hi ] && echo 1 > $R || echo 0 > $R'


def make_task(path: Path, instruction: str, test: str | None = None, split: str = "train") -> Path:
    """A task whose test writes to `$R`, the reward file."""
    (path / "environment").mkdir(parents=True)
    (path / "tests").mkdir()
    (path / "instruction.md").write_text(instruction + "\n")
    (path / "environment" / "Dockerfile").write_text("FROM debian:bookworm-slim\nWORKDIR /app\n")
    script = f"#!/bin/bash\nR=/logs/verifier/reward.txt\n{test or HELLO}\n"
    (path / "tests" / "test.sh").write_text(script)
    (path / "task.toml").write_text(
        f'schema_version = "1.4"\n[metadata]\nsplit = "{split}"\n[agent]\ntimeout_sec = 60.0\n'
        '[verifier]\ntimeout_sec = 20.0\n[environment]\nworkdir = "/app"\n'
    )
    return path
