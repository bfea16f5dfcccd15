"""A trial's containers while they run: commands, networks, pauses, disk, and their end."""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import socket
import sys
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from harbor.environments.docker.runtime import ContainerRuntime

from tbtui.rollout.environments.base import ExecTimeoutError, SandboxError, SandboxLostError
from tbtui.rollout.environments.docker_cli import (
    CliResult,
    OnChunk,
    affects_clients,
    beside_clients_own,
    run_cli,
)
from tbtui.rollout.environments.docker_compose import MAIN
from tbtui.rollout.environments.docker_end import EndWatch
from tbtui.rollout.environments.docker_files import Source
from tbtui.rollout.environments.leftovers import ComposeProject

_CHECKS, _LATE_CHECKS, _CHECK_SEC = 3, 50, 0.1
# Why a container that is alive may refuse to run `true`. One that is about to end refuses in as
# many words as there are moments to be caught at.
_ALIVE_ALL_THE_SAME = re.compile(r"executable file .*not found|is paused", re.IGNORECASE)
_MARK = "TBTUI_EXEC"
# What a client says when the engine, not the command, failed; the command may say the same, so the
# engine is asked.
_SUSPECT = re.compile(
    r"Error response from daemon|Cannot connect to the Docker daemon|error during connect|"
    r"OCI runtime exec failed|no such container|no container with name|is not running|"
    r"upgrade to tcp",
    re.IGNORECASE,
)
# Never started, which is said on either stream, and killed: so ends what is caught by its
# container's end.
_NOT_STARTED, _KILLED = 126, 137
_NO_DIRECTORY = re.compile(r"OCI runtime exec failed.*\b(?:chdir to )?cwd\b")
_BACKLOG = 128
_LOOK_SEC = 1.0
_REMOTE_SEC = 30.0
_NOTICED_BYTES = 256 << 20
_END_ROUNDS = 5
_SIZES = '{{.SizeRw}}{{range .Mounts}}{{if eq .Type "volume"}} {{.Name}}{{end}}{{end}}'
_ANONYMOUS = re.compile(r"[0-9a-f]{64}")
_VOLUME_ROW = 3  # its name, how many use it, its size
_PRINTED = re.compile(r"([\d.]+)([kKMGTP]?)B")
_PROCESSES = """\
for process in /proc/[0-9]*; do [ "${process#/proc/}" = $$ ] || echo "${process#/proc/}"; done
"""
_END_OTHERS = """\
for process in /proc/[0-9]*; do
    process=${process#/proc/}
    case " $$ $* " in *" $process "*) ;; *) kill -9 "$process" ;; esac
done 2>/dev/null; :
"""
_END_MARKED = """\
for process in /proc/[0-9]*; do
    grep -qs "$1" "$process/environ" && kill -9 "${process#/proc/}"
done 2>/dev/null; :
"""


