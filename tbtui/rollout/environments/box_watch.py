"""Watches and stops the processes of a box, from its process 1.

Twice a second it looks at the box's totals, its bombs and its share of the CPU.
Counts what the box did to itself (`report`), which nothing in the box can forge, and how long the
box was kept from the CPU by others. Imports only what `box_init` does, for the same reason.
"""

# Importing pathlib would cost more than making a box.
# ruff: noqa: PTH123, PTH208
from __future__ import annotations

import sys

assert sys.platform == "linux"

import errno
import os
import resource
import time

TYPE_CHECKING = False  # importing typing itself would double the start-up time

if TYPE_CHECKING:
    from collections.abc import Collection
    from typing import Any

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
    """Process ids of the box, without process 1."""
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


SIGKILL = 9
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_TICK_SECONDS = 0.5
_BOMB_TICK_SECONDS, _BOMB_TICKS = 0.1, 5
"""A box that sits at its limit of processes is looked at more often; after so many looks it is not
working, it is stuck."""
_NEARLY = 4
_LATE_SHARE = 0.2
"""A machine that is busy, and fair, lets process 1 wait for less of the time than that."""
_BUSY_SHARE, _BUSY_BIRTHS = 0.25, 50
"""A box that uses more of one core, or starts more processes between two looks, is busy itself."""
_HOG_THREADS_PER_CORE, _HOG_LOOKS = 4, 2
"""More threads than that want the CPU, so many looks in a row."""
_RESERVED_INODES = 256
_RESERVED_BYTES = 2 << 20


class _Survey:
    """All processes of the box but process 1, looked at once."""

    def __init__(self) -> None:
        self.threads = 0
        self.runnable: list[int] = []
        """The process of each thread that wants the CPU."""
        self.used_sec = sum(os.times()[2:4])
        """CPU time that the living processes have used, with that of children they waited for."""
        for pid in pids():
            try:
                state, threads, used_sec = _read_stat(f"/proc/{pid}/stat")
                self.used_sec += used_sec
                self.threads += max(1, threads)
                if threads > 1:
                    states = [_read_stat(f"/proc/{pid}/task/{t}/stat")[0] for t in _threads(pid)]
                    self.runnable += [pid] * states.count(b"R")
                elif state == b"R":
                    self.runnable.append(pid)
            except OSError:
                continue  # it has ended


class Share:
    """Where no control group weighs the boxes, puts one that crowds the CPU on a core of its own.

    By the machine's usual rules a box with a hundred busy processes, or sessions, gets the CPU a
    hundred times as often as one with one. All boxes that have many share the machine's last core,
    and everybody else has the others. (Stopping them by signals instead would be seen by shells.)
    """

    def __init__(self, cores: frozenset[int]) -> None:
        self._cores = cores
        self._looks = 0
        self.confined = False

    def look(self, survey: _Survey) -> None:
        """Twice a second: new processes have their parent's cores, or ask for others."""
        hog = len(survey.runnable) > _HOG_THREADS_PER_CORE * len(self._cores)
        self._looks = self._looks + 1 if hog else 0
        if self._looks >= _HOG_LOOKS:
            self.confined = True
            _run_on({max(self._cores)})
        elif self.confined and not hog:
            self.release()

    def release(self) -> None:
        """Lets it have all cores again."""
        if self.confined:
            _run_on(self._cores)
        self.confined, self._looks = False, 0


