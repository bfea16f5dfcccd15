"""Control groups for a box's totals, where this process may make them (v2, or v1).

As root nearly always; an unprivileged user where the session manager has delegated a subtree.
Without one the box's own limits (`limits`, `box_server`) stand in, and its sessions are weighed: a
kernel with `CONFIG_SCHED_AUTOGROUP` gives each session (`setsid`) the same share of the CPU, and
takes no account of the niceness of processes between sessions: a box with sixty busy sessions gets
the CPU sixty times as often as one with one. A session's own niceness (`/proc/PID/autogroup`,
sched(7)) is lowered so far that the busy ones of a box weigh as much as one, and is set back when
they are not many any more. On other kernels a crowd is confined to one core (`box_watch.Share`).
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import math
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import psutil

from tbtui.rollout.environments.limits import DEFAULT_PROCESSES, RESERVED_PROCESSES, BoxLimits

CgroupKind = Literal["v2", "v1", "none"]
_CONTROLLERS: tuple[str, ...] = ("memory", "pids", "cpu")
_REMOVE_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class CgroupHost:
    """Where groups can be made: the parent directory for each controller."""

    kind: CgroupKind
    parents: dict[str, Path]


@dataclass(frozen=True, slots=True)
class BoxCgroup:
    """The groups made for one box."""

    held: frozenset[str]
    """The totals that the kernel now holds: "memory", "pids", "cpu"."""
    directories: tuple[Path, ...]

    def add(self, pid: int) -> None:
        """Moves a process, and with it everything it will start, into the box's groups."""
        for directory in self.directories:
            (directory / "cgroup.procs").write_text(str(pid))

    def memory_kills(self) -> int:
        """Processes that the kernel ended because the box had used up its memory."""
        words: list[str] = []
        for directory in self.directories:
            words += _words(directory / "memory.events") or _words(directory / "memory.oom_control")
        counts = [int(n) for name, n in itertools.pairwise(words) if name == "oom_kill"]
        return sum(counts)

    def remove(self) -> None:
        """Ends what may still run in the groups and removes them."""
        remove_cgroups(list(self.directories))


def find_cgroups(
    root: Path = Path("/sys/fs/cgroup"), membership: Path = Path("/proc/self/cgroup")
) -> CgroupHost:
    """The groups this process may make children in; kind "none" when there are none."""
    try:
        lines = [line.split(":", 2) for line in membership.read_text().splitlines()]
    except OSError:
        return CgroupHost("none", {})
    own = {controller: path for _, names, path in lines for controller in names.split(",")}
    if (root / "cgroup.controllers").exists():
        here = root / own.get("", "/").lstrip("/")
        # A group with processes in it can't hand controllers to children, so a sibling it is.
        for parent in (here.parent if here != root else here, root):
            enabled = _words(parent / "cgroup.subtree_control")
            names = [name for name in _CONTROLLERS if name in enabled]
            if names and os.access(parent, os.W_OK) and os.access(parent / "cgroup.procs", os.W_OK):
                return CgroupHost("v2", dict.fromkeys(names, parent))
        return CgroupHost("none", {})
    parents: dict[str, Path] = {}
    for name in _CONTROLLERS:
        directory = root / name / own.get(name, "/").lstrip("/")
        if name in own and os.access(directory, os.W_OK):
            parents[name] = directory
    return CgroupHost("v1" if parents else "none", parents)


def default_processes() -> int:
    """Default limit of a box's processes: fewer where no group confines them."""
    confined = {"pids", "cpu"} <= find_cgroups().parents.keys()
    return DEFAULT_PROCESSES if confined else DEFAULT_PROCESSES // 2


def make_box_cgroup(host: CgroupHost, box: str, limits: BoxLimits) -> BoxCgroup:
    """Makes groups with the box's limits; what the kernel refuses is left out of `held`.

    The group of the CPU weighs what any group weighs that asks for nothing: a box gets the same
    share however many processes it has. Less would make honest trials late on a busy machine.
    """
    held: set[str] = set()
    directories: list[Path] = []
    for controller, parent in host.parents.items():
        directory = parent / f"tbtui-{box}"
        try:
            directory.mkdir(exist_ok=True)
            if directory not in directories:
                directories.append(directory)
            for name, value in _settings(host.kind, controller, limits):
                (directory / name).write_text(value)
        except OSError:
            continue
        held.add(controller)
    return BoxCgroup(frozenset(held), tuple(directories))


def remove_cgroups(directories: list[Path]) -> None:
    """Removes groups, ending processes still in them; one that is gone already is fine."""
    deadline = time.monotonic() + _REMOVE_SECONDS
    for directory in directories:
        while True:
            try:
                directory.rmdir()
                break
            except FileNotFoundError:
                break
            except OSError as error:
                if error.errno != errno.EBUSY or time.monotonic() > deadline:
                    raise
            for pid in _words(directory / "cgroup.procs"):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
            time.sleep(0.005)


def remove_orphans(host: CgroupHost, owner_is_dead: Callable[[int, float], bool]) -> int:
    """Removes groups beside ours whose owner, named in the group's name, is dead.

    For groups whose ledger entry is lost.

    Args:
        owner_is_dead: Asked with the owner's process number and the group's age in seconds.
    """
    removed = 0
    for parent in set(host.parents.values()):
        for group in parent.glob("tbtui-*-*"):
            owner = group.name.split("-")[-2]
            try:
                age = time.time() - group.stat().st_mtime
                if owner.isdigit() and owner_is_dead(int(owner), age):
                    remove_cgroups([group])
                    removed += 1
            except OSError:
                continue  # in use, or gone
    return removed


def _settings(kind: CgroupKind, controller: str, limits: BoxLimits) -> list[tuple[str, str]]:
    # What the box writes to its tmpfs is charged to its memory group as well.
    memory = str(limits.memory_bytes + limits.storage_bytes)
    v2 = kind == "v2"
    match controller:
        case "memory":
            return [("memory.max" if v2 else "memory.limit_in_bytes", memory)]
        case "pids":
            return [("pids.max", str(limits.processes + RESERVED_PROCESSES))]
        case _:
            return _cpu_quota(v2, limits.cpus)


def _cpu_quota(v2: bool, cpus: float | None) -> list[tuple[str, str]]:
    if cpus is None:
        return []
    period = 100_000
    quota = str(round(cpus * period))
    if v2:
        return [("cpu.max", f"{quota} {period}")]
    return [("cpu.cfs_period_us", str(period)), ("cpu.cfs_quota_us", quota)]


def _words(path: Path) -> list[str]:
    try:
        return path.read_text().split()
    except OSError:
        return []


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
