"""Ends what a dead owner left: boxes, control groups, compose projects of container engines, each
of which is written down before anything of it exists.

A box ends by itself when its owner dies: its first process sees the control socket close. This is
for what remains possible all the same (that process stopped by a debugger, the socket inherited by
another program, a control group left behind), for containers, which outlive their owner, and for
snapshots that a run has not removed.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import hashlib
import logging
import os
import shutil
import signal
import time
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tbtui.rollout.environments.base import SandboxError
from tbtui.rollout.environments.cgroups import find_cgroups, remove_cgroups, remove_orphans
from tbtui.rollout.environments.docker_cli import run_cli
from tbtui.rollout.environments.ledger import (
    Ledger,
    abandoned,
    boot_id,
    started,
    state_directory,
)
from tbtui.rollout.environments.snapshots import STATE_IMAGES, remove_images

_log = logging.getLogger(__name__)

TASK_IMAGES = "tbtui-task"
AGENT_IMAGES = "tbtui-agent"
"""A task's image with an agent's program in it."""
"""The repository of the images built of tasks; they stay, for the next trial."""
_LOCK_POLL_SEC = 0.1
_REMOVE_SEC = 60.0


def projects_directory() -> Path:
    """Where the projects of this user are written down; made with mode 0700.

    Raises:
        OSError: as `state_directory`.
    """
    directory = state_directory().parent / "compose"
    directory.mkdir(mode=0o700, exist_ok=True)
    return directory


def project_prefix() -> str:
    """Prefix of the names of the projects that are written down in this user's directory."""
    return f"tbtui-{hashlib.sha256(os.fsencode(projects_directory())).hexdigest()[:6]}-"


class ComposeProject:
    """One compose project: its record, its directory for generated files, its removal."""

    def __init__(self, engine: Sequence[str], name: str) -> None:
        self.engine = tuple(engine)
        self.name = name
        base = projects_directory()
        self._ledger = Ledger(base)
        self._record = f"{self.engine[0]}.{name}"
        self.directory = base / f"{name}.files"

    def open(self) -> None:
        """Writes the project down."""
        self._ledger.record(self._record, [], [])
        self.directory.mkdir(mode=0o700, exist_ok=True)

    def keep(self) -> None:
        """Keep the project for a person: forget its record."""
        self._ledger.forget(self._record)

    async def remove(self, *, images: bool = True) -> None:
        """Removes containers, networks, volumes and, if asked, images, then the record.

        Raises:
            SandboxError: the engine did not do it; the record stays for a later start.
        """
        await remove_project(self.engine, self.name, images=images)
        shutil.rmtree(self.directory, ignore_errors=True)
        self._ledger.forget(self._record)


async def remove_project(engine: Sequence[str], project: str, *, images: bool = True) -> int:
    """Kills and removes everything the engine has under that project's name.

    Args:
        images: The images built for it too, but not the one of the task itself.

    Returns:
        Number of things removed.

    Raises:
        SandboxError: something could not be listed or removed.
    """
    label = f"label=com.docker.compose.project={project}"
    removed = 0
    for listing, removal in (
        (["ps", "--all"], ["rm", "--force", "--volumes"]),
        (["network", "ls"], ["network", "rm"]),
        (["volume", "ls"], ["volume", "rm", "--force"]),
    ):
        argv = [*engine, *listing, "--quiet", "--filter", label]
        names = (await _run(argv)).split()
        if names:
            await _run([*engine, *removal, *names])
            removed += len(names)
    if images:
        form = "{{.Repository}}:{{.Tag}}"
        argv = [*engine, "image", "ls", "--format", form, "--filter", label]
        # One that lost its name to a later build goes with `docker image prune`.
        others = (f"{TASK_IMAGES}:", f"{AGENT_IMAGES}:", f"{STATE_IMAGES}:", "<none>:")
        names = [name for name in (await _run(argv)).split() if not name.startswith(others)]
        if names:
            await _run([*engine, "image", "rm", *names])
            removed += len(names)
    return removed


async def _run(argv: Sequence[str]) -> str:
    result = await run_cli(argv, timeout_sec=_REMOVE_SEC)
    if result.exit_code != 0:
        raise SandboxError(f"{' '.join(argv[:3])}: {result.complaint}")
    return result.stdout


async def reap_projects(directory: Path | None = None) -> int:
    """Removes what dead owners left in the engines. Starts no client when nothing is written down.

    A project whose engine does not answer stays written down.

    Returns:
        Number of projects removed.
    """
    base = directory or projects_directory()
    reaped = 0
    for path, _ in abandoned(base):
        engine, _, name = path.stem.partition(".")
        try:
            await remove_project([engine], name)
        except SandboxError as error:
            _log.warning("%s not removed from %s: %s", name, engine, error)
            continue
        shutil.rmtree(base / f"{name}.files", ignore_errors=True)
        path.unlink(missing_ok=True)
        reaped += 1
    return reaped


def reap_containers() -> int:
    """`reap_projects`, waited for; an event loop that runs in this thread stands still."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(lambda: asyncio.run(reap_projects())).result()


@contextlib.asynccontextmanager
async def machine_wide_lock(name: str) -> AsyncIterator[None]:
    """One holder at a time among all processes of this user; freed when its process dies."""
    path = projects_directory() / f"{name}.lock"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                await asyncio.sleep(_LOCK_POLL_SEC)
        yield
    finally:
        os.close(descriptor)


_YOUNG_SECONDS = 60.0


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
        if entry.directories and not _removed_images(entry.directories):
            continue
        for directory_left in entry.directories:
            shutil.rmtree(directory_left, ignore_errors=True)
        path.unlink(missing_ok=True)
        boxes += not entry.directories
    _remove_partials(directory, owner_is_dead)
    remove_orphans(find_cgroups(), owner_is_dead)
    return ReapReport(boxes, killed)


def _removed_images(directories: Collection[str]) -> bool:
    """Remove the images of states; False: an engine did not, and a later start tries again."""

    async def remove() -> None:
        for directory in directories:
            await remove_images(Path(directory))

    try:
        with ThreadPoolExecutor(1) as pool:
            pool.submit(lambda: asyncio.run(remove())).result()
    except SandboxError as error:
        _log.warning("states of containers: left for a later start: %s", error)
        return False
    return True


def _remove_partials(directory: Path, owner_is_dead: Callable[[int, float], bool]) -> None:
    for path in directory.glob(".*.json.*"):  # as `replace_file` names them
        owner = path.suffix[1:]
        try:
            age = time.time() - path.stat().st_mtime
        except FileNotFoundError:
            continue
        if owner.isdigit() and owner_is_dead(int(owner), age):
            path.unlink(missing_ok=True)
