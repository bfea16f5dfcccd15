"""Reads one task directory: a `TaskInfo`, or every reason why Harbor could not run or judge it.

Harbor's own model is used, not a copy of its rules: versions differ. Only the parts of Harbor
that describe tasks are imported, when the first task is read: 0.1 s more than pydantic takes.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import sys
import tomllib
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import ValidationError

from tbtui.catalog.defects import Defect, Severity, TaskReader, line_of, line_of_syntax_error

if TYPE_CHECKING:
    from harbor.models.task.config import StepConfig, TaskConfig

__all__ = [
    "DEFAULT_AGENT_TIMEOUT_SEC",
    "Defect",
    "Severity",
    "SplitName",
    "TaskInfo",
    "load_task",
]

SplitName = Literal["train", "heldout"]

DEFAULT_AGENT_TIMEOUT_SEC = 900.0
"""Budget of a task that declares none. Harbor would let such an agent run for ever."""

# Harbor strips these provenance markers before the agent sees the instruction.
_CANARY = re.compile(r"^(<!--.*canary.*-->|#.*canary.*)$", re.IGNORECASE)

_ENVIRONMENT_FILES = ("Dockerfile", "docker-compose.yaml")
_INPUTS = ("tests", "solution")
_IGNORE_FILE = ".harborignore"

_LONGEST_SEC = 10_000_000
_MOST = 100_000_000
_SHOWN_DIGITS = 12
_ANY_TIME = 1e-9
"""The shortest time, and the smallest share of a CPU, that is more than none."""
_SECONDS: Mapping[str, float] = {
    "timeout_sec": _ANY_TIME,
    "build_timeout_sec": _ANY_TIME,
    "interval_sec": 0,
    "start_interval_sec": 0,
    "start_period_sec": 0,
}
"""Keys of task.toml, in any table -> the least that makes sense."""
_AMOUNTS: Mapping[str, float] = {
    "cpus": _ANY_TIME,
    "memory_mb": 1,
    "storage_mb": 1,
    "gpus": 0,
    "retries": 1,
}

REFUSALS = (OSError, ValueError, RuntimeError)
"""What Harbor's `Task.is_valid_dir` takes for a refusal."""


@dataclass(frozen=True, slots=True)
class TaskInfo:
    """One usable task."""

    name: str
    """Unique in its catalog: its directory's name; `DATASET/NAME` where two data sets have it."""
    path: Path
    dataset: str
    """The directory around it, as seen from the catalog's; the catalog's own name for its own."""
    instruction: str
    difficulty: str | None
    category: str | None
    kind: str | None
    tags: tuple[str, ...]
    split: SplitName | None
    agent_timeout_sec: float
    verifier_timeout_sec: float
    allows_network: bool
    has_solution: bool
    steps: tuple[str, ...]
    impossible: bool = False
    """Its verifier is inverted: no honest work passes (`variants.impossible`)."""

    @property
    def short_name(self) -> str:
        """Its directory's name, which tasks of other data sets may have too."""
        return self.name.rpartition("/")[2]

    @property
    def full_name(self) -> str:
        """Data set and name, whether or not another data set has the name."""
        return f"{self.dataset}/{self.short_name}"

    def defect(
        self,
        file: str,
        message: str,
        remedy: str,
        *,
        line: int | None = None,
        severity: Severity = "error",
    ) -> Defect:
        """What is wrong with a file of the task; "": with its directory."""
        return Defect(self.name, self.path / file, line, message, remedy, severity)


