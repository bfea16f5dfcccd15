"""Makes a trial's compose project: image, files, containers; and handles it until its end."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from harbor.environments.base import SandboxBuildFailedError
from harbor.environments.docker.runtime import ContainerRuntime

from tbtui.rollout.environments.docker_cli import (
    CliResult,
    EngineInfo,
    OnChunk,
    beside_clients_own,
    engine_info,
    run_cli,
)
from tbtui.rollout.environments.docker_compose import (
    MAIN,
    ContainerLimits,
    Network,
    Project,
    ProjectFile,
    base_file,
    project_file,
    unfilled,
)
from tbtui.rollout.environments.docker_disk import DiskWatch
from tbtui.rollout.environments.docker_files import Source
from tbtui.rollout.environments.docker_host_access import client_reads, host_access
from tbtui.rollout.environments.docker_leftovers import (
    TASK_IMAGES,
    ComposeProject,
    machine_wide_lock,
    project_prefix,
)
from tbtui.rollout.environments.errors import SandboxError, SandboxLostError, SandboxStartError

_LONGEST_NAME = 48
_LOGS = "logs"
_CHECKS, _LATE_CHECKS, _CHECK_SEC = 3, 50, 0.1
# Why a container that is alive may refuse to run `true`. One that is about to end refuses in as
# many words as there are moments to be caught at.
_ALIVE_ALL_THE_SAME = re.compile(r"executable file .*not found|is paused", re.IGNORECASE)
_OLD_LOG_NAMES = {"verifier": "VERIFIER_LOGS", "agent": "AGENT_LOGS", "artifacts": "ARTIFACTS"}
_MEMORY, _CPUS = "MEMORY", "CPUS"
_IMAGE_KEYS = ("image", "build")
# BuildKit's summary of what failed, else the first line that speaks of an error.
_BUILD_ERROR = re.compile(r"^(?:failed to solve|.*\berror\b).*", re.IGNORECASE | re.MULTILINE)
_BUILD_PREFIX = re.compile(r"^failed to solve: (?:rpc error: .*?LLB definition: )?")


@dataclass(frozen=True, slots=True)
class StartRequest:
    """What a trial wants."""

    runtime: ContainerRuntime
    trial: str
    environment_dir: Path
    environment_id: str
    """Names the content of the directory."""
    prebuilt: str | None
    """The image that takes the place of a built one."""
    compose_files: tuple[Path, ...]
    trusted: bool
    """Those may reach the host."""
    processes: int
    memory_mb: int
    memory_stated: bool
    """`memory_mb` is task.toml's."""
    storage_mb: int
    cpus: int | None
    gpus: int
    network: Network
    environment: Mapping[str, str]
    volumes: tuple[Mapping[str, Any], ...]
    variables: Mapping[str, str]
    """What compose files may refer to."""
    sidecar_files: tuple[Path, ...] = ()


async def start_project(request: StartRequest) -> RunningProject:
    """Builds or fetches the image and starts the containers. Leaves nothing if that fails.

    Raises:
        SandboxBuildFailedError: the image can't be built or fetched.
        SandboxStartError: the engine does not answer, or refuses the containers.
    """
    engine = request.runtime.engine
    info = await engine_info(engine)
    if info.os != "linux":
        raise SandboxStartError(
            f"{engine[0]} runs {info.os} containers; tasks here need linux ones"
        )
    record = ComposeProject(engine, _project_name(request.trial))
    record.open()
    project = _Start(request, info, record)
    try:
        return await project.run()
    except BaseException:
        await asyncio.shield(_remove_quietly(record))
        raise


async def _remove_quietly(record: ComposeProject) -> None:
    # The failure that led here is the one to tell; what could not be removed stays written down.
    with contextlib.suppress(SandboxError):
        await record.remove()


