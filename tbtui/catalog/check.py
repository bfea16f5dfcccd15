"""The slow, thorough look at tasks behind `tbtui tasks check`, and the advice it gives.

Advised is a verifier with an environment of its own, where an agent can leave nothing behind that
forges the verdict. A task bears it if its tests look at files below its working directory alone,
which then go along as artifacts. A test may look at more than its text says, so whatever looks like
more counts as more.
"""

from __future__ import annotations

import asyncio
import dataclasses
import posixpath
import re
import shutil
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from harbor.models.task.config import VerifierEnvironmentMode
from harbor.models.task.verifier_mode import (
    resolve_effective_verifier_env_config,
    resolve_task_verifier_mode,
)
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from tbtui.catalog import CatalogError, nearest
from tbtui.catalog.defects import READABLE, Defect, is_file, line_of
from tbtui.catalog.load import TaskInfo, harbor_version, read_config, refusal
from tbtui.catalog.scripts import ScriptChecker
from tbtui.dockerfile import (
    KNOWN,
    DockerfileError,
    IgnoreRules,
    Instruction,
    json_form,
    parse_dockerfile,
    without_heredoc_marks,
    words,
)
from tbtui.terminal import counted

if TYPE_CHECKING:
    from harbor.models.task.config import StepConfig, TaskConfig

_AT_ONCE = 4
# As Harbor's converter writes it; Compose refuses it when Harbor has no number to fill in.
_MEMORY = re.compile(r"\$\{?MEMORY\b(?!:?-)")
_KEPT = "/logs/artifacts"
"""What Harbor always takes to a verifier that runs apart."""

_DOCKERFILE = "environment/Dockerfile"
# What only Docker can resolve: variables, globs, URLs, here-documents.
_UNRESOLVED = re.compile(r"[$*?\[\]<]|://")

_NAMED = 3
_TEXT_BYTES = 1_000_000
_WORKDIR = re.compile(r"^\s*WORKDIR\s+(/\S*)\s*$", re.MULTILINE | re.IGNORECASE)
_PATH = re.compile(r"(?<![\w.:/<~$}])/[A-Za-z][\w.+-]*(?:/[\w.+-]+)*")
# What every environment has, and what the verifier makes itself.
_ANYWHERE = re.compile(
    r"/(?:tests|logs/verifier|tmp|dev/null|usr/bin/env|(?:usr/)?bin/(?:ba|da|z)?sh)(?:/|$)"
)
# What runs or is installed, who is logged in, what the network has: not in a file of the task.
_MORE_THAN_FILES = re.compile(
    r"localhost|127\.0\.0\.1|0\.0\.0\.0|https?://|\bsocket\b|\brequests\b|\burllib\b|\bcurl\b"
    r"|\bwget\b|\bnc\b|\bssh\b|\bpgrep\b|\bpsutil\b|\bps\b|\bkill\b|\bsystemctl\b|\bservice\b"
    r"|\btmux\b|\bcrontab\b|\bwhich\b|command -v|\bapt\b|apt-get|\bdpkg\b|\bdocker\b|~/|\bHOME\b"
    r"|expanduser|Path\.home|getpwnam|getgrnam|os\.environ|\bgit config --global\b",
)


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
        found.append(task.defect("", message, "correct it as Harbor asks"))
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


