"""The slow, thorough look at tasks behind `tbtui tasks check`."""

from __future__ import annotations

import asyncio
import os
import re
import tomllib
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel

from tbtui.catalog.defects import Defect, Severity
from tbtui.catalog.dockerfile import dockerfile_defects
from tbtui.catalog.load import TaskInfo
from tbtui.catalog.schema import TaskFile
from tbtui.catalog.tasks import nearest
from tbtui.catalog.toml_lines import line_of

_PARALLEL_SHELLS = 4
_REWARD_FILE = re.compile(r"reward\.(txt|json)")


async def deep_check(task: TaskInfo) -> tuple[Defect, ...]:
    """Defects that reading a usable task quickly does not show.

    Shell syntax of the scripts, the Dockerfile's form, whether the verifier ever writes a reward,
    missing or unrunnable solution, unknown keys in task.toml, and the verdict of the installed
    Harbor itself (imports Harbor's task model: about half a second once).
    """
    found: list[Defect] = []
    found += _unknown_keys(task)
    found += dockerfile_defects(task)
    found += _scripts(task)
    found += await _shell_syntax(task)
    found += _harbor_verdict(task)
    return tuple(found)


async def deep_check_all(tasks: tuple[TaskInfo, ...]) -> tuple[Defect, ...]:
    """`deep_check` of every task, in their order."""
    gate = asyncio.Semaphore(_PARALLEL_SHELLS)

    async def check(task: TaskInfo) -> tuple[Defect, ...]:
        async with gate:
            return await deep_check(task)

    return tuple(defect for found in await asyncio.gather(*map(check, tasks)) for defect in found)


def _defect(
    task: TaskInfo,
    file: str,
    message: str,
    remedy: str,
    *,
    line: int | None = None,
    severity: Severity = "error",
) -> Defect:
    return Defect(task.name, task.path / file, line, message, remedy, severity)


def _unknown_keys(task: TaskInfo) -> Iterator[Defect]:
    text = (task.path / "task.toml").read_text(encoding="utf-8")
    for location, known in _strangers(tomllib.loads(text), TaskFile, ()):
        yield _defect(
            task,
            "task.toml",
            f"unknown key {'.'.join(location)}{nearest(location[-1], known)}",
            "Harbor ignores it: correct or remove it; free-form keys belong in [metadata]",
            line=line_of(text, location),
            severity="warning",
        )


def _strangers(
    table: Mapping[str, Any], model: type[BaseModel], prefix: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], list[str]]]:
    """Keys of `table` that `model` lacks, each with the keys it has."""
    known = [*model.model_fields, *_LEGACY_KEYS.get(model.__name__, ())]
    for key, value in table.items():
        location = (*prefix, key)
        if key not in known:
            yield location, known
        elif isinstance(value, dict) and (section := _section(model, key)) is not None:
            yield from _strangers(value, section, location)


_LEGACY_KEYS: Mapping[str, tuple[str, ...]] = {
    "TaskFile": ("version",),
    "EnvironmentSection": ("memory", "storage"),
}


def _section(model: type[BaseModel], key: str) -> type[BaseModel] | None:
    """The model of the table at `key`, if it has one."""
    if key not in model.model_fields:
        return None
    annotation = model.model_fields[key].annotation
    for candidate in (annotation, *get_args(annotation)):
        if isinstance(candidate, type) and issubclass(candidate, BaseModel):
            return candidate
    return None


def _script_paths(task: TaskInfo) -> list[str]:
    places = ["", *(f"steps/{step}/" for step in task.steps)]
    names = [f"{place}{script}" for place in places for script in ("tests/test.sh",)]
    names += [f"{place}solution/solve.sh" for place in places]
    return [name for name in names if (task.path / name).is_file()]


def _scripts(task: TaskInfo) -> Iterator[Defect]:
    scripts = _script_paths(task)
    for script in scripts:
        path = task.path / script
        if not path.read_bytes().startswith(b"#!"):
            yield _defect(task, script, "has no #! line", "start it with #!/bin/bash", line=1)
        elif b"\r\n" in path.read_bytes()[:200]:
            yield _defect(
                task, script, "has Windows line ends", "save it with Unix line ends", line=1
            )
        if not os.access(path, os.X_OK):
            yield _defect(
                task,
                script,
                "is not executable",
                f"chmod +x {path} (Harbor does so itself; other runners do not)",
                severity="warning",
            )
    verifiers = [script for script in scripts if script.endswith("test.sh")]
    if verifiers and not _mentions_reward(task.path):
        yield _defect(
            task,
            verifiers[0],
            "nothing in tests/ mentions reward.txt or reward.json",
            "write the verdict to /logs/verifier/reward.txt, whatever happens",
            severity="warning",
        )
    if not any(script.endswith("solve.sh") for script in scripts):
        yield _defect(
            task,
            "solution",
            "no solution/solve.sh",
            "add one, so that the task can be proved solvable",
            severity="warning",
        )


def _mentions_reward(path: Path) -> bool:
    trees = [path / "tests", *path.glob("steps/*/tests")]
    return any(
        _REWARD_FILE.search(file.read_text(encoding="utf-8", errors="replace"))
        for tree in trees
        for file in tree.rglob("*")
        if file.is_file() and file.stat().st_size < 1_000_000
    )


async def _shell_syntax(task: TaskInfo) -> list[Defect]:
    found: list[Defect] = []
    for script in _script_paths(task):
        first = (task.path / script).read_bytes().partition(b"\n")[0]
        if not re.search(rb"\b(ba|da|)sh\b", first):
            continue
        process = await asyncio.create_subprocess_exec(
            "bash",
            "-n",
            str(task.path / script),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            env={"LC_ALL": "C", "PATH": os.environ.get("PATH", os.defpath)},
        )
        _, stderr = await process.communicate()
        if process.returncode:
            complaint = stderr.decode(errors="replace").splitlines()[0]
            located = re.search(r": line (\d+): (.*)", complaint)
            found.append(
                _defect(
                    task,
                    script,
                    f"shell syntax: {located.group(2) if located else complaint}",
                    "correct the script",
                    line=int(located.group(1)) if located else None,
                )
            )
    return found


def _harbor_verdict(task: TaskInfo) -> list[Defect]:
    """What the installed Harbor says on loading the task, should it refuse what we accept."""
    from harbor.models.task.task import Task

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # deprecations; harmless to whoever uses the task
            Task(task.path)
    except (OSError, ValueError, RuntimeError) as error:  # what Task.is_valid_dir treats as refusal
        reason = str(error).splitlines()[0]
        return [_defect(task, "", f"Harbor refuses it: {reason}", "correct it as Harbor asks")]
    return []
