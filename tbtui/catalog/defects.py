"""What can be wrong with a task, and the reader that collects it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Severity = Literal["error", "warning"]
READABLE = "make it readable: it is copied into every sandbox"


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


def leads_inside(path: Path, directory: Path) -> bool:
    """Whether what `path` means, links followed, lies in the directory."""
    try:
        return path.resolve().is_relative_to(directory.resolve())
    except (OSError, RuntimeError):  # a cycle of links
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
