"""What can be wrong with a task and in which line, and the reader that collects it."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tbtui.paths import leads_inside

Severity = Literal["error", "warning"]
READABLE = "make it readable: it is copied into every sandbox"

_HEADER = re.compile(r"^\s*\[(\[)?\s*([^\[\]]+?)\s*\]\]?\s*(#.*)?$")
_KEY = re.compile(r"""^\s*((?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*')(?:\s*\.\s*[A-Za-z0-9_-]+)*)\s*=""")
_SYNTAX_LINE = re.compile(r"\(at line (\d+), column \d+\)")

Location = Sequence[str | int]


@dataclass(frozen=True, slots=True)
class Defect:
    """What is wrong with a task. An `error` makes it unusable, a `warning` only suspicious."""

    task: str
    """Its name in the catalog."""
    path: Path
    line: int | None
    message: str
    remedy: str
    severity: Severity = "error"

    @property
    def where(self) -> str:
        """`file` or `file:line`."""
        return f"{self.path}:{self.line}" if self.line is not None else str(self.path)


def is_file(path: Path) -> bool:
    """As `Path.is_file`; False too where one may not look, or nothing can have such a name."""
    try:
        return path.is_file()
    except OSError:
        return False


@dataclass(frozen=True, slots=True)
class TaskReader:
    """Reads the files of one task directory and collects its defects meanwhile."""

    path: Path
    name: str
    """In the catalog."""
    defects: list[Defect]

    def report(self, file: str, message: str, remedy: str, line: int | None = None) -> None:
        where = self.path / file if file else self.path
        self.defects.append(Defect(self.name, where, line, message, remedy))

    def is_inside(self, file: str) -> bool:
        """Whether the file lies in the task; reports a link that leads out of it.

        What is read is shown, and sent to a model: a task must not choose files of this machine.
        """
        path = os.fspath(self.path)
        for part in file.split("/"):
            path = f"{path}/{part}"
            if os.path.islink(path):  # noqa: PTH114 - of every task, many times faster
                break
        else:
            return True
        if leads_inside(self.path / file, self.path):
            return True
        link = Path(path)
        if any(defect.path == link for defect in self.defects):
            return False
        self.report(
            str(link.relative_to(self.path)),
            f"symbolic link out of the task, to {link.readlink()}",
            "copy the file into the task",
        )
        return False

    def has(self, file: str) -> bool:
        """Whether the task has a regular file; one behind an unreadable directory is missing."""
        return is_file(self.path / file)

    def text(self, file: str, remedy: str) -> str | None:
        """Content of a UTF-8 file of the task, or None after reporting why it can't be had."""
        if not self.is_inside(file):
            return None
        try:
            return (self.path / file).read_text(encoding="utf-8")
        except FileNotFoundError:
            self.report(file, f"missing {file}", remedy)
        except UnicodeDecodeError as error:
            self.report(file, f"not UTF-8 text (byte {error.start})", "save it as UTF-8")
        except OSError as error:
            self.report(file, f"can't be read: {error.strerror}", remedy)
        return None


def _parts(dotted: str) -> tuple[str, ...]:
    return tuple(part.strip().strip("\"'") for part in dotted.split("."))


def _common(path: tuple[str | int, ...], wanted: tuple[str | int, ...]) -> int:
    """How many leading elements of `wanted` the whole of `path` covers; 0 if it leads elsewhere."""
    return len(path) if wanted[: len(path)] == path else 0


def line_of(text: str, location: Location) -> int | None:
    """Line (from 1) of the key at `location`, or of the nearest enclosing key or table.

    `tomllib` keeps no positions. This reads headers and keys line by line; a value that spans lines
    and happens to hold `key =` could mislead it, which costs a slightly wrong line number, no more.
    """
    wanted = tuple(location)
    table: tuple[str | int, ...] = ()
    arrays: dict[tuple[str, ...], int] = {}
    best, best_line = 0, None
    for number, line in enumerate(text.splitlines(), start=1):
        if header := _HEADER.match(line):
            names = _parts(header.group(2))
            table = names
            if header.group(1):
                arrays[names] = arrays.get(names, -1) + 1
                table = (*names, arrays[names])
            path: tuple[str | int, ...] = table
        elif key := _KEY.match(line):
            path = (*table, *_parts(key.group(1)))
        else:
            continue
        covered = _common(path, wanted)
        if covered > best:
            best, best_line = covered, number
    return best_line


def line_of_syntax_error(message: str) -> int | None:
    """Line that a `tomllib.TOMLDecodeError` names; None at the end of the file."""
    found = _SYNTAX_LINE.search(message)
    return int(found.group(1)) if found else None
