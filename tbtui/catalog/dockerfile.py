"""Checks the form of a task's Dockerfile; building it is the environment's business."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tbtui.catalog.defects import Defect
from tbtui.catalog.load import TaskInfo
from tbtui.catalog.tasks import nearest

_FILE = "environment/Dockerfile"
_INSTRUCTIONS = frozenset(
    [
        *("FROM", "RUN", "CMD", "LABEL", "MAINTAINER", "EXPOSE", "ENV", "ADD", "COPY"),
        *("ENTRYPOINT", "VOLUME", "USER", "WORKDIR", "ARG", "ONBUILD", "STOPSIGNAL"),
        *("HEALTHCHECK", "SHELL"),
    ]
)
_HEREDOC = re.compile(r"<<-?\s*[\"']?(\w+)[\"']?")
# What only Docker can resolve: variables, globs, URLs, here-documents.
_UNRESOLVED = re.compile(r"[$*?\[\]<]|://")


def _defect(task: TaskInfo, message: str, remedy: str, line: int | None = None) -> Defect:
    return Defect(task.name, task.path / _FILE, line, message, remedy)


def dockerfile_defects(task: TaskInfo) -> Iterator[Defect]:
    """Defects of the task's environment/Dockerfile, if it has one."""
    path = task.path / _FILE
    if not path.is_file():
        return
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        yield _defect(task, f"not UTF-8 text (byte {error.start})", "save it as UTF-8")
        return
    first: str | None = None
    for line, instruction, arguments in docker_instructions(text):
        if instruction not in _INSTRUCTIONS:
            hint = nearest(instruction, sorted(_INSTRUCTIONS))
            yield _defect(task, f"unknown instruction {instruction!r}{hint}", "correct it", line)
        if first is None and instruction != "ARG":
            first = instruction
            if instruction != "FROM":
                yield _defect(task, "does not start with FROM", "name a base image", line)
        if instruction in {"COPY", "ADD"}:
            yield from _missing_sources(task, line, arguments)
    if first is None:
        yield _defect(task, "holds no instruction", "start it with FROM <image>")


def docker_instructions(text: str) -> Iterator[tuple[int, str, str]]:
    """(line, INSTRUCTION, arguments), continuation lines joined and here-documents skipped."""
    lines = iter(enumerate(text.splitlines(), start=1))
    for number, line in lines:
        statement = line.strip()
        if not statement or statement.startswith("#"):
            continue
        while statement.endswith("\\"):
            _, more = next(lines, (0, ""))
            if not more.lstrip().startswith("#"):
                statement = f"{statement[:-1]} {more.strip()}"
        instruction, _, arguments = statement.partition(" ")
        if instruction.upper() in {"RUN", "COPY"}:
            for terminator in _HEREDOC.findall(arguments):
                while next(lines, (0, terminator))[1].strip() != terminator:
                    pass
        yield number, instruction.upper(), arguments


def _missing_sources(task: TaskInfo, line: int, arguments: str) -> Iterator[Defect]:
    words = arguments.split()
    # Files of another build stage and the JSON form are left to Docker.
    if arguments.startswith("[") or any(word.startswith("--from") for word in words):
        return
    sources = [word for word in words if not word.startswith("--")][:-1]
    for source in sources:
        if _UNRESOLVED.search(source):
            continue
        if not (task.path / "environment" / source.lstrip("/")).exists():
            yield _defect(
                task,
                f"copies {source!r}, which environment/ does not hold",
                "add the file or correct the name",
                line,
            )