class _Start:
    def __init__(self, request: StartRequest, info: EngineInfo, record: ComposeProject) -> None:
        self._request = request
        self._info = info
        self._record = record
        self._engine = request.runtime.engine
        self._document: Mapping[str, Any] = {}
        """What the task's own compose files come to."""
        self._notes: list[str] = []
        self._project = self._plan()

    def _plan(self) -> Project:
        request, info = self._request, self._info
        return Project(
            name=self._record.name,
            image=request.prebuilt or f"{TASK_IMAGES}:{request.environment_id}",
            build_context=None if request.prebuilt else request.environment_dir,
            limits=ContainerLimits(
                processes=request.processes,
                memory_mb=request.memory_mb,
                memory_stated=request.memory_stated,
                # An engine refuses to promise more than its host has.
                cpus=min(request.cpus, info.cpus) if request.cpus else None,
                storage_mb=request.storage_mb,
                quota=info.quota,
                host_cpus=info.cpus,
                host_memory_mb=info.memory_mb,
            ),
            network=request.network,
            environment=request.environment,
            volumes=request.volumes,
            gpus=request.gpus,
        )

    async def run(self) -> RunningProject:
        running = self._running()
        self._document = await self._resolve(running)
        file = self._write(running)
        await self._build(running, file)
        if self._project.build_context is None and not await self._has_image():
            await self._pull()
        running = await self._up(running)
        label = f"label=com.docker.compose.project={running.name}"
        main = f"label=com.docker.compose.service={MAIN}"
        listed = await run_cli(
            [*self._engine, "ps", "-q", "--no-trunc", "--filter", label, "--filter", main]
        )
        container = listed.stdout.strip()
        if listed.exit_code != 0 or not container or "\n" in container:
            logs = (await running.compose(["logs", "--no-color", "--tail", "5", MAIN])).complaint
            raise SandboxStartError(f"the container ended at once: {logs}")
        running = replace(running, container=container, notes=(*self._notes, *file.lowered))
        if not self._project.limits.quota:
            running.watch_disk(self._info.root, self._project.limits.storage_mb << 20)
        return running

    def _running(self) -> RunningProject:
        request, directory = self._request, self._record.directory
        # Old tasks hand it on to the container, where a blank would hide what the image says.
        variables = {"TEST_DIR": "/tests"}
        # Old tasks mount these themselves; the host never reads there.
        for target, name in _OLD_LOG_NAMES.items():
            path = directory / _LOGS / target
            path.mkdir(parents=True, exist_ok=True)
            variables |= {f"HOST_{name}_PATH": str(path), f"ENV_{name}_PATH": f"/logs/{target}"}
        variables |= {**request.variables, "MAIN_IMAGE_NAME": self._project.image}
        return RunningProject(
            runtime=request.runtime,
            record=self._record,
            files=(directory / "project.json",),
            directory=request.environment_dir,
            variables={**variables, **self._limits_asked_for(variables)},
            images=bool(request.compose_files),
        )

    def _limits_asked_for(self, given: Mapping[str, str]) -> dict[str, str]:
        """The limits that compose files refer to and the task does not state.

        As Harbor once gave them. By now it gives none, and Compose refuses a blank for a size.
        """
        request = self._request
        texts = [_read(path) for path in request.compose_files]
        values = {_MEMORY: f"{request.memory_mb}M", _CPUS: str(self._info.cpus)}
        asked = {name for text in texts for name in unfilled(text, list(values))} - given.keys()
        made = {name: values[name] for name in sorted(asked)}
        if made:
            named = " and ".join(f"${{{name}}}" for name in made)
            self._notes.append(
                f"the compose file asks for {named}, and task.toml states no such limit: "
                f"{', '.join(made.values())} given; `harbor task migrate --memory-mb --cpus`, or "
                "memory_mb and cpus under [environment] in task.toml, say what it needs"
            )
        return made

    def _write(self, running: RunningProject) -> ProjectFile:
        file = project_file(self._project, self._document)
        running.files[0].write_text(json.dumps(file.document))
        return file

    async def _resolve(self, running: RunningProject) -> Mapping[str, Any]:
        """The task's compose files with all that they include, as the engine will see them."""
        request = self._request
        base = base_file(self._project)
        if not request.compose_files and not request.sidecar_files:
            return base
        path = self._record.directory / "base.json"
        path.write_text(json.dumps(base))
        files = [path, *request.compose_files]
        document = await self._config(running, files)
        if not request.trusted and (reached := self._reached(document)):
            raise SandboxBuildFailedError(
                f"the task's compose file reaches the host ({'; '.join(reached)}): look at it, "
                "and give environment_kwargs.trust_compose=true"
            )
        if request.sidecar_files:
            document = await self._config(running, [*files, *request.sidecar_files])
        return document

    async def _config(self, running: RunningProject, files: Sequence[Path]) -> dict[str, Any]:
        own = replace(running, files=tuple(files))
        result = await own.compose(["config", "--format", "json"])
        if result.exit_code != 0:
            raise SandboxBuildFailedError(f"the task's compose file: {result.complaint}")
        document: dict[str, Any] = json.loads(result.stdout)
        return document

    def _reached(self, document: Mapping[str, Any]) -> list[str]:
        place = self._request.environment_dir
        reached = host_access(document, [place, self._record.directory / _LOGS])
        for path in self._request.compose_files:
            try:
                reached += client_reads(path, place)
            except (OSError, ValueError) as error:
                raise SandboxBuildFailedError(f"the task's compose file: {error}") from error
        return reached

    async def _build(self, running: RunningProject, file: ProjectFile) -> None:
        if not file.built:
            return
        base = base_file(self._project)["services"][MAIN]
        main = file.document["services"][MAIN]
        # Then the image's name stands for all that there is to build.
        named = file.built.keys() == {MAIN} and all(main[key] == base[key] for key in _IMAGE_KEYS)
        async with machine_wide_lock(f"build-{self._request.environment_id}"):
            if named and await self._has_image():
                return
            result = await running.compose(["--progress", "plain", "build"])
        if result.exit_code != 0:
            found = _BUILD_ERROR.findall(result.stderr) or [result.complaint]
            reason = _BUILD_PREFIX.sub("", found[-1]).strip()
            raise SandboxBuildFailedError(f"the image can't be built: {reason}")

    async def _has_image(self) -> bool:
        argv = [*self._engine, "image", "inspect", "--format", "{{.Id}}", self._project.image]
        return (await run_cli(argv)).exit_code == 0

    async def _pull(self) -> None:
        image = self._project.image
        async with machine_wide_lock(f"pull-{self._request.environment_id}"):
            if await self._has_image():
                return
            result = await run_cli([*self._engine, "pull", "--quiet", image])
        if result.exit_code != 0:
            dockerfile = self._request.environment_dir / "Dockerfile"
            remedy = f"; force_build=true builds {dockerfile}" if dockerfile.is_file() else ""
            raise SandboxBuildFailedError(f"no image {image}: {result.complaint}{remedy}")

    async def _up(self, running: RunningProject) -> RunningProject:
        runtime = self._request.runtime
        options = ["--detach", "--no-build"]
        if runtime.supports_compose_wait and self._request.compose_files:
            options.append("--wait")  # other services may have health checks
        result = await running.compose(["up", *options])
        if result.exit_code != 0 and self._project.limits.quota and "storage-opt" in result.stderr:
            # The driver could, but the file system is mounted without project quotas.
            limits = replace(self._project.limits, quota=False)
            self._project = replace(self._project, limits=limits)
            self._write(running)
            result = await running.compose(["up", *options])
        if result.exit_code != 0:
            raise SandboxStartError(f"{self._engine[0]} can't start it: {result.complaint}")
        return running


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
    _watch: asyncio.Task[None] | None = field(default=None, init=False)

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
    ) -> CliResult:
        """Runs the compose client on the project."""
        argv = [*self.runtime.compose, "--project-name", self.name]
        if self.runtime.supports_compose_project_directory:
            argv += ["--project-directory", str(self.directory)]
        for path in self.files:
            argv += ["-f", str(path)]
        argv += command
        return await run_cli(
            argv,
            env=beside_clients_own(self.variables),
            cwd=str(self.directory) if self.directory.is_dir() else None,
            stdin=stdin,
            timeout_sec=timeout_sec,
            on_chunk=on_chunk,
        )

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
        """Is the container still there?

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

    async def processes(self) -> frozenset[int]:
        """The host's numbers of all that runs in the container.

        Raises:
            SandboxError: the engine can't tell.
        """
        listed = (await self._ask("top", self.container, "-o", "pid")).splitlines()
        return frozenset(int(line) for line in listed[1:])

    async def _all(self, verb: str, status: str) -> None:
        label = f"label=com.docker.compose.project={self.name}"
        listed = await self._ask("ps", "-q", "--filter", label, "--filter", f"status={status}")
        if containers := listed.split():
            await self._ask(verb, *containers)

    async def connect(self, public: bool) -> None:
        """Gives the container the engine's default network, or takes every network away.

        Raises:
            SandboxError: the engine can't.
        """
        form = "{{range $name, $_ := .NetworkSettings.Networks}}{{$name}} {{end}}"
        networks = (await self._ask("inspect", "--format", form, self.container)).split()
        outside = [name for name in networks if name != "none"]
        if public and not outside:
            if "none" in networks:
                await self._ask("network", "disconnect", "none", self.container)
            default = "podman" if self.engine[0] == "podman" else "bridge"
            await self._ask("network", "connect", default, self.container)
        elif not public:
            for name in outside:
                await self._ask("network", "disconnect", "--force", name, self.container)

    async def _ask(self, *args: str) -> str:
        result = await run_cli([*self.engine, *args])
        if result.exit_code != 0:
            raise SandboxError(f"{self.engine[0]} {args[0]}: {result.complaint}")
        return result.stdout

    def watch_disk(self, root: str, limit_bytes: int) -> None:
        """Starts to watch what the container writes."""
        watch = DiskWatch(self.engine, self.container, root, limit_bytes, self._too_much)
        self._watch = asyncio.create_task(watch.run(), name=f"{self.name} disk")

    async def _too_much(self, size: int) -> None:
        self.lost = f"killed: it had written {size >> 20} MiB, more than its storage limit"
        await self._ask("kill", self.container)

    async def end(self, *, keep: bool) -> None:
        """Kills and removes everything; or stops it, for a person to look at.

        Raises:
            SandboxError: the engine did not do it; a later start will try again.
        """
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.gather(self._watch, return_exceptions=True)
        if keep:
            await self._ask("kill", self.container)
            self.record.keep()
        else:
            await self.record.remove(images=self.images)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SandboxBuildFailedError(f"the task's compose file: {error}") from error


def _project_name(trial: str) -> str:
    """Unique, and told by people from the trial's name."""
    readable = re.sub(r"[^a-z0-9_-]", "-", trial.lower())[:_LONGEST_NAME]
    return f"{project_prefix()}{readable}-{secrets.token_hex(4)}"
