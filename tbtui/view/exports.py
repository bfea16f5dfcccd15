"""The forms in which a trial can be given to others, and the files that they are written to."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

from tbtui.errors import UserError
from tbtui.journal.rundir import is_of_a_run
from tbtui.paths import replace_file

ExportFormat = Literal["cast", "atif", "jsonl", "html"]

ENDINGS: dict[ExportFormat, str] = {
    "cast": ".cast",
    "atif": ".trajectory.json",
    "jsonl": ".jsonl",
    "html": ".html",
}

MEANINGS: dict[ExportFormat, str] = {
    "cast": "the terminal, for asciinema players (asciicast v2)",
    "atif": "the trajectory, as Harbor writes it (ATIF)",
    "jsonl": "a line a model call, with its tokens",
    "html": "a page to read: turns, terminal, tokens, verdict",
}


def file_name(trial: str, format: ExportFormat) -> str:
    """What to call the file of a trial: nothing in it that a file system or shell minds."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", trial).strip("-.") + ENDINGS[format]


def require_free(path: Path, *, overwrite: bool) -> None:
    """Raise `UserError` where an export may not be written: over what is there, unless that is a
    file and to be overwritten, and never among a run's own files."""
    if path.exists() and not overwrite:
        raise UserError(f"{path} is there already; choose another name")
    if path.exists() and not path.is_file():
        raise UserError(f"{path}: not a regular file; choose another name")
    if is_of_a_run(path):
        raise UserError(f"{path}: a run's own file, which would be lost; choose another place")


def write_export(path: Path, text: str, *, overwrite: bool) -> None:
    """Write a file for others, whole or not at all. Raises `UserError`."""
    require_free(path, overwrite=overwrite)
    try:
        replace_file(path, text.encode(errors="replace"))
    except OSError as error:
        raise UserError(f"{path}: can't be written ({error.strerror or error})") from error