@dataclass(slots=True)
class RunningProject:
    """The containers of one trial."""

    runtime: ContainerRuntime
    record: ComposeProject
    files: tuple[Path, ...]
    directory: Path
    variables: Mapping[str, str]
    images: bool
    """The task's other services may have had images built."""
    container: str = ""
    """The id of the one that the agent works in."""
    notes: tuple[str, ...] = ()
    """What the task asks for and did not get, or got without asking; one line each."""
    lost: str | None = field(default=None, init=False)
    """Why we ended it ourselves."""
    _end: EndWatch | None = field(default=None, init=False)
    _watching: list[asyncio.Task[None]] = field(default_factory=list, init=False)
    _spared: tuple[str, ...] = field(default=(), init=False)
    _spared_on_host: frozenset[int] = field(default=frozenset(), init=False)
    """What runs in the container before the agent does, by the container's numbers and by the
    engine's."""

    @property
    def engine(self) -> tuple[str, ...]:
        return self.runtime.engine

    @property
    def name(self) -> str:
        return self.record.name

    async def compose(
        self,
        command: Sequence[str],
        *,
        stdin: bytes | None = None,
        timeout_sec: float | None = None,
        on_chunk: OnChunk | None = None,
        resolving: bool = False,
    ) -> CliResult:
        """Runs the compose client on the project.

        Args:
            resolving: Variables are put into the files, those of the task's `.env` too.
        """
        argv = [*self.runtime.compose, "--project-name", self.name]
        if not resolving:
            # Compose makes all of `.env` its own environment, and that of the programs it starts:
            # credential helpers, builders.
            argv += ["--env-file", os.devnull]
        if self.runtime.supports_compose_project_directory:
            argv += ["--project-directory", str(self.directory)]
        for path in self.files:
            argv += ["-f", str(path)]
        argv += command
        return await run_cli(
            argv,
            env=beside_clients_own(self.variables, resolving=resolving),
            cwd=str(self.directory) if self.directory.is_dir() else None,
            stdin=stdin,
            timeout_sec=timeout_sec,
            on_chunk=on_chunk,
        )

    async def commit(self, image: str) -> None:
        """Keep the container's files as an image; it stands still meanwhile. Raises
        `SandboxError`."""
        pause = ["--pause=true"] if self.engine[0] == "podman" else []  # as Docker does anyway
        result = await run_cli([*self.engine, "commit", *pause, self.container, image])
        if result.exit_code != 0:
            await self.check()
            raise SandboxError(f"the container can't be kept as an image: {result.complaint}")

    async def shell(self, script: str, *args: str, stdin: bytes | None = None) -> CliResult:
        """Runs a script of ours as the container's root, by the container's own shell."""
        reads = ["-i"] if stdin is not None else []
        argv = [*self.engine, "exec", *reads, "-u", "0", self.container]
        return await run_cli([*argv, "sh", "-c", script, "sh", *args], stdin=stdin)

    async def run(
        self,
        command: str,
        *,
        cwd: str | None,
        may_be_gone: bool,
        user: str | int | None,
        variables: Mapping[str, str],
        timeout_sec: float | None,
        on_chunk: OnChunk | None,
    ) -> CliResult:
        """Runs a command of the trial's to its end. With `may_be_gone` it runs in `/` where there
        is no directory `cwd`.

        Raises:
            ExecTimeoutError: it took longer than `timeout_sec`; it was killed.
            SandboxLostError: the container or its engine is gone.
        """
        mark = secrets.token_hex(8)
        given = dict(variables)
        if timeout_sec is not None:
            given[_MARK] = mark  # to find what it started when it has to be ended
        argv = ["-u", str(user)] if user is not None else []
        for name, value in given.items():
            # By name where possible: every user of the host can read a command line.
            argv += ["-e", f"{name}={value}" if affects_clients(name) else name]

        async def run(directory: str | None) -> CliResult:
            where = ["-w", directory] if directory else []
            return await run_cli(
                [*self.engine, "exec", *where, *argv, self.container, "bash", "-c", command],
                env=beside_clients_own(given),
                timeout_sec=timeout_sec,
                on_chunk=on_chunk,
            )

        try:
            result = await run(cwd)
            if may_be_gone and result.exit_code and _NO_DIRECTORY.search(result.complaint):
                # An agent that removes its working directory has not lost its container.
                result = await run("/")
        except ExecTimeoutError:
            await self.shell(_END_MARKED, f"{_MARK}={mark}")
            raise
        if result.exit_code in (_NOT_STARTED, _KILLED) or (
            result.exit_code and _SUSPECT.search(result.stderr)
        ):
            await self.check()
        return result

    async def listen(self, port: int) -> socket.socket | None:
        """A TCP socket that listens on the container's loopback; None: that is the host's.

        Raises:
            OSError: the port is taken there.
            SandboxError: its network can't be entered from here.
        """
        if sys.platform != "linux":
            raise SandboxError("containers run in a virtual machine here")
        pid = await self.ask("inspect", "--format", "{{.State.Pid}}", self.container)
        try:
            return await _in_new_thread(lambda: _listen_in(f"/proc/{pid.strip()}/ns/net", port))
        except (PermissionError, FileNotFoundError) as error:
            raise SandboxError(f"the container's network can't be entered: {error}") from error

    @property
    def spared(self) -> tuple[str, ...]:
        """Processes that `spare_processes` found, by the container's numbers."""
        return self._spared

    async def spare_processes(self) -> None:
        """What runs now is not ended by `end_processes`.

        Raises:
            SandboxError: the engine can't list what runs.
        """
        self._spared = tuple((await self.shell(_PROCESSES)).stdout.split())
        self._spared_on_host = await self._processes()

    async def end_processes(self) -> None:
        """Kills all in the container but what `spare_processes` found.

        By the container's own shell, which the agent may have replaced; the engine then looks.

        Raises:
            SandboxError: something still runs that did not before.
        """
        for _ in range(_END_ROUNDS):
            await self.shell(_END_OTHERS, *self._spared)
            left = await self._processes() - self._spared_on_host
            if not left:
                await self.check()
                return
        raise SandboxError(f"{len(left)} processes in the container can't be ended")

    async def source(self, path: str, service: str | None) -> Source:
        """A place in `main` or in another service's container."""
        if service is None or service == MAIN:
            return Source(self.engine, self.container, path)
        listed = await self.compose(["ps", "--all", "--quiet", service])
        container = listed.stdout.strip().partition("\n")[0]
        if listed.exit_code != 0 or not container:
            raise SandboxError(f"no container of the service {service}: {listed.complaint}")
        return Source(self.engine, container, path)

    async def check(self) -> None:
        """Check that the container still runs.

        Raises:
            SandboxLostError: no; says why.
        """
        await self._require_running(_CHECKS)
        # On a busy machine the engine learns late that a container has died. But one without its
        # first process takes no command, whatever is known of it.
        probe = await run_cli([*self.engine, "exec", self.container, "true"])
        if probe.exit_code != 0 and not _ALIVE_ALL_THE_SAME.search(probe.complaint):
            await self._require_running(_LATE_CHECKS)
            raise SandboxLostError(f"the container has ended: {probe.complaint}")

    async def _require_running(self, times: int) -> None:
        """Ask the engine so many times; raises `SandboxLostError` when it says no."""
        form = "{{.State.Running}} {{.State.OOMKilled}} {{.State.ExitCode}}"
        argv = [*self.engine, "inspect", "--type", "container", "--format", form, self.container]
        for _ in range(times):
            if self.lost is not None:
                raise SandboxLostError(self.lost)
            result = await run_cli(argv)
            if result.exit_code != 0:
                raise SandboxLostError(f"the container is gone: {result.complaint}")
            alive, out_of_memory, code = result.stdout.split()
            if alive != "true":
                why = "out of memory" if out_of_memory == "true" else f"exit code {code}"
                raise SandboxLostError(f"the container has ended: {why}")
            # Commands die a moment before the engine knows that their container has.
            await asyncio.sleep(_CHECK_SEC)

    async def pause(self) -> None:
        """Stops all processes of all containers. Idempotent.

        Raises:
            SandboxError: the engine can't.
        """
        await self._all("pause", "running")

    async def unpause(self) -> None:
        """Lets them go on. Idempotent.

        Raises:
            SandboxError: the engine can't.
        """
        await self._all("unpause", "paused")

    async def _processes(self) -> frozenset[int]:
        """The host's numbers of all that runs in the container.

        Raises:
            SandboxError: the engine can't list them.
        """
        listed = (await self.ask("top", self.container, "-o", "pid")).splitlines()
        return frozenset(int(line) for line in listed[1:])

    async def _all(self, verb: str, status: str) -> None:
        label = f"label=com.docker.compose.project={self.name}"
        listed = await self.ask("ps", "-q", "--filter", label, "--filter", f"status={status}")
        if containers := listed.split():
            await self.ask(verb, *containers)

    async def connect(self, public: bool) -> None:
        """Gives the container the engine's default network, or takes every network away.

        Raises:
            SandboxError: the engine can't.
        """
        form = "{{range $name, $_ := .NetworkSettings.Networks}}{{$name}} {{end}}"
        networks = (await self.ask("inspect", "--format", form, self.container)).split()
        outside = [name for name in networks if name != "none"]
        if public and not outside:
            if "none" in networks:
                await self.ask("network", "disconnect", "none", self.container)
            default = "podman" if self.engine[0] == "podman" else "bridge"
            await self.ask("network", "connect", default, self.container)
        elif not public:
            for name in outside:
                await self.ask("network", "disconnect", "--force", name, self.container)

    async def ask(self, *args: str) -> str:
        """What the engine's client prints. Raises `SandboxError`: it fails."""
        result = await run_cli([*self.engine, *args])
        if result.exit_code != 0:
            raise SandboxError(f"{self.engine[0]} {args[0]}: {result.complaint}")
        return result.stdout

    def watch(self, root: str, limit_bytes: int) -> None:
        """Starts to watch what the containers write, and who ends the one of the agent."""
        disk = DiskWatch(self.engine, self.name, root, limit_bytes, self._too_much)
        self._end = EndWatch(self.engine, self.container)
        for name, work in (("disk", disk.run()), ("end", self._end.run())):
            self._watching.append(asyncio.create_task(work, name=f"{self.name} {name}"))

    async def damage(self) -> str:
        """How the container's own programs have kept more from running in it, after "has"; empty:
        they have not, or that can't be known.

        Raises:
            SandboxError: the engine can't say.
        """
        if self.lost is not None:
            return f"used up its disk ({self.lost})"
        running = await self.ask("inspect", "--format", "{{.State.Running}}", self.container)
        if running.strip() == "true" or self._end is None:
            return ""
        return await self._end.own_end()

    async def _too_much(self, size: int) -> None:
        self.lost = f"killed: it had written {size >> 20} MiB, more than its storage limit"
        await self.ask("kill", self.container)
        await self._all("kill", "running")

    async def end(self, *, keep: bool) -> None:
        """Kills and removes everything; or stops it, for a person to look at.

        Raises:
            SandboxError: the engine did not do it; a later start will try again.
        """
        for task in self._watching:
            task.cancel()
        await asyncio.gather(*self._watching, return_exceptions=True)
        if keep:
            await self.ask("kill", self.container)
            self.record.keep()
        else:
            await self.record.remove(images=self.images)


