"""What the resolved configuration of a run of Prime-RL's says of it."""

from __future__ import annotations

import os
import socket
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import msgspec

from tbtui.engines.prime_rl.watch.layout import SourceDirectory
from tbtui.journal.events import RunStarted, TaskRecord


def read_configuration(source: SourceDirectory) -> tuple[dict[str, Any], float] | None:
    """The configuration and when it was written; None while there is none to read."""
    for path in source.configs():
        try:
            config = msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
            return config, path.stat().st_mtime
        except (FileNotFoundError, NotADirectoryError, msgspec.DecodeError):
            # It may just be being written.
            continue
    return None


def run_started(source: SourceDirectory, config: dict[str, Any]) -> RunStarted:
    """As far as the configuration tells; what it leaves out stays empty."""
    orchestrator = _table(config, "orchestrator")
    environments = [_table(each, "env") for each in _tables(orchestrator, "train", "source")]
    tasks_dir = _first(environments, "taskset", "tasks_dir") or ""
    sandbox = _first(environments, "agent", "harness", "environment", "type")
    vllm = _table(config, "inference", "vllm")
    return RunStarted(
        run=str(_get(config, "run", "name") or source.path.name),
        pid=os.getpid(),
        host=socket.gethostname(),
        tbtui_version=_installed("tbtui"),
        harbor_version=_installed("harbor"),
        policy="prime-rl",
        model_name=str(_get(config, "model", "name") or vllm.get("model") or ""),
        parameters=None,
        context_limit=_whole(vllm.get("max_model_len")) or _whole(config.get("seq_len")) or 0,
        environment=str(sandbox or "prime-rl"),
        environment_reason="as Prime-RL's environment servers were told",
        tasks_dir=str(tasks_dir),
        tasks=_tasks(str(tasks_dir)),
        settings={
            "engine": "prime-rl",
            "watched": str(source.path),
            "max_steps": _whole(config.get("max_steps")),
            "group_size": _whole(orchestrator.get("group_size")),
            # Ours counts groups, theirs rollouts.
            "batch_size": _groups(orchestrator),
        },
    )


def _groups(orchestrator: dict[str, Any]) -> int | None:
    batch, group = _whole(orchestrator.get("batch_size")), _whole(orchestrator.get("group_size"))
    return max(1, batch // group) if batch and group else None


def _tasks(tasks_dir: str) -> tuple[TaskRecord, ...]:
    if not tasks_dir:
        return ()
    try:
        found = sorted(path.parent.name for path in Path(tasks_dir).glob("*/task.toml"))
    except OSError:
        return ()
    return tuple(TaskRecord(name=name, split="train") for name in found)


def _get(table: dict[str, Any], *keys: str) -> Any:
    value: Any = table
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _table(table: dict[str, Any], *keys: str) -> dict[str, Any]:
    value = _get(table, *keys)
    return value if isinstance(value, dict) else {}


def _tables(table: dict[str, Any], *keys: str) -> list[dict[str, Any]]:
    value = _get(table, *keys)
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _first(tables: list[dict[str, Any]], *keys: str) -> Any:
    return next((value for table in tables if (value := _get(table, *keys))), None)


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _installed(distribution: str) -> str:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return ""
