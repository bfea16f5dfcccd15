"""What process 1 of a box has counted, as its owner reads it."""

from __future__ import annotations

from dataclasses import dataclass

_MANY_RUNNABLE = 64
"""Threads of one box that want the CPU: no other command will get to run."""


@dataclass(frozen=True, slots=True)
class BoxReport:
    """What a box did to itself, and what others did to it. Nothing in the box can forge it."""

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