@dataclass(frozen=True, slots=True)
class DiskWatch:
    """Ends a trial's containers when one of them, or all their volumes, hold more than their share.

    Measuring a container's files takes the engine a walk over them, so it is asked only when the
    disk has lost space; a disk that can't be seen from here is measured at longer intervals.
    """

    engine: Sequence[str]
    project: str
    root: str
    """The engine's directory."""
    limit_bytes: int
    end: Callable[[int], Awaitable[None]]
    """Awaited once with the size of what is above the limit."""

    async def run(self) -> None:
        """Until the containers are gone or have been ended."""
        free = _free(self.root)
        while True:
            await asyncio.sleep(_LOOK_SEC if free is not None else _REMOTE_SEC)
            if free is not None:
                now = _free(self.root)
                if now is not None and now > free - min(_NOTICED_BYTES, self.limit_bytes // 4):
                    free = max(free, now)
                    continue
                free = now
            size = await self._size()
            if size is None:
                return
            if size > self.limit_bytes:
                await self.end(size)
                return

    async def _size(self) -> int | None:
        """Bytes in the largest of the containers, or in all their volumes together if that is
        more; None: they are gone."""
        label = f"label=com.docker.compose.project={self.project}"
        listed = await run_cli([*self.engine, "ps", "-aq", "--filter", label])
        argv = [*self.engine, "inspect", "--type", "container", "--size", "--format", _SIZES]
        containers = listed.stdout.split()
        result = await run_cli([*argv, *containers])
        if not containers or result.exit_code != 0:
            return None
        rows = [line.split() for line in result.stdout.splitlines() if line]
        own = {name for row in rows for name in row[1:] if self._is_own(name)}
        return max(*(int(row[0]) for row in rows), await self._in_volumes(own), 0)

    def _is_own(self, volume: str) -> bool:
        """Not one that was there before; only a task that is trusted mounts those."""
        return volume.startswith(f"{self.project}_") or _ANONYMOUS.fullmatch(volume) is not None

    async def _in_volumes(self, names: Collection[str]) -> int:
        """By the engine's own account: its directories are root's, and may be another machine's."""
        if not names:
            return 0
        rows = (await run_cli([*self.engine, "system", "df", "-v"])).stdout.splitlines()
        sizes = [row for row in map(str.split, rows) if len(row) == _VOLUME_ROW and row[0] in names]
        return sum(_size_of(row[-1]) for row in sizes)


def _size_of(text: str) -> int:
    """Bytes, as an engine prints them: `20.97MB`; 0 where it has not measured them."""
    found = _PRINTED.fullmatch(text)
    return int(float(found[1]) * 1000 ** " kmgtp".index(found[2].lower() or " ")) if found else 0


async def _in_new_thread[T](work: Callable[[], T]) -> T:
    """Not one of a pool's: the thread stays in the network that it has entered."""
    with ThreadPoolExecutor(max_workers=1) as thread:
        return await asyncio.get_running_loop().run_in_executor(thread, work)


def _listen_in(network: str, port: int) -> socket.socket | None:
    if sys.platform != "linux":  # refused before
        raise NotImplementedError
    if Path(network).samefile("/proc/self/ns/net"):
        return None
    descriptor = os.open(network, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.setns(descriptor, os.CLONE_NEWNET)
    finally:
        os.close(descriptor)
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        listener.bind(("127.0.0.1", port))
        listener.listen(_BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener


def _free(path: str) -> int | None:
    try:
        status = os.statvfs(path)
    except OSError:
        return None
    return status.f_bavail * status.f_frsize
