"""The run directory that Prime-RL writes (559b447): where its files are, and what its resolved
configuration says."""

from __future__ import annotations

import os
import socket
from collections.abc import Set
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import msgspec

from tbtui.errors import UserError
from tbtui.journal.events import RunStarted, TaskRecord
from tbtui.paths import read_plain

_NEWEST_BROADCASTS = 3
_MOST_DIGITS = 12
_SIGNS = ("configs", "logs", "metrics.jsonl", "rollouts", "broadcasts", "checkpoints")


@dataclass(frozen=True, slots=True)
class RolloutFile:
    """`rollouts/step_N/<kind>/<subset>/traces.jsonl`."""

    step: int
    kind: str
    subset: str
    path: Path


@dataclass(frozen=True, slots=True)
class SourceDirectory:
    """`<output_dir>/<run.name>` of a run of Prime-RL's. Only read."""

    path: Path

    @classmethod
    def open(cls, path: Path) -> SourceDirectory:
        """A directory that may still be empty.

        Raises:
            UserError: it isn't there, or holds something else.
        """
        if not path.is_dir():
            raise UserError(f"{path}: no such directory; give Prime-RL's output_dir/run.name")
        names = {entry.name for entry in path.iterdir()}
        if names and not names.intersection(_SIGNS):
            runs = sorted(n for n in names if any((path / n / sign).exists() for sign in _SIGNS))
            hint = f"give one of its runs: {', '.join(runs[:5])}" if runs else ""
            raise UserError(
                f"{path}: not a run of Prime-RL's (no {', '.join(_SIGNS[:3])}); "
                f"{hint or 'give its output_dir/run.name'}"
            )
        return cls(path.resolve())

    @property
    def empty(self) -> bool:
        """Whether nothing has been written but, at most, the configuration."""
        return not any((self.path / sign).exists() for sign in _SIGNS if sign != "configs")

    @property
    def metrics(self) -> Path:
        return self.path / "metrics.jsonl"

    @property
    def config(self) -> Path:
        """The whole configuration, where a launch leaves it."""
        return self.path / "configs" / "rl.json"

    def part_configs(self) -> dict[str, Path]:
        """The parts' configurations: all that a launch on one machine leaves."""
        configs = self.path / "configs"
        return {part: configs / f"{part}.json" for part in ("orchestrator", "inference", "trainer")}

    def attempt(self) -> Path | None:
        """Directory of the logs of the latest launch."""
        latest = self.path / "logs" / "latest"
        return latest.resolve() if latest.exists() else None

    def rollouts(self, since: int) -> list[RolloutFile]:
        """Files from step `since` on, in order; within a step, `all` before `effective`."""
        root = self.path / "rollouts"
        found = [
            RolloutFile(step, kind, subset, path)
            for step in steps_in(root, since)
            for kind in ("train", "eval")
            for subset in ("all", "effective")
            if (path := root / f"step_{step}" / kind / subset / "traces.jsonl").exists()
        ]
        return sorted(found, key=lambda each: (each.step, each.subset, each.kind))

    def broadcasts(self) -> list[tuple[int, bool]]:
        """The newest versions of the weights, and whether they are written to the end."""
        root = self.path / "broadcasts"
        newest = steps_in(root)[-_NEWEST_BROADCASTS:]
        return [(step, (root / f"step_{step}" / "STABLE").exists()) for step in newest]

    def checkpoints(self, known: Set[int]) -> list[tuple[int, Path]]:
        """Checkpoints that trainer and orchestrator have both written, less the `known` ones."""
        root = self.path / "checkpoints"
        return [
            (step, path)
            for step in steps_in(root, known=known)
            if ((path := root / f"step_{step}") / "orchestrator" / "progress.pt").exists()
            and ((path / "STABLE").exists() or (path / "trainer" / ".metadata").exists())
        ]


def steps_in(directory: Path, since: int = 0, known: Set[int] = frozenset()) -> list[int]:
    """Numbers of the `step_N` directories from `since` on, without the `known` ones, in order.

    Called several times a second on directories of thousands of steps.
    """
    try:
        names = os.listdir(directory)  # noqa: PTH208 - names alone, at a third the cost
    except (FileNotFoundError, NotADirectoryError):
        return []
    numbers = (name[5:] for name in names if name.startswith("step_"))
    found = {int(each) for each in numbers if each.isdecimal() and len(each) <= _MOST_DIGITS}
    return sorted(number for number in found - known if number >= since)


def read_configuration(source: SourceDirectory) -> tuple[dict[str, Any], float] | None:
    """The configuration and when it was written; None while there is none to read."""
    return _read(source.config) or _put_together(source)


def _read(path: Path) -> tuple[dict[str, Any], float] | None:
    try:
        return msgspec.json.decode(read_plain(path), type=dict[str, Any]), path.stat().st_mtime
    except (FileNotFoundError, NotADirectoryError, RecursionError, msgspec.DecodeError):
        # It may just be being written.
        return None
    except OSError as error:
        raise UserError(f"{path}: can't be read ({error.strerror})") from error


def _put_together(source: SourceDirectory) -> tuple[dict[str, Any], float] | None:
    """The whole configuration, put together from the parts' files, which repeat what is shared."""
    parts = {name: found for name, path in source.part_configs().items() if (found := _read(path))}
    if "orchestrator" not in parts:
        return None
    config: dict[str, Any] = {name: part for name, (part, _) in parts.items()}
    orchestrator, written = parts["orchestrator"]
    config |= {name: orchestrator.get(name) for name in ("model", "max_steps", "seq_len")}
    return config, written


def trials_dir(config: dict[str, Any]) -> Path | None:
    """Where the plugin's environment servers keep their trials, if the configuration says so."""
    environments = _environments(config)
    given = _first(environments, "agent", "harness", "trials_dir")
    return Path(given).expanduser().absolute() if isinstance(given, str) and given else None


@dataclass(frozen=True, slots=True)
class EvalSettings:
    """How Prime-RL evaluates, unless a source has settings of its own."""

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
    """The run's beginning, as the configuration has it; what it leaves out stays empty."""
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
        environment_reason="as Prime-RL's environment servers are configured",
        tasks_dir=str(tasks_dir),
        tasks=_tasks(str(tasks_dir)),
        settings={
            "engine": "prime-rl",
            "watched": str(source.path),
            "max_steps": _whole(config.get("max_steps")),
            "group_size": _whole(orchestrator.get("group_size")),
            # tbtui counts groups, Prime-RL rollouts.
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
