"""Records of what runs in the name of one process: boxes, and engines' compose projects.

`leftovers.py` reads them at the next start and ends what a dead owner left.
"""

from __future__ import annotations

import os
import socket
import stat
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from tbtui.paths import replace_file, state_dir


class ProcessId(msgspec.Struct, frozen=True):
    """A process; its start time distinguishes it from a later one with the same number."""

    pid: int
    started: int
    """Clock ticks after boot (field 22 of /proc/<pid>/stat); elsewhere microseconds since 1970."""

    def alive(self) -> bool:
        """Whether the very same process still runs (a zombie does not)."""
        return started(self.pid) == self.started


class LedgerEntry(msgspec.Struct, frozen=True):
    """One running box."""

    owner: ProcessId
    boot: str
    host: str
    pid_namespace: str
    processes: tuple[ProcessId, ...] = ()
    cgroups: tuple[str, ...] = ()
    directories: tuple[str, ...] = ()
    """Snapshots of its trials."""


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

    def record(
        self,
        box: str,
        pids: list[int],
        cgroups: list[Path],
        *,
        directories: Sequence[Path] = (),
    ) -> None:
        """Writes or replaces the entry of the box named `box`, owned by this process.

        Raises:
            OSError: it can't be written; names the entry's file.
        """
        processes = [ProcessId(pid, started(pid) or 0) for pid in pids]
        entry = LedgerEntry(
            owner=ProcessId(os.getpid(), started(os.getpid()) or 0),
            boot=boot_id(),
            host=socket.gethostname(),
            pid_namespace=_pid_namespace(),
            processes=tuple(processes),
            cgroups=tuple(str(path) for path in cgroups),
            directories=tuple(str(path) for path in directories),
        )
        replace_file(self._file(box), msgspec.json.encode(entry))

    def forget(self, box: str) -> None:
        """Remove the entry of a box that has ended and left nothing."""
        self._file(box).unlink(missing_ok=True)

    def _file(self, box: str) -> Path:
        return self.directory / f"{box}.json"


def abandoned(directory: Path) -> Iterator[tuple[Path, LedgerEntry]]:
    """The entries of this host whose owner is dead, with their files."""
    for path in sorted(directory.glob("*.json")):
        entry = _read(path)
        if entry is None or entry.host != socket.gethostname():
            continue
        same_boot = entry.boot == boot_id()
        if same_boot and (entry.pid_namespace != _pid_namespace() or entry.owner.alive()):
            continue
        yield path, entry


def _read(path: Path) -> LedgerEntry | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=LedgerEntry)
    except (OSError, msgspec.DecodeError):
        return None  # half-written by a process that was killed; nothing to act on


def started(pid: int) -> int | None:
    """When the process started, as `ProcessId` has it; None: it does not run."""
    if sys.platform != "linux":
        return _started_elsewhere(pid)
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = text[text.rindex(")") + 2 :].split()
    return None if fields[0] in {"Z", "X"} else int(fields[19])


def _started_elsewhere(pid: int) -> int | None:
    import psutil  # slow to import, and not needed on Linux

    try:
        process = psutil.Process(pid)
        dead = process.status() in {psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD}
        return None if dead else int(process.create_time() * 1_000_000)
    except psutil.NoSuchProcess:
        return None


def boot_id() -> str:
    """Identifies this boot of the machine, where start times of processes begin anew with it."""
    if sys.platform != "linux":
        return ""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _pid_namespace() -> str:
    if sys.platform != "linux":
        return ""  # there is one
    return str(Path("/proc/self/ns/pid").readlink())
