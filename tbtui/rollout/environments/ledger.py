"""A record of every running box, so that the next start can end what a dead owner left.

A box ends by itself when its owner dies: its first process sees the control socket close. This is
for what remains possible all the same (that process stopped by a debugger, the socket inherited by
another program, a control group left behind).
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import socket
import stat
import tempfile
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tbtui.rollout.environments.cgroups import find_cgroups, remove_cgroups, remove_orphans
from tbtui.user_dirs import state_dir

_PARTIAL = ".partial"
_YOUNG_SECONDS = 60.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ProcessId:
    """A process, told from a later one with the same number by its start time."""

    pid: int
    started: int
    """Clock ticks after boot (field 22 of /proc/<pid>/stat)."""

    def alive(self) -> bool:
        """The very same process still runs (a zombie does not)."""
        return _started(self.pid) == self.started


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """One running box."""

    owner: ProcessId
    boot: str
    host: str
    pid_namespace: str
    processes: tuple[ProcessId, ...] = ()
    cgroups: tuple[str, ...] = field(default=())


@dataclass(frozen=True, slots=True)
class ReapReport:
    """What `reap_leftovers` found."""

    boxes: int
    processes_killed: int


def state_directory() -> Path:
    """This user's directory for the ledger; made with mode 0700.

    `$XDG_STATE_HOME/tbtui/boxes`, or one under the temporary directory when the home directory
    can't be written.

    Raises:
        OSError: nothing can be written anywhere, or the directory belongs to another user.
    """
    home = state_dir()
    fallback = Path(tempfile.gettempdir()) / f"tbtui-{os.geteuid()}"
    for base in (home, fallback):
        try:
            base.mkdir(mode=0o700, parents=True, exist_ok=True)
            directory = base / "boxes"
            directory.mkdir(mode=0o700, exist_ok=True)
        except OSError:
            continue
        if os.access(directory, os.W_OK):
            break
    else:
        raise OSError(f"no directory to write: tried {home} and {fallback}")
    info = directory.lstat()
    if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.geteuid():
        raise PermissionError(f"{directory} belongs to another user: remove it")
    return directory


class Ledger:
    """The directory of entries, one file for each box."""

    def __init__(self, directory: Path | None = None) -> None:
        self.directory = directory or state_directory()

    def record(self, box: str, pids: list[int], cgroups: list[Path]) -> None:
        """Writes or replaces the entry of the box named `box`, owned by this process."""
        processes = [ProcessId(pid, _started(pid) or 0) for pid in pids]
        entry = LedgerEntry(
            owner=ProcessId(os.getpid(), _started(os.getpid()) or 0),
            boot=_boot(),
            host=socket.gethostname(),
            pid_namespace=_pid_namespace(),
            processes=tuple(processes),
            cgroups=tuple(str(path) for path in cgroups),
        )
        partial = self.directory / f".{box}.{os.getpid()}{_PARTIAL}"
        partial.write_text(json.dumps(asdict(entry)))
        partial.replace(self.directory / f"{box}.json")

    def forget(self, box: str) -> None:
        """The box has ended and left nothing."""
        (self.directory / f"{box}.json").unlink(missing_ok=True)


def reap_leftovers(
    directory: Path | None = None, *, ended: Collection[int] = frozenset()
) -> ReapReport:
    """Ends the boxes whose owner is dead and removes what they left.

    Boxes of a live owner, of another host or of another container that shares the home directory
    are never touched. The containers that dead owners left in an engine go as well. Blocking;
    may be called anywhere, in a thread that runs an event loop too.

    Args:
        ended: Processes of ours that are known to have ended. What nobody wrote down is removed
            at once if theirs, else when it is a minute old: processes of another container that
            shares the directory, or the control groups, can't be seen.
    """
    from tbtui.rollout.environments.docker_leftovers import reap_containers  # imports this module

    if directory is None:
        reap_containers()
        directory = state_directory()

    def owner_is_dead(pid: int, age_sec: float) -> bool:
        return pid in ended or (age_sec > _YOUNG_SECONDS and _started(pid) is None)

    boxes = killed = 0
    for path, entry in abandoned(directory):
        for process in entry.processes:
            if entry.boot == _boot() and process.alive():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process.pid, signal.SIGKILL)
                    killed += 1
        if entry.boot == _boot():
            try:
                remove_cgroups([Path(group) for group in entry.cgroups])
            except OSError as error:  # what runs in there does not even react to being killed
                _log.warning("%s: left for a later start: %s", path.stem, error)
                continue
        path.unlink(missing_ok=True)
        boxes += 1
    _remove_partials(directory, owner_is_dead)
    remove_orphans(find_cgroups(), owner_is_dead)
    return ReapReport(boxes, killed)


def _remove_partials(directory: Path, owner_is_dead: Callable[[int, float], bool]) -> None:
    for path in directory.glob(f".*{_PARTIAL}"):
        owner = path.name.removesuffix(_PARTIAL).rpartition(".")[2]
        try:
            age = time.time() - path.stat().st_mtime
        except FileNotFoundError:
            continue
        if owner.isdigit() and owner_is_dead(int(owner), age):
            path.unlink(missing_ok=True)


def abandoned(directory: Path) -> Iterator[tuple[Path, LedgerEntry]]:
    """The entries of this host whose owner is dead, with their files."""
    for path in sorted(directory.glob("*.json")):
        entry = _read(path)
        if entry is None or entry.host != socket.gethostname():
            continue
        same_boot = entry.boot == _boot()
        if same_boot and (entry.pid_namespace != _pid_namespace() or entry.owner.alive()):
            continue
        yield path, entry


def _read(path: Path) -> LedgerEntry | None:
    try:
        raw: dict[str, Any] = json.loads(path.read_text())
        raw["owner"] = ProcessId(**raw["owner"])
        raw["processes"] = tuple(ProcessId(**process) for process in raw["processes"])
        raw["cgroups"] = tuple(raw["cgroups"])
        return LedgerEntry(**raw)
    except (OSError, ValueError, TypeError, KeyError):
        return None  # half-written by a process that was killed; nothing to act on


def _started(pid: int) -> int | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = text[text.rindex(")") + 2 :].split()
    return None if fields[0] in {"Z", "X"} else int(fields[19])


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _pid_namespace() -> str:
    return str(Path("/proc/self/ns/pid").readlink())
