"""The quarantine of a directory of tasks: tasks that can't be trusted, with the evidence.

`tbtui tasks flakes` writes it; runs leave the tasks out and name them. In `quarantine.toml`, in the
directory itself:

[tasks."copy-03"]
reason = "its solution passes 12 of 20 under load"
found = "2026-11-25T22:40:14+00:00"
run = "flakes-2026-11-25-224014"
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import tomli_w

from tbtui.catalog import CatalogError
from tbtui.paths import replace_file

FILE = "quarantine.toml"
_HEADING = "# Written by tbtui tasks flakes: runs leave these tasks out, and name them.\n"
_LARGEST = 16 << 20


class Quarantined(msgspec.Struct, frozen=True, kw_only=True):
    """Why a task is not used."""

    reason: str
    found: str = ""
    """When, as ISO 8601."""
    run: str = ""
    """The run whose trials show it."""
    evidence: dict[str, Any] = {}
    """Figures, by who acted and how."""


class _Document(msgspec.Struct):
    tasks: dict[str, Quarantined] = {}


def read_quarantine(directory: Path) -> dict[str, Quarantined]:
    """The quarantined tasks of a directory, by name; none where there is no such file.

    Raises:
        CatalogError: it can't be read, or isn't what it should be.
    """
    file = directory / FILE
    try:
        if not file.is_file():
            return {}
        if file.stat().st_size > _LARGEST:
            raise CatalogError(f"{file}: larger than 16 MiB: not what tbtui tasks flakes writes")
        document = tomllib.loads(file.read_text())
        return msgspec.convert(document, _Document).tasks
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise CatalogError(f"{file}: {error}; mend it, or remove it") from error


def write_quarantine(directory: Path, tasks: Mapping[str, Quarantined]) -> Path:
    """Write the file anew, or remove it where no task is quarantined; returns where it is.

    Raises:
        CatalogError: it can't be written.
    """
    file = directory / FILE
    try:
        if not tasks:
            file.unlink(missing_ok=True)
            return file
        content = tomli_w.dumps({"tasks": msgspec.to_builtins(dict(sorted(tasks.items())))})
        replace_file(file, f"{_HEADING}{content}".encode())
    except OSError as error:
        raise CatalogError(f"{file} can't be written: {error.strerror}") from error
    return file
