"""Ends what a dead owner left: boxes, control groups, compose projects of container engines.

A box ends by itself when its owner dies: its first process sees the control socket close. This is
for what remains possible all the same (that process stopped by a debugger, the socket inherited by
another program, a control group left behind) and for containers, which outlive their owner.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

from tbtui.rollout.environments.cgroups import find_cgroups, remove_cgroups, remove_orphans
from tbtui.rollout.environments.docker_projects import reap_containers
from tbtui.rollout.environments.ledger import (
    PARTIAL,
    abandoned,
    boot_id,
    started,
    state_directory,
)

_YOUNG_SECONDS = 60.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ReapReport:
    """What `reap_leftovers` found."""

    boxes: int
    processes_killed: int


def reap_leftovers(
    directory: Path | None = None, *, ended: Collection[int] = frozenset()
) -> ReapReport:
    """End the boxes whose owner is dead and remove what they left.

    Boxes of a live owner, of another host or of another container that shares the home directory
    are never touched. The containers that dead owners left in an engine go as well. Blocking;
    may be called anywhere, in a thread that runs an event loop too.

    Args:
        ended: Processes of ours that are known to have ended. What was never written down is
            removed at once if theirs, else when it is a minute old: processes of another container
            that shares the directory, or the control groups, can't be seen.
    """
    if directory is None:
        reap_containers()
        directory = state_directory()

    def owner_is_dead(pid: int, age_sec: float) -> bool:
        return pid in ended or (age_sec > _YOUNG_SECONDS and started(pid) is None)

    boxes = killed = 0
    for path, entry in abandoned(directory):
        for process in entry.processes:
            if entry.boot == boot_id() and process.alive():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process.pid, signal.SIGKILL)
                    killed += 1
        if entry.boot == boot_id():
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
    for path in directory.glob(f".*{PARTIAL}"):
        owner = path.name.removesuffix(PARTIAL).rpartition(".")[2]
        try:
            age = time.time() - path.stat().st_mtime
        except FileNotFoundError:
            continue
        if owner.isdigit() and owner_is_dead(int(owner), age):
            path.unlink(missing_ok=True)