class Watch:
    """The box's totals, as they are and as they were."""

    def __init__(self, plan: dict[str, Any]) -> None:
        most: int = plan["processes"]
        # A bomb's processes come and go: at the limit is where next to none more would do.
        self._most_processes = most - min(_NEARLY, most // 8)
        self._most_memory: int = plan["watch_memory_bytes"]
        cores = frozenset(os.sched_getaffinity(0))
        self._n_cores = len(cores)
        self._share = Share(cores) if plan["watch_cpu"] and len(cores) > 1 else None
        self._ticks_at_limit = 0
        self._bombs = 0
        self._memory_kills = 0
        self._runnable = 0
        self._stalled = 0.0
        self._reserve = _reserve()
        self._last = time.monotonic()
        self._waited = _waited_for_cpu()
        self._used_sec, self._newest_pid = 0.0, 0
        self.due = self._last + _TICK_SECONDS
        """When to `act` next, by the monotonic clock."""

    def act(self) -> None:
        """Looks, if it is time to."""
        if (now := time.monotonic()) >= self.due:
            self._tick(now)
            wait = _BOMB_TICK_SECONDS if self._ticks_at_limit else _TICK_SECONDS
            self.due = time.monotonic() + wait

    def _tick(self, now: float) -> None:
        most = self._most_processes
        # To look at each of a bomb's processes takes longer than a box that starves has.
        survey = _Survey() if len(pids()) < most else None
        self._note_stall(now, survey)
        if survey is None or survey.threads >= most:
            self._ticks_at_limit += 1
            if self._ticks_at_limit >= _BOMB_TICKS:
                self._end_bomb()
            return
        self._ticks_at_limit = 0
        self._runnable = len(survey.runnable)
        if self._share is not None:
            self._share.look(survey)
        self._watch_memory()

    def _note_stall(self, now: float, survey: _Survey | None) -> None:
        # This process wants next to nothing and goes before all others of the box. What it waits
        # for the CPU it waits for others, unless the box itself is what the CPU is busy with.
        elapsed, self._last = now - self._last, now
        waited = _waited_for_cpu()
        delay, self._waited = waited - self._waited, waited
        own_doing = survey is None or self._is_busy(survey, elapsed)
        if not own_doing and delay > _LATE_SHARE * elapsed:
            self._stalled += min(delay, elapsed)

    def _is_busy(self, survey: _Survey, elapsed: float) -> bool:
        """Whether the box keeps the machine busy, and not only waits for it.

        In a box that others starve all processes want the CPU too; but they use next to none of
        it, and don't come and go (the time of one whose parent didn't wait for it is lost).
        """
        used, self._used_sec = survey.used_sec - self._used_sec, survey.used_sec
        newest = _newest_pid()
        born, self._newest_pid = newest - self._newest_pid, newest
        crowded = len(survey.runnable) > self._n_cores
        little = 0 <= used <= _BUSY_SHARE * elapsed and 0 <= born < _BUSY_BIRTHS
        return crowded and not little

    def _end_bomb(self) -> None:
        # All at once: whatever is left of a bomb is a bomb.
        signal(-1, SIGKILL)
        self._bombs += 1
        self._ticks_at_limit = 0
        if self._share is not None:
            self._share.release()

    def _watch_memory(self) -> None:
        """Backstop where no control group holds the box's memory."""
        limit = self._most_memory
        if not limit:
            return
        resident = {pid: _resident_bytes(pid) for pid in pids()}
        if sum(resident.values()) <= limit:
            return
        # Shared pages were counted once per process; look closer before killing anything.
        exact = {pid: _proportional_bytes(pid) for pid in resident}
        if sum(exact.values()) > limit:
            self._memory_kills += 1
            signal(max(exact, key=lambda pid: exact[pid]), SIGKILL)

    def make_room(self) -> None:
        """For the verifier: ends a bomb that goes on, and gives up the reserve of disk.

        Processes within the box's limits stay: a task may be to start a server.
        """
        if self._ticks_at_limit:
            self._end_bomb()
        for descriptor in self._reserve:
            os.close(descriptor)
        self._reserve = []

    @property
    def kills(self) -> int:
        """How often it has killed something."""
        return self._bombs + self._memory_kills

    def report(self) -> str:
        """Six numbers: bombs ended, ticks at the limit of processes until now, threads that want
        the CPU, processes killed for memory, whether there is no room on disk, and milliseconds in
        which others kept the box from the CPU."""
        counts = (self._bombs, self._ticks_at_limit, self._runnable, self._memory_kills)
        return " ".join(map(str, (*counts, int(not _room()), int(self._stalled * 1000))))


def _reserve() -> list[int]:
    """Files without names, whose inodes and bytes are the verifier's when the agent is through."""
    descriptors: list[int] = []
    try:
        flags = os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC
        descriptors.extend(os.open("/", flags, 0o600) for _ in range(_RESERVED_INODES))
        os.posix_fallocate(descriptors[0], 0, _RESERVED_BYTES)
    except OSError as error:
        if error.errno not in {errno.ENOSPC, errno.EOPNOTSUPP, errno.EMFILE, errno.EROFS}:
            raise
    return descriptors


def _room() -> bool:
    """Whether another file, and something in it, would find room on the box's disk."""
    status = os.statvfs("/")
    return bool(status.f_favail and status.f_bavail)


def _waited_for_cpu() -> float:
    """Seconds that this process was ready to run and did not; 0 where the kernel doesn't count."""
    try:
        with open("/proc/self/schedstat") as file:
            return int(file.read().split()[1]) / 1e9
    except (OSError, IndexError):
        return 0.0


def _run_on(cores: Collection[int]) -> None:
    """All threads of the box but process 1."""
    for pid in pids():
        try:
            for thread in _threads(pid):
                os.sched_setaffinity(int(thread), cores)
        except OSError:
            continue  # it has ended


def _read_stat(path: str) -> tuple[bytes, int, float]:
    """A process's (or thread's) state, its number of threads, and the seconds of CPU time that it
    and the children it waited for have used."""
    with open(path, "rb") as file:
        # Behind the name, which may hold anything.
        fields = file.read().rpartition(b")")[2].split()
    return fields[0], int(fields[17]), sum(map(int, fields[11:15])) / _TICKS_PER_SECOND


def _newest_pid() -> int:
    """The number of the box's newest process; 0 where the kernel doesn't say."""
    try:
        with open("/proc/loadavg") as file:
            return int(file.read().split()[4])
    except (OSError, IndexError, ValueError):
        return 0


def _threads(pid: int) -> list[str]:
    return os.listdir(f"/proc/{pid}/task")


def _resident_bytes(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/statm") as file:
            return int(file.read().split()[1]) * resource.getpagesize()
    except (OSError, IndexError):
        return 0


def _proportional_bytes(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/smaps_rollup") as file:
            line = next(line for line in file if line.startswith("Pss:"))
            return int(line.split()[1]) * 1024
    except (OSError, StopIteration):
        return 0