def load_task(
    path: Path, dataset: str, name: str | None = None
) -> tuple[TaskInfo | None, list[Defect]]:
    """Reads the task in directory `path`; `name` is what its catalog calls it.

    Returns the task, or None when it has errors, and all of its defects.
    """
    reader = TaskReader(path, name or path.name, [])
    if not os.access(path, os.R_OK | os.X_OK):
        reader.report("", "the directory is not readable", "give yourself access with chmod u+rx")
        return None, reader.defects
    document = _read_toml(reader)
    config = None if document is None else _validate(reader, *document)
    # Files are checked even when task.toml is broken: one look should show everything.
    steps = [step.name for step in config.steps or ()] if config else []
    instruction = ""
    if config is not None or not (path / "steps").is_dir():  # else only it knows what must be there
        instruction = _instruction(reader, steps)
        check_inputs(reader, config)
    check_environment(reader, config.environment.docker_image if config else None)
    split = _split(reader, document, config)
    _check_limits(reader, document, config)
    if config is None or reader.defects:
        return None, reader.defects
    metadata = config.metadata
    return TaskInfo(
        name=reader.name,
        path=path,
        dataset=dataset,
        instruction=instruction,
        difficulty=_label(metadata, "difficulty"),
        category=_label(metadata, "category"),
        kind=_label(metadata, "kind"),
        tags=_tags(metadata) or tuple(config.task.keywords if config.task else ()),
        split=split,
        agent_timeout_sec=_agent_timeout(config),
        verifier_timeout_sec=config.verifier.timeout_sec,
        allows_network=config.environment.network_mode.value != "no-network",
        has_solution=reader.has("solution/solve.sh"),
        steps=tuple(steps),
    ), []


def _read_toml(reader: TaskReader) -> tuple[str, dict[str, Any]] | None:
    text = reader.text(
        "task.toml", "add a task.toml; see https://harborframework.com/docs/tasks for its format"
    )
    if text is None:
        return None
    try:
        return text, tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        line = line_of_syntax_error(str(error))
        reason = str(error).partition(" (at ")[0]
        reader.report("task.toml", f"not valid TOML: {reason}", "correct the syntax", line)
        return None
    except (ValueError, RecursionError) as error:  # thousands of digits, or of brackets
        reader.report("task.toml", f"can't be read: {error}", "correct the value")
        return None


def _validate(reader: TaskReader, text: str, document: dict[str, Any]) -> TaskConfig | None:
    try:
        return read_config(document)
    except OverflowError as error:  # a size such as "infG"
        reader.report("task.toml", f"a value is beyond any number: {error}", "correct the value")
        return None
    except ValidationError as error:
        document = tomllib.loads(text)  # Harbor renames old keys in what it is given
        reasons: dict[tuple[str | int, ...], list[str]] = {}
        for problem in error.errors(include_url=False, include_context=False):
            location = _location(problem["loc"], document)
            reason = problem["msg"].removeprefix("Value error, ").rstrip(".")
            reasons.setdefault(location, []).append(reason)
        # One line may have a long list, wrong in each of its entries.
        alike: dict[tuple[int, str], list[tuple[str | int, ...]]] = {}
        for location, said in reasons.items():
            # A value of several allowed types gives a reason for each of them.
            reason = ", or ".join(dict.fromkeys(said))
            alike.setdefault((line_of(text, location) or 0, reason), []).append(location)
        for (line, reason), (location, *others) in sorted(alike.items()):
            key = ".".join(str(part) for part in location)
            more = f" (and {len(others)} more in this line)" if others else ""
            reader.report(
                "task.toml",
                f"{key}{more}: {reason}" if key else reason,
                f"correct the value; {harbor_version()} refuses the task as it is",
                line or None,
            )
        return None


def _location(reported: Sequence[str | int], document: Any) -> tuple[str | int, ...]:
    """The reported place less the names of the types that were tried there, which no file has."""
    found: list[str | int] = []
    here = document
    for number, part in enumerate(reported):
        match here:
            case dict() if part in here or number == len(reported) - 1:  # it may be a missing key
                here = here.get(part)
            case list() if isinstance(part, int) and part < len(here):
                here = here[part]
            case _:
                continue
        found.append(part)
    return tuple(found)


def _instruction(reader: TaskReader, steps: Sequence[str]) -> str:
    """The instruction that the agent gets; of a task of several steps, all their texts in order."""
    files = [f"steps/{step}/instruction.md" for step in steps] or ["instruction.md"]
    texts: list[str] = []
    for file in files:
        text = reader.text(file, "write what the agent is to do into it")
        if text is None:
            continue
        text = _strip_canary(text)
        if not text.strip():
            reader.report(file, "the instruction is empty", "write what the agent is to do")
        texts.append(text)
    return "\n\n".join(texts)


