"""Installs an agent once and keeps what that has written, for all boxes that want the agent.

The agent's own set-up runs in a box made for it, which alone may have the network; every file that
it leaves outside caches and temporary directories is copied to this user's cache, as a tree. A
trial's box gets that tree between the host's directories and its own layer (`BoxPlan.installed`):
nothing is copied, and nothing that one trial changes is seen by another.

A tree belongs to one agent, with its arguments, its version and its install command, on this host.

In containers it is the task's image that is made once with the agent in it (`KeepsAgents`).
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import hashlib
import inspect
import json
import logging
import os
import platform
import shutil
import socket
import tarfile
import tempfile
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from importlib.metadata import version
from pathlib import Path, PurePosixPath

from harbor.environments.base import BaseEnvironment, SandboxBuildFailedError
from harbor.models.task.config import EnvironmentConfig, NetworkMode, NetworkPolicy
from harbor.models.trial.paths import TrialPaths

from tbtui.paths import cache_dir
from tbtui.rollout.agents import agent_class
from tbtui.rollout.environments.base import KeepsAgents, SandboxStartError
from tbtui.rollout.environments.sandbox import SandboxEnvironment
from tbtui.rollout.messages import TrialSpec
from tbtui.terminal import one_line

_FAILED_SEC = 300.0
"""An install that has failed is not tried again so long: all trials of a batch want it at once."""
_MOST_BYTES = 4 << 30
_STORAGE_MB, _MEMORY_MB = 6_144, 4_096
_BEGAN = "/tmp/.began"
_LEFT_OUT = (
    *("/proc", "/sys", "/dev", "/tmp", "/var", "/run", "/logs", "/tests", "/solution", "/etc"),
    *("/app", "/.offline", "/mnt", "/srv", "/root/.cache", "/root/.npm", "/home/*/.cache"),
)
# By the time at which the inode changed: unpacked files have the times that they had when packed.
_LIST = (
    "find / /usr -xdev \\( "
    + " -o ".join(f"-path '{path}'" for path in _LEFT_OUT)
    + f" \\) -prune -o -cnewer {_BEGAN} \\( -type f -o -type l -o -type d \\) -print0"
)
_SEND = f"cd / && {_LIST} | tar --null --no-recursion -T - -cf - 2>/dev/null"

_log = logging.getLogger(__name__)


class InstallFailedError(RuntimeError):
    """The agent can't be installed in a task's image; the message says how its set-up failed."""


class InstallFailedEverywhereError(InstallFailedError):
    """The agent can't be installed in a box, whatever the task is."""


SetUp = Callable[[BaseEnvironment], Awaitable[None]]


class AgentLayers:
    """The trees of one process; other processes of this user's share their directory."""

    def __init__(self) -> None:
        self._failed: dict[str, tuple[float, str]] = {}
        self._locks: dict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def tree(self, spec: TrialSpec, set_up: SetUp) -> Path:
        """The tree with the agent's program, installed now if it is not there.

        Args:
            spec: of a trial in the sandbox, which names the agent.
            set_up: installs the agent in an environment.

        Raises:
            InstallFailedEverywhereError: and for some minutes every time it is asked for again.
        """
        name = agent_key(spec)
        tree = cache_dir() / "agents" / name / "tree"
        async with self._tried(spec, name, InstallFailedEverywhereError):
            if tree.is_dir():
                return tree
            tree.parent.mkdir(parents=True, exist_ok=True)
            lock = await asyncio.to_thread(_locked, tree.parent / "lock")
            try:
                if not tree.is_dir():  # another worker's doing
                    await _install(spec, set_up, tree)
            finally:
                os.close(lock)
        return tree

    async def image(self, spec: TrialSpec, environment: KeepsAgents, set_up: SetUp) -> None:
        """Have the image made that a trial's environment will be started from.

        Raises:
            InstallFailedError: and for some minutes every time it is asked for again.
        """
        async with self._tried(spec, f"{agent_key(spec)} {spec.task_dir}"):
            await environment.install_agent(set_up, network=spec.agent_setup_network)

    @contextlib.asynccontextmanager
    async def _tried(
        self, spec: TrialSpec, name: str, failure: type[InstallFailedError] = InstallFailedError
    ) -> AsyncIterator[None]:
        """One try at a time, and none soon after one that has failed."""
        async with self._locks[name]:
            if (known := self._failed.get(name)) and time.monotonic() - known[0] < _FAILED_SEC:
                raise failure(known[1])
            try:
                yield
            except (SandboxBuildFailedError, SandboxStartError):
                raise  # nothing of the agent's
            except (RuntimeError, OSError, TimeoutError, ValueError) as error:
                hint = _ANOTHER_WAY if spec.agent_setup_network else _NO_NETWORK
                message = f"{spec.agent} can't be installed: {one_line(str(error))}; {hint}"
                self._failed[name] = time.monotonic(), message
                raise failure(message) from error


