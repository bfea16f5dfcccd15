"""The slow, thorough look at tasks behind `tbtui tasks check`."""

from __future__ import annotations

import asyncio
import re
import shutil
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, get_args

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from tbtui.catalog.defects import Defect, Severity
from tbtui.catalog.dockerfile import dockerfile_defects
from tbtui.catalog.errors import CatalogError, nearest
from tbtui.catalog.harbor import harbor_version, read_config, refusal
from tbtui.catalog.load import TaskInfo
from tbtui.catalog.scripts import ScriptChecker
from tbtui.catalog.toml_lines import line_of

if TYPE_CHECKING:
    from harbor.models.task.config import StepConfig, TaskConfig

_AT_ONCE = 4
# As Harbor's converter writes it; Compose refuses it when Harbor has no number to fill in.
_MEMORY = re.compile(r"\$\{?MEMORY\b(?!:?-)")
_KEPT = "/logs/artifacts"
"""What Harbor always takes to a verifier that runs apart."""


async def deep_check(task: TaskInfo, scripts: ScriptChecker | None = None) -> tuple[Defect, ...]:
    """Defects that reading a usable task quickly does not show.

    Shell syntax of the scripts, the Dockerfile's form, whether the verifier ever writes a reward
    and sees what the agent did, missing solution, unknown keys in task.toml, and the verdict of
    the installed Harbor itself on the whole directory.

    Raises:
        CatalogError: there is no bash to check scripts with.
    """
    text = (task.path / "task.toml").read_text(encoding="utf-8")
    config = read_config(tomllib.loads(text))
    found = [*_unknown_keys(task, text, type(config))]
    found += dockerfile_defects(task, built=config.environment.docker_image is None)
    found += _compose(task, config)
    found += _separate_verifier(task, config)
    found += await (scripts or ScriptChecker()).check(task)
    if (reason := refusal(task.path)) is not None:
        message = f"{harbor_version()} refuses it: {reason}"
        found.append(_defect(task, "", message, "correct it as Harbor asks"))
    return tuple(found)


async def deep_check_all(
    tasks: Sequence[TaskInfo], tell: Callable[[int], None] = lambda done: None
) -> tuple[Defect, ...]:
    """`deep_check` of every task, in their order; `tell` is called with how many are done.

    Raises:
        CatalogError: as `deep_check`; before anything is checked.
    """
    if shutil.which("bash") is None:
        raise CatalogError("no bash on PATH: install it, it checks the syntax of the scripts")
    scripts = ScriptChecker()
    found: dict[int, tuple[Defect, ...]] = {}
    waiting = iter(enumerate(tasks))

    async def check() -> None:
        for number, task in waiting:
            found[number] = await deep_check(task, scripts)
            tell(len(found))

    async with asyncio.TaskGroup() as group:
        for _ in range(_AT_ONCE):
            group.create_task(check())
    return tuple(defect for number in sorted(found) for defect in found[number])


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


def _unknown_keys(task: TaskInfo, text: str, model: type[TaskConfig]) -> Iterator[Defect]:
    for location, known in _strangers(tomllib.loads(text), model, ()):
        yield _defect(
            task,
            "task.toml",
            f"unknown key {_dotted(location)}{nearest(str(location[-1]), known)}",
            f"{harbor_version()} ignores it: correct or remove it; free-form keys belong in"
            " [metadata]",
            line=line_of(text, location),
            severity="warning",
        )


def _dotted(location: Sequence[str | int]) -> str:
    """`steps[1].agent.x`, counted from 1."""
    parts = (f"[{part + 1}]" if isinstance(part, int) else f".{part}" for part in location)
    return "".join(parts).removeprefix(".")


def _strangers(
    table: Mapping[str, Any], model: type[BaseModel], prefix: tuple[str | int, ...]
) -> Iterator[tuple[tuple[str | int, ...], list[str]]]:
    """Keys of `table` that `model` lacks, each with the keys it has."""
    known = [*model.model_fields, *_LEGACY_KEYS.get(model.__name__, ())]
    for key, value in table.items():
        location = (*prefix, key)
        if key not in known:
            yield location, known
        elif (section := _section(model.model_fields.get(key))) is None:
            continue
        elif isinstance(value, dict):
            yield from _strangers(value, section, location)
        elif isinstance(value, list):
            for index, each in enumerate(value):
                if isinstance(each, dict):
                    yield from _strangers(each, section, (*location, index))


# What Harbor renames before its model sees it.
_LEGACY_KEYS: Mapping[str, tuple[str, ...]] = {
    "TaskConfig": ("version",),
    "EnvironmentConfig": ("memory", "storage"),
}


def _section(field: FieldInfo | None) -> type[BaseModel] | None:
    """The model of the table, or of each of the tables, that the field holds."""
    waiting: list[Any] = [] if field is None else [field.annotation]
    for candidate in waiting:
        if isinstance(candidate, type) and issubclass(candidate, BaseModel):
            return candidate
        waiting += get_args(candidate)
    return None


def _compose(task: TaskInfo, config: TaskConfig) -> Iterator[Defect]:
    file = "environment/docker-compose.yaml"
    try:
        text = (task.path / file).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return
    if config.environment.memory_mb is None and (asked := _MEMORY.search(text)):
        yield _defect(
            task,
            file,
            "asks for ${MEMORY}, and task.toml has no memory_mb",
            "add memory_mb = 2048 under [environment], or convert the task again with"
            " `harbor task migrate --cpus 1 --memory-mb 2048`",
            line=text[: asked.start()].count("\n") + 1,
            severity="warning",
        )


def _separate_verifier(task: TaskInfo, config: TaskConfig) -> Iterator[Defect]:
    from harbor.models.task.verifier_mode import resolve_effective_verifier_env_config

    steps: list[StepConfig | None] = [*config.steps] if config.steps else [None]
    for step in steps:
        if resolve_effective_verifier_env_config(config, step) is None:
            continue
        if config.artifacts or (step and step.artifacts) or _KEPT in task.instruction:
            continue
        of = f"the verifier of step {step.name!r}" if step else "the verifier"
        yield _defect(
            task,
            "task.toml",
            f"{of} runs in an environment of its own, and there are no artifacts: of what the"
            f" agent does it sees {_KEPT} alone",
            'name what it judges with artifacts = ["/app"] at the top of task.toml, or give'
            ' environment_mode = "shared" under [verifier]',
            severity="warning",
        )