def _unknown_keys(task: TaskInfo, text: str, model: type[TaskConfig]) -> Iterator[Defect]:
    for location, known in _strangers(tomllib.loads(text), model, ()):
        yield task.defect(
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
        yield task.defect(
            file,
            "asks for ${MEMORY}, and task.toml has no memory_mb",
            "add memory_mb = 2048 under [environment], or convert the task again with"
            " `harbor task migrate --cpus 1 --memory-mb 2048`",
            line=text[: asked.start()].count("\n") + 1,
            severity="warning",
        )


def _separate_verifier(task: TaskInfo, config: TaskConfig) -> Iterator[Defect]:
    steps: list[StepConfig | None] = [*config.steps] if config.steps else [None]
    for step in steps:
        if resolve_effective_verifier_env_config(config, step) is None:
            continue
        if config.artifacts or (step and step.artifacts) or _KEPT in task.instruction:
            continue
        of = f"the verifier of step {step.name!r}" if step else "the verifier"
        yield task.defect(
            "task.toml",
            f"{of} runs in an environment of its own, and there are no artifacts: it sees only"
            f" {_KEPT} of what the agent does",
            'name what it judges with artifacts = ["/app"] at the top of task.toml, or give'
            ' environment_mode = "shared" under [verifier]',
            severity="warning",
        )


class _Anything(Mapping[str, str]):
    """Variables that only Docker knows: each is `*`, which is not resolved here."""

    def __getitem__(self, name: str) -> str:
        return "*"

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


def dockerfile_defects(task: TaskInfo, *, built: bool = True) -> Iterator[Defect]:
    """Defects of the task's environment/Dockerfile, if it has one.

    Warnings where the task names an image, so that it need not be `built`.
    """
    for defect in _dockerfile_defects(task):
        yield defect if built else dataclasses.replace(defect, severity="warning")


def _dockerfile_defects(task: TaskInfo) -> Iterator[Defect]:
    path = task.path / _DOCKERFILE
    if not is_file(path):
        return
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        yield task.defect(_DOCKERFILE, f"not UTF-8 text (byte {error.start})", "save it as UTF-8")
        return
    except OSError as error:
        yield task.defect(_DOCKERFILE, f"can't be read: {error.strerror}", READABLE)
        return
    try:
        instructions = parse_dockerfile(text)
    except DockerfileError as error:
        yield task.defect(_DOCKERFILE, str(error), "correct it", line=error.line)
        return
    try:
        ignored = IgnoreRules.read(task.path / "environment")
    except DockerfileError as error:
        yield task.defect("environment/.dockerignore", str(error), "save it as UTF-8 text")
        return
    first: str | None = None
    unknown = [step for step in instructions if step.keyword not in KNOWN]
    for step in instructions:
        if unknown and step is unknown[0]:
            hint = nearest(step.keyword, sorted(KNOWN))
            # A line that lacks its "\" makes an instruction of each that follows.
            more = f", and {len(unknown) - 1} more such lines" if len(unknown) > 1 else ""
            message = f"unknown instruction {step.keyword!r}{hint}{more}"
            yield task.defect(_DOCKERFILE, message, "correct it", line=step.line)
        if first is None and step.keyword != "ARG":
            first = step.keyword
            if first != "FROM":
                message = "does not start with FROM"
                yield task.defect(_DOCKERFILE, message, "name a base image", line=step.line)
        if step.keyword in {"COPY", "ADD"}:
            yield from _missing_sources(task, step, ignored)
    if first is None:
        yield task.defect(_DOCKERFILE, "holds no instruction", "start it with FROM <image>")


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:
        return False


def _missing_sources(task: TaskInfo, step: Instruction, ignored: IgnoreRules) -> Iterator[Defect]:
    flags, rest = step.flags()
    # Files of another build stage and the JSON form are left to Docker.
    if "from" in flags or json_form(rest) is not None:
        return
    for source in words(without_heredoc_marks(rest), _Anything())[:-1]:
        if _UNRESOLVED.search(source):
            continue
        path = task.path / "environment" / source.lstrip("/")
        inner = posixpath.normpath(source.lstrip("/") or ".")
        if is_file(path) and ignored.leaves_out(inner):
            yield task.defect(
                _DOCKERFILE,
                f"copies {source!r}, which .dockerignore leaves out",
                "correct the name, or .dockerignore",
                line=step.line,
            )
        elif not _exists(path):
            yield task.defect(
                _DOCKERFILE,
                f"copies {source!r}, which environment/ does not hold",
                "add the file or correct the name",
                line=step.line,
            )


def advice(tasks: Sequence[TaskInfo]) -> Iterator[str]:
    """One line on the tasks that would bear a verifier of their own, if there are any."""
    found = [task.name for task in tasks if bears_separate_verifier(task)]
    if not found:
        return
    named = ", ".join(found[:_NAMED]) + (", ..." if len(found) > _NAMED else "")
    yield (
        f"{len(found)} of {counted(len(tasks), 'task')} would bear a verifier out of the agent's"
        ' reach (environment_mode = "separate" under [verifier] in task.toml, and the working'
        f" directory among its artifacts): {named}"
    )


def bears_separate_verifier(task: TaskInfo) -> bool:
    """Whether the tests of a task, as far as their text shows, look below its working directory
    alone. False where the verifier has an environment of its own already."""
    config = read_config(tomllib.loads((task.path / "task.toml").read_text(encoding="utf-8")))
    if config.steps or resolve_task_verifier_mode(config) is VerifierEnvironmentMode.SEPARATE:
        return False
    if config.metadata.get("verifier_needs_processes") is True:
        return False
    workdir = config.environment.workdir or _image_workdir(task.path)
    if workdir is None or workdir == "/":
        return False
    return all(
        _looks_below(workdir, path) for path in (task.path / "tests").rglob("*") if path.is_file()
    )


def _image_workdir(task: Path) -> str | None:
    try:
        text = (task / "environment" / "Dockerfile").read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None
    named = _WORKDIR.findall(text)
    return named[-1] if named else None


def _looks_below(workdir: str, path: Path) -> bool:
    try:
        content = path.read_bytes()[:_TEXT_BYTES]
    except OSError:
        return False
    if b"\0" in content:  # data
        return True
    text = content.decode("utf-8", "replace")
    if _MORE_THAN_FILES.search(text):
        return False
    inside = workdir.rstrip("/")
    return all(
        name == inside or name.startswith(f"{inside}/") or _ANYWHERE.match(name)
        for name in _PATH.findall(text)
    )
