"""Checks the form of a task's Dockerfile; building it is the environment's business."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from tbtui.catalog.defects import READABLE, Defect, is_file
from tbtui.catalog.errors import nearest
from tbtui.catalog.load import TaskInfo
from tbtui.dockerfile import (
    KNOWN,
    DockerfileError,
    Instruction,
    json_form,
    parse_dockerfile,
    without_heredoc_marks,
    words,
)

_FILE = "environment/Dockerfile"
# What only Docker can resolve: variables, globs, URLs, here-documents.
_UNRESOLVED = re.compile(r"[$*?\[\]<]|://")


class _Anything(Mapping[str, str]):
    """Variables that only Docker knows: each is `*`, which is not resolved here."""

    def __getitem__(self, name: str) -> str:
        return "*"

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


def _defect(task: TaskInfo, message: str, remedy: str, line: int | None = None) -> Defect:
    return Defect(task.name, task.path / _FILE, line, message, remedy)


def dockerfile_defects(task: TaskInfo, *, built: bool = True) -> Iterator[Defect]:
    """Defects of the task's environment/Dockerfile, if it has one.

    Warnings where the task names an image, so that it need not be `built`.
    """
    for defect in _defects(task):
        yield defect if built else dataclasses.replace(defect, severity="warning")


def _defects(task: TaskInfo) -> Iterator[Defect]:
    path = task.path / _FILE
    if not is_file(path):
        return
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        yield _defect(task, f"not UTF-8 text (byte {error.start})", "save it as UTF-8")
        return
    except OSError as error:
        yield _defect(task, f"can't be read: {error.strerror}", READABLE)
        return
    try:
        instructions = parse_dockerfile(text)
    except DockerfileError as error:
        yield _defect(task, str(error), "correct it", error.line)
        return
    first: str | None = None
    for step in instructions:
        if step.keyword not in KNOWN:
            hint = nearest(step.keyword, sorted(KNOWN))
            message = f"unknown instruction {step.keyword!r}{hint}"
            yield _defect(task, message, "correct it", step.line)
        if first is None and step.keyword != "ARG":
            first = step.keyword
            if first != "FROM":
                yield _defect(task, "does not start with FROM", "name a base image", step.line)
        if step.keyword in {"COPY", "ADD"}:
            yield from _missing_sources(task, step)
    if first is None:
        yield _defect(task, "holds no instruction", "start it with FROM <image>")


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:
        return False


def _missing_sources(task: TaskInfo, step: Instruction) -> Iterator[Defect]:
    flags, rest = step.flags()
    # Files of another build stage and the JSON form are left to Docker.
    if "from" in flags or json_form(rest) is not None:
        return
    for source in words(without_heredoc_marks(rest), _Anything())[:-1]:
        if _UNRESOLVED.search(source):
            continue
        if not _exists(task.path / "environment" / source.lstrip("/")):
            yield _defect(
                task,
                f"copies {source!r}, which environment/ does not hold",
                "add the file or correct the name",
                step.line,
            )
