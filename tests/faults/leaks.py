"""What trials may leave behind: processes, mounts, files, control groups, descriptors."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from tbtui.rollout.environments.cgroups import find_cgroups

_ENDING_SEC = 10


@dataclass
class LeakWatch:
    """Looks before and after. `folder` must hold the run and be its TMPDIR and XDG_STATE_HOME."""

    folder: Path
    mounts: set[str] = field(init=False)
    descriptors: int = field(init=False)

    def __post_init__(self) -> None:
        self.mounts = _mounts()
        self.descriptors = open_descriptors(os.getpid())

    def found(self, worker_pids: Iterable[int]) -> dict[str, list[str]]:
        """What is left now, after the pool has stopped; an empty list is what is wanted."""
        # A killed process takes a moment to end on a loaded machine.
        until = time.monotonic() + _ENDING_SEC
        while self._processes() and time.monotonic() < until:
            time.sleep(0.05)
        mounts = _mounts()
        descriptors = open_descriptors(os.getpid())
        grown = descriptors - self.descriptors
        return {
            "processes": [f"{p.pid} {' '.join(p.cmdline())[:80]}" for p in self._processes()],
            "mounts": sorted(mounts - self.mounts),
            "files": [str(path.relative_to(self.folder)) for path in self._files()],
            "control groups": [str(path) for path in _groups(worker_pids)],
            "descriptors": [f"{grown} more than before"] if grown > 0 else [],
        }

    def _processes(self) -> list[psutil.Process]:
        suspects = psutil.Process().children(recursive=True)
        noted = self.folder / "boxes.txt"
        for pid in noted.read_text().split() if noted.exists() else ():
            try:
                process = psutil.Process(int(pid))
                if "box_init" in " ".join(process.cmdline()):
                    suspects.append(process)
            except psutil.NoSuchProcess:
                continue
        return [p for p in suspects if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]

    def _files(self) -> list[Path]:
        """Temporary files, entries in the ledger of boxes, unfinished files among the trials."""
        left = [*(self.folder / "tmp").iterdir(), *self.folder.glob("state/tbtui/boxes/*")]
        left += self.folder.glob("run/trials/**/.*")
        left += self.folder.glob("run/trials/**/*.tmp")
        return left


def _mounts() -> set[str]:
    # A container engine on the same host mounts and unmounts for others meanwhile.
    lines = Path("/proc/self/mounts").read_text().splitlines()
    return {line for line in lines if "docker" not in line}


def open_descriptors(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))  # noqa: PTH208


def _groups(worker_pids: Iterable[int]) -> list[Path]:
    # A box's group is named after its trial, its worker's process and a random number.
    owners = [f"-{pid}-" for pid in worker_pids]
    parents = set(find_cgroups().parents.values())
    return [
        path
        for parent in parents
        for path in parent.iterdir()
        if path.is_dir() and any(owner in path.name for owner in owners)
    ]