def _strip_canary(text: str) -> str:
    lines = text.split("\n")
    start = 0
    while start < len(lines) and _CANARY.match(lines[start].strip()):
        start += 1
    while start < len(lines) and not lines[start].strip():
        start += 1
    return "\n".join(lines[start:])


def _split(
    reader: TaskReader, document: tuple[str, dict[str, Any]] | None, config: TaskConfig | None
) -> SplitName | None:
    declared = config.metadata.get("split") if config else None
    if declared is None or declared == "train" or declared == "heldout":
        return declared
    # Guessing could put a held-out task into training.
    reader.report(
        "task.toml",
        f"metadata.split is {declared!r}",
        "write split = 'train' or split = 'heldout'",
        line_of(document[0], ("metadata", "split")) if document else None,
    )
    return None


def _check_limits(
    reader: TaskReader, document: tuple[str, dict[str, Any]] | None, config: TaskConfig | None
) -> None:
    """Harbor takes any number, but nothing can be done or judged in no time, or for ever."""
    if document is None or config is None:
        return
    text = document[0]
    for location, value in _numbers(config.model_dump(exclude={"metadata"}), ()):
        key = location[-1]
        if key in _SECONDS:
            lowest, highest = _SECONDS[str(key)], _LONGEST_SEC
            what = f"a number of seconds {'above 0' if lowest else 'from 0'} to {_LONGEST_SEC:,}"
        elif key in _AMOUNTS:
            lowest, highest = _AMOUNTS[str(key)], _MOST
            least = "above 0" if 0 < lowest < 1 else f"from {lowest:g}"
            what = f"a number {least} to {_MOST:,}"
        else:
            continue
        # Written so that nan, of which no comparison holds, is refused.
        if not lowest <= value <= highest:
            name = ".".join(str(part) for part in location)
            said = f"{value:g}" if abs(value) <= sys.float_info.max else f"{value}"[:_SHOWN_DIGITS]
            line = line_of(text, location)
            reader.report("task.toml", f"{name} is {said}", f"give {what}", line)


def _numbers(
    table: Mapping[str, Any], above: tuple[str | int, ...]
) -> Iterator[tuple[tuple[str | int, ...], float]]:
    """Every number, with its place."""
    for key, value in table.items():
        location = (*above, key)
        if isinstance(value, int | float):
            yield location, value
        elif isinstance(value, dict):
            yield from _numbers(value, location)
        elif isinstance(value, list):
            for number, each in enumerate(value):
                if isinstance(each, dict):
                    yield from _numbers(each, (*location, number))


def _agent_timeout(config: TaskConfig) -> float:
    declared = [step.agent.timeout_sec for step in config.steps or ()]
    known = [seconds for seconds in declared if seconds is not None]
    if known:
        return max(known)
    overall = config.agent.timeout_sec
    return DEFAULT_AGENT_TIMEOUT_SEC if overall is None else overall


def _label(metadata: Mapping[str, Any], key: str) -> str | None:
    value = metadata.get(key)
    return str(value) if isinstance(value, str | int | float) and value != "" else None


def _tags(metadata: Mapping[str, Any]) -> tuple[str, ...]:
    tags = metadata.get("tags")
    return tuple(str(tag) for tag in tags) if isinstance(tags, list) else ()


def check_environment(reader: TaskReader, image: str | None) -> None:
    """An environment is an image, or built from a Dockerfile or a compose file."""
    files = [f"environment/{name}" for name in _ENVIRONMENT_FILES]
    inside = [reader.is_inside(file) for file in files]
    if image is not None or not all(inside) or any(map(reader.has, files)):
        return
    reader.report(
        "environment",
        "no Dockerfile or docker-compose.yaml"
        if (reader.path / "environment").is_dir()
        else "missing environment directory",
        "add environment/Dockerfile, or name an image with [environment] docker_image",
    )


