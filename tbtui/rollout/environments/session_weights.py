"""Weighs a box's sessions where no control group weighs the box.

A kernel with `CONFIG_SCHED_AUTOGROUP` gives each session (`setsid`) the same share of the CPU, and
takes no account of the niceness of processes between sessions: a box with sixty busy sessions gets
the CPU sixty times as often as one with one. A session's own niceness (`/proc/PID/autogroup`,
sched(7)) is lowered so far that the busy ones of a box weigh as much as one, and is set back when
they are not many any more. On other kernels a crowd is confined to one core (`box_watch.Share`).
"""

from __future__ import annotations

import math
import os
import time
from pathlib import Path

import psutil

_ENABLED = Path("/proc/sys/kernel/sched_autogroup_enabled")
_WEIGHT_PER_LEVEL = 1.25
_MOST_NICE = 19
_CROWD_PER_CORE = 4
"""More threads than that want the CPU."""
_PATIENCE_SEC, _WAIT_SEC = 0.8, 0.1
"""The kernel takes ten changes a second from a process without privileges."""


class SessionWeights:
    """The niceness of one box's sessions."""

    def __init__(self, init_pid: int, cores: int) -> None:
        self._init_pid = init_pid
        self._crowd = _CROWD_PER_CORE * cores
        self._lowered: set[str] = set()
        self._enabled = autogroups()

    def look(self, runnable: int) -> None:
        """Lower, or set back; takes up to a second. Call it about once a second.

        Args:
            runnable: Threads of the box that want the CPU.
        """
        if not self._enabled:
            return
        if runnable > self._crowd:
            busy = self._sessions(busy=True)
            level = math.log(max(1, len(busy))) / math.log(_WEIGHT_PER_LEVEL)
            self._set({s: p for s, p in busy.items() if s not in self._lowered}, round(level))
        elif self._lowered:
            living = self._sessions(busy=False)
            self._lowered &= living.keys()
            self._set({s: p for s, p in living.items() if s in self._lowered}, 0)

    def _set(self, sessions: dict[str, int], niceness: int) -> None:
        until = time.monotonic() + _PATIENCE_SEC
        for session, pid in sessions.items():
            file = Path(f"/proc/{pid}/autogroup")
            while True:
                try:
                    if _session(pid) == session:  # and not another process of that number
                        file.write_text(str(min(niceness, _MOST_NICE)))
                except BlockingIOError:
                    if time.monotonic() > until:
                        return  # the rest at the next look
                    time.sleep(_WAIT_SEC)
                    continue
                except (FileNotFoundError, ProcessLookupError):
                    pass  # it has ended
                break
            (self._lowered.add if niceness else self._lowered.discard)(session)

    def _sessions(self, *, busy: bool) -> dict[str, int]:
        """All, or those that want the CPU; each with one of its processes."""
        sessions: dict[str, int] = {}
        try:
            processes = psutil.Process(self._init_pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return {}
        for process in processes:
            try:
                if not busy or process.status() == psutil.STATUS_RUNNING:
                    sessions.setdefault(_session(process.pid), process.pid)
            except (psutil.NoSuchProcess, FileNotFoundError, ProcessLookupError):
                continue  # it has ended
        sessions.pop("", None)
        return sessions


def autogroups() -> bool:
    """Whether the kernel weighs sessions, and lets this process say how."""
    try:
        return _ENABLED.read_text().strip() == "1" and os.access("/proc/self/autogroup", os.W_OK)
    except OSError:
        return False


def _session(pid: int) -> str:
    """The kernel's name of a process's session; "" if it belongs to none of those it weighs."""
    return Path(f"/proc/{pid}/autogroup").read_text().partition(" ")[0]