_ANOTHER_WAY = "agent_install=COMMAND installs it in another way"
_NO_NETWORK = "its set-up had no network, which agent_setup_network=true gives it"


def agent_key(spec: TrialSpec) -> str:
    """A name that changes with all that an installed agent depends on."""
    source = Path(inspect.getfile(agent_class(spec.agent))).read_bytes()
    what = {
        "agent": spec.agent,
        "kwargs": spec.agent_kwargs,
        "install": spec.agent_install,
        "network": spec.agent_setup_network,
        "harbor": version("harbor"),
        "class": hashlib.sha256(source).hexdigest(),
        "host": [_system_version(), platform.machine()],
        "uid": os.geteuid(),
    }
    digest = hashlib.sha256(json.dumps(what, sort_keys=True, default=str).encode()).hexdigest()
    safe = "".join(c if c.isalnum() or c in "-_." else "-" for c in spec.agent)
    return f"{safe}-{digest[:16]}"


def _system_version() -> str:
    try:
        return platform.freedesktop_os_release().get("VERSION_ID", "")
    except OSError:  # a Mac has no such file
        return platform.release()


def _locked(path: Path) -> int:
    """Waits for the file's lock, which goes with the descriptor."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    return descriptor


async def _install(spec: TrialSpec, set_up: SetUp, tree: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="tbtui-agent-") as folder:
        place = Path(folder)
        (place / "environment").mkdir()
        (place / "environment" / "Dockerfile").write_text("FROM scratch\nWORKDIR /app\n")
        mode = NetworkMode.PUBLIC if spec.agent_setup_network else NetworkMode.NO_NETWORK
        paths = TrialPaths(place / "trial")
        paths.agent_dir.mkdir(parents=True)
        environment = SandboxEnvironment(
            environment_dir=place / "environment",
            environment_name="agent",
            session_id=f"install-{spec.agent}"[:40],
            trial_paths=paths,
            task_env_config=EnvironmentConfig(
                network_mode=mode, storage_mb=_STORAGE_MB, memory_mb=_MEMORY_MB
            ),
            network_policy=NetworkPolicy(network_mode=mode),
        )
        _log.info("installing %s for all boxes that want it", spec.agent)
        began = time.monotonic()
        await environment.start(force_build=False)
        try:
            # Past the granularity of the file system's clock.
            await environment.exec(f"sleep 0.05; touch {_BEGAN}; sleep 0.05", user="root")
            await set_up(environment)
            part = tree.with_name("part")
            await asyncio.to_thread(shutil.rmtree, part, True)
            end = await environment.open_program(["/bin/bash", "-c", _SEND], user="root")
            end.setblocking(True)
            with end:
                await asyncio.to_thread(_unpack, end, part)
        finally:
            await environment.stop(delete=True)
        part.replace(tree)
        _log.info("%s installed in %.0f s", spec.agent, time.monotonic() - began)


def _unpack(source: socket.socket, target: Path) -> None:
    """Writes a tar stream below `target`.

    It comes out of a box: only regular files, directories and links are taken, nothing outside
    `target` is written, and no link is there before everything else is.
    """
    target.mkdir(parents=True)
    links: list[tuple[Path, str]] = []
    size = 0
    with source.makefile("rb") as stream, tarfile.open(fileobj=stream, mode="r|") as archive:
        for member in archive:
            name = PurePosixPath("/", member.name)
            if ".." in name.parts:
                raise ValueError(f"a path that leads out: {member.name}")
            path = target.joinpath(*name.parts[1:])
            path.parent.mkdir(parents=True, exist_ok=True)
            if member.isdir():
                path.mkdir(exist_ok=True)
            elif member.issym():
                links.append((path, member.linkname))
            elif member.islnk():
                other = PurePosixPath("/", member.linkname)
                if ".." in other.parts:
                    raise ValueError(f"a link that leads out: {member.linkname}")
                path.hardlink_to(target.joinpath(*other.parts[1:]))
            elif member.isfile():
                size += member.size
                if size > _MOST_BYTES:
                    raise ValueError(f"more than {_MOST_BYTES >> 30} GiB")
                content = archive.extractfile(member)
                assert content is not None
                with path.open("wb") as file:
                    shutil.copyfileobj(content, file)
                path.chmod(0o755 if member.mode & 0o111 else 0o644)
    for path, place in links:
        if not path.is_symlink() and not path.exists():
            path.symlink_to(place)
