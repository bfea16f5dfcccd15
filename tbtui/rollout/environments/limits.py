"""What a box may use, so that nothing it does hurts the host; and what it has used."""

from __future__ import annotations

import math
import os
import resource
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import msgspec

Positive = Annotated[int, msgspec.Meta(ge=1, description="a whole number of 1 or more")]
MIB = 1 << 20
DEFAULT_MEMORY_MB = 2048
DEFAULT_STORAGE_MB = 1024
DEFAULT_PROCESSES = 512
DEFAULT_CPU_SECONDS = 3600
DEFAULT_DOWNLOAD_MB = 256
OPEN_FILES = 4096
RESERVED_PROCESSES = 64
"""Kept for what the owner starts in the box, on top of `processes`."""
BYTES_PER_INODE = 4096
# Everything written in a box lies in memory: one box may take this part of the host's at most.
_LARGEST_SHARE_OF_RAM = 8

_MANY_RUNNABLE = 64
"""Threads of one box that want the CPU: no other command will get to run."""


@dataclass(frozen=True, slots=True)
class BoxLimits:
    """Limits of one box; all of its processes together unless said otherwise."""

    memory_bytes: int
    """Processes' memory. Held by a control group where one is writable, else by a limit on each
    process's private memory and a watch on the total."""
    storage_bytes: int
    """Everything the box writes anywhere, /tmp and /dev/shm included; one file 15/16 of it."""
    processes: int
    """Processes and threads."""
    cpu_seconds: int
    """CPU time of each process."""
    cpus: float | None
    """Cores it may use; None: all of the host's. Less than a whole one only where a control group
    is writable: elsewhere it is a whole one."""
    download_bytes: int
    """Most that one download may bring to the host's disk."""

    def rlimits(self, *, memory_cgroup: bool) -> list[tuple[int, int]]:
        """(resource, value) pairs for `setrlimit`."""
        limits = [
            (resource.RLIMIT_NPROC, self.processes + RESERVED_PROCESSES),
            (resource.RLIMIT_CPU, self.cpu_seconds),
            # One file can't fill it all: a flooded log leaves room for the verdict.
            (resource.RLIMIT_FSIZE, self.storage_bytes - self.storage_bytes // 16),
            (resource.RLIMIT_NOFILE, OPEN_FILES),
            # 1 and not 0: a host whose core_pattern is a pipe ignores 0 and would store the dump.
            (resource.RLIMIT_CORE, 1),
        ]
        if not memory_cgroup:
            # RLIMIT_DATA, not RLIMIT_AS: runtimes reserve address space they never touch.
            limits.append((resource.RLIMIT_DATA, self.memory_bytes))
        return limits

    def cpu_set(self, available: frozenset[int], box_number: int) -> list[int]:
        """Cores to run on, spread over the host's by the box's number; empty: no restriction."""
        if self.cpus is None or self.cpus >= len(available):
            return []
        cores = sorted(available)
        count = math.ceil(self.cpus)
        first = box_number * count
        return sorted({cores[(first + i) % len(cores)] for i in range(count)})


def total_memory_bytes() -> int:
    """The host's RAM."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def machine_memory_kills() -> int:
    """How many processes this machine's kernel has killed for want of memory; 0 where no kernel
    counts them."""
    try:
        counters = Path("/proc/vmstat").read_text().split()
    except FileNotFoundError:
        return 0
    return int(counters[counters.index("oom_kill") + 1])


def box_limits(
    *,
    memory_mb: int | None = None,
    storage_mb: int | None = None,
    cpus: float | None = None,
    processes: int = DEFAULT_PROCESSES,
    cpu_seconds: int = DEFAULT_CPU_SECONDS,
    download_mb: int = DEFAULT_DOWNLOAD_MB,
    host_memory_bytes: int | None = None,
) -> BoxLimits:
    """Limits from a task's wishes, with defaults, cut to what this host can bear."""
    ram = host_memory_bytes or total_memory_bytes()
    storage = (storage_mb or DEFAULT_STORAGE_MB) * MIB
    return BoxLimits(
        memory_bytes=min((memory_mb or DEFAULT_MEMORY_MB) * MIB, ram // 2),
        storage_bytes=min(storage, max(64 * MIB, ram // _LARGEST_SHARE_OF_RAM)),
        processes=processes,
        cpu_seconds=cpu_seconds,
        cpus=cpus,
        download_bytes=download_mb * MIB,
    )


@dataclass(frozen=True, slots=True)
class BoxReport:
    """What process 1 of a box has counted: what the box did to itself, and what others did to it.
    Nothing in the box can forge it."""

    bombs: int = 0
    """How often the box sat at its limit of processes, so that all were ended."""
    at_limit: bool = False
    """It sits there now."""
    runnable: int = 0
    """Threads that want the CPU."""
    memory_kills: int = 0
    """Processes ended because the box had used up its memory."""
    disk_full: bool = False
    """There is no room on its disk for another file, or for anything in it."""
    stalled_sec: float = 0.0
    """How long it was ready to run while others had the CPU, at times when the CPU was not busy
    with the box itself."""

    @staticmethod
    def read(text: str, memory_kills: int) -> BoxReport:
        """From the box's answer (`box_watch.Watch.report`) and the kernel's count of its group."""
        bombs, ticks, runnable, killed, full, stalled = (int(word) for word in text.split())
        return BoxReport(
            bombs=bombs,
            at_limit=ticks > 0,
            runnable=runnable,
            memory_kills=killed + memory_kills,
            disk_full=bool(full),
            stalled_sec=stalled / 1000,
        )

    @property
    def used_up(self) -> str:
        """What the box has used up just now, so that nothing more can run in it; "": nothing."""
        used = []
        if self.at_limit or self.bombs:
            used.append("as many processes as it may have")
        elif self.runnable > _MANY_RUNNABLE:
            used.append(f"its share of the CPU, with {self.runnable} busy processes")
        if self.disk_full:
            used.append("all of its disk, or as many files as it may have")
        return " and ".join(used)
