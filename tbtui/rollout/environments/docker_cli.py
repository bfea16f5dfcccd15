"""Runs a container engine's command line: bounded output, and no client left behind."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from tbtui.rollout.environments.base import ExecTimeoutError, SandboxError, SandboxStartError
from tbtui.rollout.environments.output import BoundedOutput

_READ = 1 << 16
# All that a client needs to find its engine. Nothing else of the host's environment is passed on,
# or a task's compose file could put any of it into a container with `${NAME}`.
_CLIENT_VARIABLES = ("PATH", "HOME", "TMPDIR", "SSH_AUTH_SOCK", "XDG_RUNTIME_DIR")
_CLIENT_PREFIXES = ("DOCKER_", "BUILDKIT_", "BUILDX_", "COMPOSE_", "CONTAINER_", "XDG_", "PODMAN_")
# What is left of it where nothing but a task's files is read, and the engine not asked: no key, no
# password of a registry or a proxy, which a task's compose file could name.
_PATHS = (
    *("PATH", "HOME", "TMPDIR", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "XDG_DATA_HOME"),
    *("DOCKER_CONFIG", "DOCKER_HOST", "DOCKER_CONTEXT", "PODMAN_COMPOSE_PROVIDER"),
)
_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY")
# What else turns a client, or a program that it starts, to something of the task's.
_TURNING = ("LD_", "GLIBC_", "GODEBUG", "SSL_", "SSH_", "GIT_", "PYTHON", "BASH_")

Stream = Literal["stdout", "stderr"]
OnChunk = Callable[[bytes, Stream], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class CliResult:
    exit_code: int
    stdout: str
    stderr: str

    @property
    def complaint(self) -> str:
        """The last thing said, for a message to a person."""
        lines = [line.strip() for line in f"{self.stdout}\n{self.stderr}".splitlines()]
        said = [line for line in lines if line]
        return said[-1] if said else f"exit code {self.exit_code}, no output"


def client_environment(host: Mapping[str, str]) -> dict[str, str]:
    """The part of the host's environment that engine clients are given."""
    return {name: value for name, value in host.items() if _is_clients_own(name)}


def _is_clients_own(name: str) -> bool:
    return (
        name in _CLIENT_VARIABLES or name.upper() in _PROXIES or name.startswith(_CLIENT_PREFIXES)
    )


def affects_clients(name: str) -> bool:
    """Whether a client given this variable might go to another engine, or run something else."""
    return _is_clients_own(name) or name.startswith(_TURNING)


def beside_clients_own(variables: Mapping[str, str], *, resolving: bool = False) -> dict[str, str]:
    """A client's environment with a task's variables in it, but none that clients act on.

    Args:
        resolving: For a client that puts variables into a task's files, and no more: none that may
            be a secret of the host.
    """
    harmless = {n: value for n, value in variables.items() if not affects_clients(n)}
    own = client_environment(os.environ)
    return {**harmless, **{n: own[n] for n in own if not resolving or n in _PATHS}}


async def run_cli(
    argv: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    cwd: str | None = None,
    stdin: bytes | None = None,
    timeout_sec: float | None = None,
    on_chunk: OnChunk | None = None,
) -> CliResult:
    """Runs a client to its end; it is killed when this task is cancelled.

    At most 8 MiB of each stream are kept (the first and the last 4).

    Args:
        env: The whole environment of the client; None: `client_environment(os.environ)`.
        on_chunk: Awaited with everything that comes, as it comes.

    Raises:
        ExecTimeoutError: it took longer than `timeout_sec`. What it asked the engine for may still
            run there.
        SandboxStartError: there is no such program.
    """
    starting = asyncio.create_task(
        asyncio.create_subprocess_exec(
            *argv,
            env=dict(env) if env is not None else client_environment(os.environ),
            cwd=cwd,
            stdin=asyncio.subprocess.DEVNULL if stdin is None else asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            process_group=0,  # Compose is a child of the client's: both end together
        )
    )
    try:
        process = await asyncio.shield(starting)
    except FileNotFoundError as error:
        raise SandboxStartError(f"{argv[0]} is not installed") from error
    except asyncio.CancelledError:
        # It may run already, and have started others: asyncio would end it alone.
        await _end(await starting)
        raise
    out, err = BoundedOutput(), BoundedOutput()
    assert process.stdout is not None and process.stderr is not None
    try:
        async with asyncio.timeout(timeout_sec), asyncio.TaskGroup() as group:
            group.create_task(_collect(process.stdout, out, "stdout", on_chunk))
            group.create_task(_collect(process.stderr, err, "stderr", on_chunk))
            if stdin is not None:
                group.create_task(_feed(process, stdin))
            group.create_task(process.wait())
    except TimeoutError as error:
        raise ExecTimeoutError(f"timed out after {timeout_sec:g} seconds") from error
    finally:
        await _end(process)
    return CliResult(process.returncode or 0, out.text(), err.text())


async def _end(process: asyncio.subprocess.Process) -> None:
    """Kill it, unless it has ended, with what it has started."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await asyncio.shield(process.wait())


async def _collect(
    pipe: asyncio.StreamReader, output: BoundedOutput, name: Stream, on_chunk: OnChunk | None
) -> None:
    while chunk := await pipe.read(_READ):
        output.add(chunk)
        if on_chunk is not None:
            await on_chunk(chunk, name)


async def _feed(process: asyncio.subprocess.Process, data: bytes) -> None:
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        process.stdin.write(data)
        await process.stdin.drain()
    process.stdin.close()


@dataclass(frozen=True, slots=True)
class EngineInfo:
    """What matters here of `docker info` or `podman info`."""

    cpus: int
    memory_mb: int
    root: str
    """Where the engine keeps its containers; a path of the engine's host, not always of ours."""
    quota: bool
    """The storage driver may take a size for each container."""
    os: str

    @staticmethod
    def parse(text: str) -> EngineInfo:
        """From the output of `info --format '{{json .}}'`.

        Raises:
            SandboxError: not understood.
        """
        try:
            raw: dict[str, Any] = json.loads(text)
            if "host" in raw:  # podman
                host, store = raw["host"], raw["store"]
                memory = int(host["memTotal"]) >> 20
                return EngineInfo(
                    int(host["cpus"]), memory, str(store["graphRoot"]), False, "linux"
                )
            driver = str(raw["Driver"])
            backing = dict(raw.get("DriverStatus") or ()).get("Backing Filesystem")
            quota = driver in {"btrfs", "zfs"} or (driver == "overlay2" and backing == "xfs")
            root, memory = str(raw["DockerRootDir"]), int(raw["MemTotal"]) >> 20
            return EngineInfo(int(raw["NCPU"]), memory, root, quota, raw["OSType"])
        except (ValueError, KeyError, TypeError) as error:
            raise SandboxError(f"the engine's `info` is not understood: {error!r}") from error


async def engine_info(engine: Sequence[str]) -> EngineInfo:
    """Asks the engine.

    Raises:
        SandboxStartError: it does not answer.
    """
    name = engine[0]
    try:
        result = await run_cli([*engine, "info", "--format", "{{json .}}"], timeout_sec=30)
    except ExecTimeoutError as error:
        raise SandboxStartError(f"{name} does not answer within 30 s") from error
    if result.exit_code != 0:
        raise SandboxStartError(f"{name} does not answer: {result.complaint}")
    return EngineInfo.parse(result.stdout)
