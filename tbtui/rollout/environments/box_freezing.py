"""Stops every process of the box where it stands, and lets them go on.

Imports only what `box_init` does, for the same reason.
"""

# Importing pathlib would cost more than making a box.
# ruff: noqa: PTH123, PTH208
from __future__ import annotations

import os
import time

SIGCONT, SIGSTOP = 18, 19
_ROUNDS = 50
_ROUND_SECONDS = 0.001
_AT_REST = (b"T", b"t", b"Z", b"X")
"""States of a process that is stopped, or traced, or dead."""


class Freezer:
    """What had been stopped before, by Ctrl-Z say, stays stopped when the box is thawed."""

    def __init__(self) -> None:
        self._left: set[int] | None = None
        """While frozen: those."""

    def freeze(self) -> None:
        """Nothing happens if they are stopped."""
        if self._left is None:
            self._left = {pid for pid, (state, _) in _survey().items() if state == b"T"}
        # Parents first: a shell that saw its child stop before it was stopped itself would take
        # that for Ctrl-Z.
        for _ in range(_ROUNDS):
            running = {
                pid: parent for pid, (state, parent) in _survey().items() if state not in _AT_REST
            }
            if not running:
                break
            self._left -= running.keys()
            for pid, parent in running.items():
                if parent not in running:
                    signal(pid, SIGSTOP)
            time.sleep(_ROUND_SECONDS)
        # What forks faster than that is stopped all at once.
        signal(-1, SIGSTOP)

    def thaw(self) -> None:
        """Nothing happens if none is stopped."""
        if self._left is None:
            return
        # Children, which are younger, first: for the same reason.
        for pid in sorted(pids(), reverse=True):
            if pid not in self._left:
                signal(pid, SIGCONT)
        self._left = None


def is_busy() -> bool:
    """Whether any process of the box runs, or wants to: works on something, waits for a disk."""
    return any(state in (b"R", b"D") for state, _ in _survey().values())


def pids() -> list[int]:
    """All of the box's but process 1."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit() and name != "1"]


def signal(pid: int, number: int) -> None:
    """To a process that may have gone; -1: to all of the box's but process 1."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def _survey() -> dict[int, tuple[bytes, int]]:
    """Each process's state and parent."""
    found = {}
    for pid in pids():
        try:
            with open(f"/proc/{pid}/stat", "rb") as file:
                # Behind the name, which may hold anything.
                state, parent = file.read().rpartition(b")")[2].split()[:2]
        except OSError:
            continue
        found[pid] = state, int(parent)
    return found
