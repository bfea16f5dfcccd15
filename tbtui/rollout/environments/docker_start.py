"""Makes a trial's compose project: image, files, containers."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from harbor.environments.base import SandboxBuildFailedError
from harbor.environments.docker.runtime import ContainerRuntime

from tbtui.rollout.environments.base import SandboxError, SandboxStartError
from tbtui.rollout.environments.build import UnbuildableError
from tbtui.rollout.environments.docker_cli import (
    EngineInfo,
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
from tbtui.rollout.environments.docker_host_access import client_reads, host_access
from tbtui.rollout.environments.docker_running import RunningProject
from tbtui.rollout.environments.leftovers import (
    TASK_IMAGES,
    ComposeProject,
    machine_wide_lock,
    project_prefix,
)

_LONGEST_NAME = 48
_LONGEST_FILE = 1 << 20
_LOGS = "logs"
_OLD_LOG_NAMES = {"verifier": "VERIFIER_LOGS", "agent": "AGENT_LOGS", "artifacts": "ARTIFACTS"}
_MEMORY, _CPUS = "MEMORY", "CPUS"
_IMAGE_KEYS = ("image", "build")
_LEAST_PAUSE_NS = 1_000_000_000
_HEALTHCHECK = '{{index .Config.Labels "com.docker.compose.service"}} {{json .Config.Healthcheck}}'
# BuildKit's summary of what failed, else the first line that speaks of an error.
_BUILD_ERROR = re.compile(r"^(?:failed to solve|.*\berror\b).*", re.IGNORECASE | re.MULTILINE)
# A private image, one that was never there, a Dockerfile that makes no sense.
_LASTING = re.compile(
    r"access denied|resource is denied|\bdenied: |unauthorized|authentication required"
    r"|manifest unknown"
    r"|(?:manifest|repository|image)\b.* (?:not found|does not exist)|\S:\S+: not found"
    r"|\"/[^\"]*\": not found|parse error|unknown instruction|invalid reference format"
)
_BUILD_PREFIX = re.compile(r"^failed to solve: (?:rpc error: .*?LLB definition: )?")


@dataclass(frozen=True, slots=True)
class StartRequest:
    """What a trial needs of its containers."""

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
    cpus: float | None
    gpus: int
    network: Network
    environment: Mapping[str, str]
    volumes: tuple[Mapping[str, Any], ...]
    variables: Mapping[str, str]
    """What compose files may refer to."""
    sidecar_files: tuple[Path, ...] = ()
    hostname: str = ""
    """Empty: the engine gives the container one."""


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
    # The failure that led here is the one to report; what could not be removed stays recorded.
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
            hostname=request.hostname,
            shared=None if request.trusted else self._shared,
        )

    @property
    def _shared(self) -> dict[str, str]:
        """Directories of this trial alone, in the order of `_OLD_LOG_NAMES`, and the volumes that
        containers have in their place: one that can be written to is no directory of the host."""
        place = self._record.directory.resolve() / _LOGS
        return {str(place / name): f"{_LOGS}-{name}" for name in _OLD_LOG_NAMES}

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
        # An engine's own limit is that of a container's layer; volumes and others have none.
        running.watch(self._info.root, self._project.limits.storage_mb << 20)
        return running

    def _running(self) -> RunningProject:
        request, directory = self._request, self._record.directory.resolve()
        # Old tasks hand it on to the container, where a blank would hide what the image says.
        variables = {"TEST_DIR": "/tests"}
        # Old tasks mount these themselves; the host never reads there.
        for (target, name), path in zip(_OLD_LOG_NAMES.items(), self._shared, strict=True):
            Path(path).mkdir(parents=True, exist_ok=True)
            variables |= {f"HOST_{name}_PATH": path, f"ENV_{name}_PATH": f"/logs/{target}"}
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
        texts = [compose_text(path) for path in request.compose_files]
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
        if not request.trusted:
            _refuse(self._read_by_client())  # before it reads
        document = await self._config(running, files)
        if not request.trusted:
            _refuse(host_access(document, [request.environment_dir], self._shared))
        if request.sidecar_files:
            document = await self._config(running, [*files, *request.sidecar_files])
        return document

    async def _config(self, running: RunningProject, files: Sequence[Path]) -> dict[str, Any]:
        own = replace(running, files=tuple(files))
        result = await own.compose(["config", "--format", "json"], resolving=True)
        if result.exit_code != 0:
            raise UnbuildableError(f"the task's compose file: {result.complaint}")
        document: dict[str, Any] = json.loads(result.stdout)
        return document

    def _read_by_client(self) -> list[str]:
        reached: list[str] = []
        for path in self._request.compose_files:
            try:
                reached += client_reads(compose_text(path), self._request.environment_dir)
            except ValueError as error:
                raise UnbuildableError(f"the task's compose file: {error}") from error
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
            raise image_error(f"the image can't be built: {reason}")

    async def _has_image(self) -> bool:
        return await has_image(self._engine, self._project.image)

    async def _pull(self) -> None:
        image = self._project.image
        async with machine_wide_lock(f"pull-{self._request.environment_id}"):
            if await self._has_image():
                return
            result = await run_cli([*self._engine, "pull", "--quiet", image])
        if result.exit_code != 0:
            dockerfile = self._request.environment_dir / "Dockerfile"
            remedy = f"; force_build=true builds {dockerfile}" if dockerfile.is_file() else ""
            raise image_error(f"no image {image}: {result.complaint}{remedy}")

    async def _up(self, running: RunningProject) -> RunningProject:
        runtime = self._request.runtime
        create = ["up", "--no-start", "--no-build"]
        result = await running.compose(create)
        if result.exit_code != 0 and self._project.limits.quota and "storage-opt" in result.stderr:
            # The driver could, but the file system is mounted without project quotas.
            limits = replace(self._project.limits, quota=False)
            self._project = replace(self._project, limits=limits)
            self._write(running)
            result = await running.compose(create)
        if result.exit_code == 0:
            if not self._request.trusted:
                _refuse(
                    await self._restless(running), "image or compose file keeps the engine busy"
                )
            options = ["--detach", "--no-build"]
            if runtime.supports_compose_wait and self._request.compose_files:
                options.append("--wait")  # other services may have health checks
            result = await running.compose(["up", *options])
        if result.exit_code != 0:
            raise SandboxStartError(f"{self._engine[0]} can't start it: {result.complaint}")
        return running

    async def _restless(self, running: RunningProject) -> list[str]:
        """Health checks, the compose file's and images', that begin anew at once: each starts a
        process outside of its container."""
        label = f"label=com.docker.compose.project={running.name}"
        containers = (await running.ask("ps", "-aq", "--filter", label)).split()
        printed = await running.ask("inspect", "--format", _HEALTHCHECK, *containers)
        found = []
        for line in printed.splitlines():
            name, _, text = line.partition(" ")
            check: dict[str, Any] = json.loads(text) or {}
            for key in ("Interval", "StartInterval"):
                pause = check.get(key) or _LEAST_PAUSE_NS  # 0: the engine's own
                if pause < _LEAST_PAUSE_NS:
                    found.append(
                        f"{name}: a health check every {pause / 1e6:g} ms, at most one a second"
                    )
        return found


def image_error(said: str) -> SandboxBuildFailedError:
    """The error of an image that can't be had; one that another attempt would meet again where the
    registry, or the Dockerfile itself, is the reason and not the way there."""
    return UnbuildableError(said) if _LASTING.search(said) else SandboxBuildFailedError(said)


async def has_image(engine: Sequence[str], name: str) -> bool:
    """Whether the engine has an image of this name, without asking a registry."""
    argv = [*engine, "image", "inspect", "--format", "{{.Id}}", name]
    return (await run_cli(argv)).exit_code == 0


def _refuse(found: Sequence[str], does: str = "compose file reaches the host") -> None:
    if found:
        raise UnbuildableError(
            f"the task's {does} ({'; '.join(found)}): look at it, "
            "and give environment_kwargs.trust_compose=true"
        )


def compose_text(path: Path) -> str:
    """A task's compose file. Raises `UnbuildableError`: it can't be read, or is too long."""
    try:
        # Reading a device or a pipe need not come to an end.
        if not path.is_file() or path.stat().st_size > _LONGEST_FILE:
            raise UnbuildableError(f"the task's compose file: {path} is no file of at most 1 MiB")
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UnbuildableError(f"the task's compose file: {error}") from error


def _project_name(trial: str) -> str:
    """A unique name, recognisable by the trial's."""
    readable = re.sub(r"[^a-z0-9_-]", "-", trial.lower())[:_LONGEST_NAME]
    return f"{project_prefix()}{readable}-{secrets.token_hex(4)}"
