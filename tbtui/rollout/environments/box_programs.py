"""Which programs and libraries of a box have been changed since a moment, by what is in its layers.

What a box changes below /usr is a file of the writable layer above the host's; the first process
keeps that layer's directory open, which nothing in the box can name. Read in it, no program of the
box takes part, and a time of a file's last change (ctime) can't be set back.

Imports only what `box_init` does, for the same reason.
"""

# Importing pathlib would cost more than making a box.
# ruff: noqa: PTH108
from __future__ import annotations

import os

TYPE_CHECKING = False  # importing typing itself would double the start-up time
if TYPE_CHECKING:
    from typing import Any

_BESIDE = (
    *("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/usr"),
    *("/etc/ld.so.preload", "/etc/ld.so.cache", "/etc/ld.so.conf"),
)
"""Outside the layers: where /usr is looked for, and what the loader reads."""


class Programs:
    """The state of a box's programs, as it was when it was marked."""

    def __init__(self, layers: list[int]) -> None:
        """`layers`: the writable layers' directories, open."""
        self._layers = layers
        self._marked: dict[str, tuple[int, ...]] | None = None

    def mark(self) -> None:
        """Take what is there now for unchanged."""
        self._marked = self._state()

    def changed(self) -> str:
        """The first program, library or link to one that was changed since; empty: none was.

        Byte code that Python keeps of a module is removed, not reported: it is written by the
        first process that imports the module.
        """
        if self._marked is None:
            return ""
        now = self._state()
        for path in sorted(self._marked.keys() | now.keys()):
            if "/__pycache__/" in path:
                if now.get(path) != self._marked.get(path) and _gone(path) is False:
                    return path
            elif now.get(path) != self._marked.get(path):
                return path
        return ""

    def _state(self) -> dict[str, tuple[int, ...]]:
        found: dict[str, tuple[int, ...]] = {}
        for layer in self._layers:
            for place, _, names, directory in os.fwalk(".", dir_fd=layer):
                for name in names:
                    status = os.lstat(name, dir_fd=directory)
                    found[f"{place[1:]}/{name}"] = _facts(status)
        for path in _BESIDE:
            try:
                status = os.lstat(path)
            except OSError:
                continue
            # A directory's times change with what is in it.
            is_directory = status.st_mode & 0o170000 == 0o040000
            found[path] = (status.st_dev, status.st_ino) if is_directory else _facts(status)
        return found


def _facts(status: Any) -> tuple[int, ...]:
    return status.st_ino, status.st_mode, status.st_size, status.st_ctime_ns


def _gone(path: str) -> bool:
    try:
        os.unlink(path)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True
