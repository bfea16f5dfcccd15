"""Reads one task directory: a `TaskInfo`, or every reason why not."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import ValidationError

from tbtui.catalog.defects import Defect, Severity, TaskReader
from tbtui.catalog.files import check_environment, check_inputs
from tbtui.catalog.harbor import harbor_version, read_config
from tbtui.catalog.toml_lines import line_of, line_of_syntax_error

if TYPE_CHECKING:
    from harbor.models.task.config import TaskConfig

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

    @property
    def short_name(self) -> str:
        """Its directory's name, which tasks of other data sets may have too."""
        return self.name.rpartition("/")[2]

    @property
    def full_name(self) -> str:
        """Data set and name, whether or not another data set has the name."""
        return f"{self.dataset}/{self.short_name}"


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
    _check_timeouts(reader, document, config)
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


def _validate(reader: TaskReader, text: str, document: dict[str, Any]) -> TaskConfig | None:
    try:
        return read_config(document)
    except ValidationError as error:
        document = tomllib.loads(text)  # Harbor renames old keys in what it is given
        reasons: dict[tuple[str | int, ...], list[str]] = {}
        for problem in error.errors(include_url=False, include_context=False):
            location = _location(problem["loc"], document)
            reason = problem["msg"].removeprefix("Value error, ").rstrip(".")
            reasons.setdefault(location, []).append(reason)
        for location in sorted(reasons, key=lambda place: line_of(text, place) or 0):
            key = ".".join(str(part) for part in location)
            # A value of several allowed types gives a reason for each of them.
            reason = ", or ".join(dict.fromkeys(reasons[location]))
            reader.report(
                "task.toml",
                f"{key}: {reason}" if key else reason,
                f"correct the value; {harbor_version()} refuses the task as it is",
                line_of(text, location),
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
    """What the agent is told; for a task of several steps, all their texts in order."""
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


def _check_timeouts(
    reader: TaskReader, document: tuple[str, dict[str, Any]] | None, config: TaskConfig | None
) -> None:
    """Harbor takes any number, but nothing can be done or judged in no time at all."""
    if document is None or config is None:
        return
    for section, seconds in (
        ("agent", config.agent.timeout_sec),
        ("verifier", config.verifier.timeout_sec),
    ):
        if seconds is not None and not seconds > 0:
            reader.report(
                "task.toml",
                f"{section}.timeout_sec is {seconds:g}",
                "give a number of seconds above 0",
                line_of(document[0], (section, "timeout_sec")),
            )


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