def check_inputs(reader: TaskReader, config: TaskConfig | None) -> None:
    """What Harbor copies into the environment: tests and solution, of each step too.

    Where more than a look at names is needed, Harbor decides; the finding then names each file
    where that is known, else it has Harbor's words. Without a `config` (task.toml is broken) only
    what every task must have is checked.
    """
    if config is None:
        _require_script(reader, "tests/test.sh")
        return
    if _is_plain(reader, config):
        return
    if (reason := refusal(reader.path)) is None:
        return
    _report_scripts(reader, config)
    for tree in (*_INPUTS, *(f"steps/{step.name}" for step in config.steps or ())):
        _report_links(reader, reader.path / tree)
    if not reader.defects:
        reader.report("", f"{harbor_version()} refuses it: {reason}", "correct it as Harbor asks")


def _is_plain(reader: TaskReader, config: TaskConfig) -> bool:
    """The usual task, without anything that Harbor's versions could see differently."""
    from harbor.models.task.config import TaskOS, VerifierEnvironmentMode
    from harbor.models.task.verifier_mode import resolve_task_verifier_mode

    return (
        not config.steps
        and config.environment.os == TaskOS.LINUX
        and resolve_task_verifier_mode(config) == VerifierEnvironmentMode.SHARED
        and reader.has("instruction.md")
        and reader.has("tests/test.sh")
        and not any(_has_links_or_rules(reader.path / tree) for tree in _INPUTS)
    )


def _has_links_or_rules(tree: Path) -> bool:
    """Whether some file below is a link, or says which of the others Harbor leaves out."""
    if tree.is_symlink():
        return True
    waiting = [str(tree)]
    for directory in waiting:
        try:
            with os.scandir(directory) as entries:
                for entry in entries:
                    if entry.is_symlink() or entry.name == _IGNORE_FILE:
                        return True
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
        except FileNotFoundError:
            continue
        except OSError:
            return True  # Harbor says what it makes of it
    return False


def _report_scripts(reader: TaskReader, config: TaskConfig) -> None:
    steps: list[StepConfig | None] = [*config.steps] if config.steps else [None]
    for step in steps:
        script = _expected_script(config, step)
        if script is not None:
            here = f"steps/{step.name}/{script}" if step is not None else script
            _require_script(reader, here, script)


def _expected_script(config: TaskConfig, step: StepConfig | None) -> str | None:
    """Name of the test script that the task must bring: one whose verifier shares the agent's
    environment does; a separate verifier may have its image's own (None)."""
    from harbor.models.task.config import TaskOS
    from harbor.models.task.verifier_mode import resolve_effective_verifier_env_config

    if resolve_effective_verifier_env_config(config, step) is not None:
        return None
    return "tests/test.bat" if config.environment.os == TaskOS.WINDOWS else "tests/test.sh"


def _require_script(reader: TaskReader, script: str, *others: str) -> None:
    if not any(reader.has(file) for file in (script, *others)):
        reader.report(
            script, f"missing {script}", "add the script that writes /logs/verifier/reward.txt"
        )


def _report_links(reader: TaskReader, tree: Path) -> None:
    """Each link out of the task, once; what lies behind it is not looked at."""
    if not reader.is_inside(str(tree.relative_to(reader.path))):
        return
    for directory, subdirectories, files in os.walk(tree):
        for name in (*subdirectories, *files):
            if (path := Path(directory, name)).is_symlink():
                reader.is_inside(str(path.relative_to(reader.path)))


def harbor_version() -> str:
    """`Harbor 0.24.0`."""
    return f"Harbor {importlib.metadata.version('harbor')}"


def read_config(document: Mapping[str, Any]) -> TaskConfig:
    """Harbor's reading of a parsed task.toml.

    Raises:
        pydantic.ValidationError: Harbor does not accept it.
    """
    from harbor.models.task.config import TaskConfig

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # deprecations, which don't matter to who uses the task
        return TaskConfig.model_validate(document)


def refusal(path: Path) -> str | None:
    """Why Harbor does not load the task in directory `path`; None where it does.

    Takes 2 to 8 ms, because Harbor resolves every file of the task.
    """
    from harbor.models.task.task import Task

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            Task(path)
    except REFUSALS as error:
        said = str(error).partition("\n")[0] or type(error).__name__
        place = str(path.resolve())
        return said.replace(f"{place}/", "").replace(f"Task directory {place}", "it")
    return None
