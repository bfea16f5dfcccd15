"""What the resolved configuration of a run of Prime-RL's says of it."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import msgspec

from tbtui.engines.prime_rl.watch.layout import SourceDirectory
from tbtui.journal.events import RunStarted, TaskRecord


def read_configuration(source: SourceDirectory) -> tuple[dict[str, Any], float] | None:
    """The configuration and when it was written; None while there is none to read."""
    found = next(filter(None, (_read(path) for path in source.configs())), None)
    return found or _put_together(source)


def _read(path: Path) -> tuple[dict[str, Any], float] | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, Any]), path.stat().st_mtime
    except (FileNotFoundError, NotADirectoryError, msgspec.DecodeError):
        # It may just be being written.
        return None


def _put_together(source: SourceDirectory) -> tuple[dict[str, Any], float] | None:
    """What the whole would say, from the parts' own files: they have what they share with others
    each for itself."""
    parts = {name: found for name, path in source.part_configs().items() if (found := _read(path))}
    if "orchestrator" not in parts:
        return None
    config: dict[str, Any] = {name: part for name, (part, _) in parts.items()}
    orchestrator, written = parts["orchestrator"]
    config |= {name: orchestrator.get(name) for name in ("model", "max_steps", "seq_len")}
    return config, written


def trials_dir(config: dict[str, Any]) -> Path | None:
    """Where our plugin's environment servers keep their trials, if the configuration says it."""
    environments = _environments(config)
    given = _first(environments, "agent", "harness", "trials_dir")
    return Path(given).expanduser().absolute() if isinstance(given, str) and given else None


@dataclass(frozen=True, slots=True)
class EvalSettings:
    """How Prime-RL evaluates, where a source says nothing else."""

    group_size: int
    """Trials of each task."""
    temperature: float


def eval_settings(config: dict[str, Any]) -> EvalSettings:
    table = _table(config, "orchestrator", "eval")
    temperature = _get(table, "sampling", "temperature")
    return EvalSettings(
        group_size=_whole(table.get("group_size")) or 1,
        temperature=float(temperature) if isinstance(temperature, int | float) else 1.0,
    )


def run_started(source: SourceDirectory, config: dict[str, Any]) -> RunStarted:
    """As far as the configuration tells; what it leaves out stays empty."""
    orchestrator = _table(config, "orchestrator")
    environments = _environments(config)
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


def _environments(config: dict[str, Any]) -> list[dict[str, Any]]:
    sources = _tables(_table(config, "orchestrator"), "train", "source")
    return [_table(source, "env") for source in sources]


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
