"""Tiny Harbor tasks, for trials that are real."""

from __future__ import annotations

from pathlib import Path

HELLO = '[ "$(cat /app/hello.txt)" = hi ] && echo 1 > $R || echo 0 > $R; echo checked'


def make_task(
    path: Path,
    instruction: str = "Create the file /app/hello.txt that says hi.",
    test: str = HELLO,
    *,
    agent_sec: float = 60.0,
    verifier_sec: float = 20.0,
    environment: str = "",
    split: str = "",
) -> Path:
    """Write a task whose test writes to `$R`, the reward file; `environment`: more of its table."""
    files = {
        "instruction.md": f"{instruction}\n",
        "environment/Dockerfile": "FROM debian:bookworm-slim\nWORKDIR /app\n",
        "tests/test.sh": f"#!/bin/bash\nR=/logs/verifier/reward.txt\n{test}\n",
        "task.toml": 'schema_version = "1.4"\n'
        + (f'[metadata]\nsplit = "{split}"\n' if split else "")
        + f"[agent]\ntimeout_sec = {agent_sec}\n[verifier]\ntimeout_sec = {verifier_sec}\n"
        + f'[environment]\nworkdir = "/app"\n{environment}',
    }
    for name, text in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text(text)
    return path
