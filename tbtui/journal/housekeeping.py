"""Notes on runs, and renaming them."""

from __future__ import annotations

import os
import time
from pathlib import Path

from tbtui.journal.rundir import RunDirectory, RunDirectoryError, RunLock
from tbtui.paths import open_plain, require_plain

_NOTES = "notes.txt"
_MOST_READ = 64 << 10
"""Bytes of the end of notes that are read."""
_LONGEST_NAME = 120


def notes_file(run: RunDirectory) -> Path:
    """The file of a run's notes: a line each, its time first; people may edit it."""
    return run.path / _NOTES


def read_notes(run: RunDirectory) -> list[str]:
    """The notes on a run, the latest last; none where they can't be read."""
    try:
        with open_plain(notes_file(run)) as file:
            size = os.fstat(file.fileno()).st_size
            file.seek(max(0, size - _MOST_READ))
            text = file.read(_MOST_READ).decode("utf-8", "replace")
    except OSError:
        return []
    return [line for line in text.splitlines() if line.strip()]


def add_note(run: RunDirectory, text: str) -> None:
    """Add a note; a live run may have notes, too.

    Raises:
        RunDirectoryError: it can't be written.
    """
    line = f"{time.strftime('%Y-%m-%d %H:%M')} {' '.join(text.split())}\n"
    path = notes_file(run)
    try:
        require_plain(path)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(path, flags, 0o600), "ab") as file:
            file.write(line.encode("utf-8", "replace"))
    except OSError as error:
        raise RunDirectoryError(f"{path}: can't be written ({error.strerror})") from error


def rename_run(run: RunDirectory, name: str) -> RunDirectory:
    """Give a run another name: that of its directory.

    A link with the old name stays, so that what names the run by it goes on working: checkpoints
    in the settings of runs that began from it, scripts, and processes that show it now.

    Raises:
        RunDirectoryError: the run is live, the name can't be a directory's or is taken, or the
            directory can't be renamed.
    """
    old = run.path.resolve()
    _require_name(name)
    new = old.parent / name
    if new == old:
        return RunDirectory(old)
    try:
        with RunLock(RunDirectory(old)):
            if new.is_symlink() and new.resolve() == old:
                # It had this name before.
                new.unlink()
            if new.exists() or new.is_symlink():
                raise RunDirectoryError(f"{new}: is there already; choose another name")
            old.rename(new)
            old.symlink_to(name)
    except OSError as error:
        raise RunDirectoryError(f"{old}: can't be renamed ({error.strerror})") from error
    return RunDirectory(new)


def _require_name(name: str) -> None:
    if not name or name.startswith((".", "-")) or "/" in name or not name.isprintable():
        raise RunDirectoryError(
            f"{name!r}: no name for a run; it is a directory's, without /, and doesn't begin"
            " with . or -"
        )
    if len(name.encode()) > _LONGEST_NAME:
        raise RunDirectoryError(f"{name[:20]}…: longer than {_LONGEST_NAME} bytes")
