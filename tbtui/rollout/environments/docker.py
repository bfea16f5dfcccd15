"""Harbor's Docker and Podman environments, made safe and quick; plugged in by import path.

Differences from Harbor's own:
  * no directory is shared with the host: logs are copied out, with limits, and the terminal's log
    is streamed while it grows,
  * processes, memory, open files and written bytes are limited whatever the task says,
  * a task that says nothing about the network has it, as the task format has it and as
    Terminal-Bench's verifiers need it (without, they would fail and look like the policy's
    failures); `default_network` changes that. An allowlist is enforced by Harbor's sidecar,
  * an image is built once for each content of the task's environment and kept as `tbtui-task:...`,
  * an agent's program is installed once for each such image, and kept as `tbtui-agent:...`,
  * the state of a turn is kept as an image, `tbtui-state:...`, which ends with its run,
  * containers are killed, not asked, and what a killed tbtui leaves is removed at its next start,
  * engine clients see none of the host's environment but what they need to find their engine.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import hashlib
import re
import socket
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, Literal, cast, override

from harbor.environments.base import BaseEnvironment, ExecResult, OutputCallback
from harbor.environments.capabilities import EnvironmentCapabilities
from harbor.environments.definition import should_use_prebuilt_docker_image
from harbor.environments.docker.docker import DockerEnvironment as HarborDocker
from harbor.environments.podman import PodmanEnvironment as HarborPodman
from harbor.models.task.config import NetworkMode, NetworkPolicy
from harbor.models.trial.paths import EnvironmentPaths, TrialPaths

from tbtui.rollout.environments.base import (
    PANE_LOG,
    SandboxError,
    SandboxLostError,
    SandboxStartError,
    ScriptEnd,
    script_run,
)
from tbtui.rollout.environments.docker_cli import (
    run_cli,
)
from tbtui.rollout.environments.docker_compose import Network
from tbtui.rollout.environments.docker_files import (
    archive,
    download_async,
    first_difference,
    first_entry,
)
from tbtui.rollout.environments.docker_running import RunningProject
from tbtui.rollout.environments.docker_start import StartRequest, has_image, start_project
from tbtui.rollout.environments.docker_states import (
    commit_state,
    prepare_for_states,
    show_in_next_shell,
)
from tbtui.rollout.environments.leftovers import AGENT_IMAGES, machine_wide_lock
from tbtui.rollout.environments.limits import DEFAULT_MEMORY_MB, DEFAULT_PROCESSES, Positive
from tbtui.rollout.environments.output import decoded
from tbtui.rollout.environments.pane_log import ContainerPane
from tbtui.rollout.environments.snapshots import (
    KEEPS_STATE,
    Snapshot,
    SnapshotStore,
    StoredSnapshot,
    TerminalSnapshot,
)
from tbtui.rollout.environments.transfer import make_directory

DEFAULT_STORAGE_MB = 10_240
_PANE = EnvironmentPaths.agent_dir / PANE_LOG
_CATCH_UP_SEC = 2.0
_PREPARE = """\
[ $# = 0 ] || { mkdir -p "$@" && chmod 777 "$@"; } || exit
grep -qs history-limit /etc/tmux.conf || echo "set -g history-limit 200000" >>/etc/tmux.conf || :
"""
_NOT_RUN = re.compile("OCI runtime exec failed")


class ContainedEnvironment(HarborDocker):
    """What Docker and Podman have in common: one compose project for one trial.

    Args (beyond Harbor's, given as `environment.kwargs`):
        processes: Most processes and threads in each container.
        memory_mb: Memory of a container whose task says none, in MiB.
        storage_mb: What a container whose task says none may write, in MiB. Held by the engine
            where its storage driver can (btrfs, zfs, overlay2 on xfs with project quotas);
            elsewhere no file may be longer. A trial of which a container, or all volumes together,
            hold more is ended within seconds.
        trust_compose: A task's compose file may reach the host (privileged, its directories, ...).
        default_network: What a task gets whose task.toml says nothing about the network.
        agent_key: Names an agent with all that its program depends on. Where the engine has the
            task's image with that program in it (`install_agent`), it is started.
    """

    notices_loss = True

    def __init__(
        self,
        *args: Any,
        processes: Positive = DEFAULT_PROCESSES,
        memory_mb: Positive = DEFAULT_MEMORY_MB,
        storage_mb: Positive = DEFAULT_STORAGE_MB,
        trust_compose: bool = False,
        default_network: Literal["none", "public"] = "public",
        agent_key: str = "",
        **kwargs: Any,
    ) -> None:
        if default_network not in ("none", "public"):
            raise ValueError(f"default_network={default_network}: must be none or public")
        self._processes = processes
        self._memory_mb = memory_mb
        self._storage_mb = storage_mb
        self._trust_compose = trust_compose
        self._default_network = default_network
        self._agent_key = agent_key
        self.has_agent = False
        self._keeps_states = False
        self._restored: StoredSnapshot | None = None
        self._running: RunningProject | None = None
        self._pane: ContainerPane | None = None
        self.script_end: ScriptEnd | None = None
        """Whether it started. No signal is known: an exit status of 137 may be its own word."""
        self._thawed = asyncio.Event()
        self._thawed.set()
        super().__init__(*args, **kwargs)
        # Harbor shares its log directories with containers that can share; this one does not.
        logs = [m for m in self._mounts if _is_log(m["target"])]
        self._log_directories = [str(mount["target"]) for mount in logs]
        self._mounts = [mount for mount in self._mounts if not _is_log(mount["target"])]
        self._host_mounts = self._mounts  # Harbor 0.26 and later: those of them that are bound

    @property
    @override
    def capabilities(self) -> EnvironmentCapabilities:
        # Not `mounted`: a directory shared with the host would let the container plant links for
        # the host to follow, and fill its disk.
        return super().capabilities.model_copy(
            update={
                "mounted": False,
                "stream": False,
                "windows": False,
                "disable_internet": True,
                "dynamic_network_policy": self._enable_egress_control or not self._uses_compose,
            }
        )

    @staticmethod
    @override
    def _requires_egress_control(
        *,
        startup_network_policy: NetworkPolicy,
        phase_network_policies: Sequence[NetworkPolicy],
    ) -> bool:
        # To have no network takes no sidecar to enforce it.
        policies = [startup_network_policy, *phase_network_policies]
        return any(policy.network_mode == NetworkMode.ALLOWLIST for policy in policies)

    @property
    def network(self) -> Network:
        """What the containers reach at the start."""
        if self._enable_egress_control:
            return "sidecar"
        stated = "network_mode" in self.task_env_config.model_fields_set
        stated = stated or self.task_env_config.allow_internet is True
        public = self._network_policy.network_mode == NetworkMode.PUBLIC
        return "public" if public and (stated or self._default_network == "public") else "none"

    @property
    def running(self) -> RunningProject:
        """The running containers.

        Raises:
            SandboxLostError: not started, or stopped.
        """
        if self._running is None:
            raise SandboxLostError("the container is not running")
        return self._running

    @override
    def _validate_definition(self) -> None:
        # Not here: an exception out of the constructor would cost the trial its result file.
        return

    @override
    async def start(self, force_build: bool) -> None:
        """Builds or fetches the image, starts the containers, prepares the log directories.

        Raises:
            SandboxBuildFailedError: the image can't be built or fetched.
            SandboxStartError: the engine does not answer, or refuses the containers.
        """
        super()._validate_definition()  # type: ignore[no-untyped-call]
        self._use_prebuilt = should_use_prebuilt_docker_image(
            self.environment_dir,
            docker_image=self.task_env_config.docker_image,
            force_build=force_build,
        )
        prebuilt = self.task_env_config.docker_image if self._use_prebuilt else None
        with_agent = self._image_with_agent
        if with_agent is not None and await has_image(self._engine, with_agent):
            prebuilt, self.has_agent = with_agent, True
        if self._restored is not None:
            prebuilt = self._restored.snapshot.container_image
        request = StartRequest(
            runtime=type(self).runtime(),
            trial=self.session_id,
            environment_dir=self.environment_dir.resolve(),
            environment_id=self.environment_id,
            prebuilt=prebuilt,
            compose_files=tuple(self._user_compose_paths()),
            trusted=self._trust_compose,
            processes=self._processes,
            memory_mb=self._effective_memory_mb or self._memory_mb,
            memory_stated=self._effective_memory_mb is not None,
            storage_mb=self._effective_storage_mb or self._storage_mb,
            cpus=self._effective_cpus,
            gpus=self._effective_gpus,
            network=self.network,
            environment=self._startup_env(),
            volumes=tuple(cast(list[dict[str, Any]], self._mounts)),
            variables=self._compose_env_vars(include_os_env=False),
            sidecar_files=await self._sidecar_files(),
            hostname=self._restored.snapshot.hostname if self._restored is not None else "",
        )
        self._running = await start_project(request)
        for note in self._running.notes:
            self.logger.warning(note)
        try:
            await self._prepare()
        except BaseException:
            await self.stop(delete=True)
            raise

    @property
    def _engine(self) -> tuple[str, ...]:
        return type(self).runtime().engine

    @property
    def _image_with_agent(self) -> str | None:
        """Its name; None: this environment takes none, for its network or its other services may
        not be had without the trial."""
        if not self._agent_key or self._uses_compose or self._enable_egress_control:
            return None
        what = f"{self.environment_id} {self._agent_key}"
        return f"{AGENT_IMAGES}:{hashlib.sha256(what.encode()).hexdigest()[:24]}"

    async def install_agent(
        self, set_up: Callable[[BaseEnvironment], Awaitable[None]], *, network: bool
    ) -> None:
        """Make the task's image with an agent's program in it, in a container of its own, unless
        the engine has it. Nothing is made where this environment takes none.

        Raises:
            SandboxError: it can't be made; and whatever `set_up` raises.
        """
        image = self._image_with_agent
        if image is None:
            return
        async with machine_wide_lock(f"agent-{image.partition(':')[2]}"):
            if await has_image(self._engine, image):
                return
            with tempfile.TemporaryDirectory(prefix="tbtui-agent-") as folder:
                other = self._without_trial(Path(folder))
                await other.start(force_build=False)
                try:
                    lent = other.with_network() if network else contextlib.nullcontext()
                    async with lent:
                        await set_up(other)
                    await other.running.commit(image)
                finally:
                    await other.stop(delete=True)

    def _without_trial(self, folder: Path) -> ContainedEnvironment:
        """The same, not started, with no trial's files and no variables: an image shows them."""
        other = copy.copy(self)
        other.session_id = f"install-{self.environment_name}"
        other.trial_paths = TrialPaths(folder)
        other.task_env_config = self.task_env_config.model_copy(update={"env": {}})
        other._persistent_env = {}
        other._agent_key = ""
        other._thawed = asyncio.Event()
        other._thawed.set()
        return other

    async def _sidecar_files(self) -> tuple[Path, ...]:
        if not self._enable_egress_control:
            return ()
        await self._ensure_egress_control_sidecar_image_built()
        services = self._write_egress_control_services_compose_file()
        return (self._DOCKER_COMPOSE_EGRESS_CONTROL_PATH, *((services,) if services else ()))

    async def _prepare(self) -> None:
        prepared = await self.running.shell(_PREPARE, *self._log_directories)
        if prepared.exit_code != 0:
            raise SandboxStartError(f"the container can't be used: {prepared.complaint}")
        if self.trial_paths.agent_dir.is_dir():
            pane = self.trial_paths.agent_dir / _PANE.name
            running = self.running
            self._pane = await ContainerPane.open(
                running.engine, running.container, str(_PANE), pane
            )
        if self._keeps_states:
            await prepare_for_states(self.running)
        if self._restored is None:
            await self._upload_environment_dir_after_start()
        await self.running.spare_processes()

    @override
    async def stop(self, delete: bool) -> None:
        """Kills and removes the containers, networks and volumes (kept: `keep_containers`)."""
        running, self._running = self._running, None
        pane, self._pane = self._pane, None
        self._thawed.set()
        if running is not None:
            # To its end even when this task is cancelled meanwhile.
            await asyncio.shield(running.end(keep=self._keep_containers))
        if pane is not None:
            await pane.close()
        self._cleanup_egress_control_services_compose_file()

    @override
    async def prepare_logs_for_host(self) -> None:
        """Nothing is shared, so nothing needs another owner."""

    @override
    async def exec(
        self,
        command: str,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        timeout_sec: int | None = None,
        user: str | int | None = None,
    ) -> ExecResult:
        """Runs a command to its end. While the container is frozen it waits for the thaw.

        Raises:
            ExecTimeoutError: it took longer than `timeout_sec`; it was killed.
            SandboxLostError: the container or its engine is gone.
        """
        await self._thawed.wait()
        callback = self._output_callback()
        result = await self.running.run(
            command,
            cwd=cwd or self.task_env_config.workdir,
            may_be_gone=cwd is None,
            user=self._resolve_user(user),
            variables=(self._merge_env(env) or {}) | self._kept_by_shells,
            timeout_sec=timeout_sec,
            on_chunk=decoded(callback) if callback is not None else None,
        )
        if script_run(command) is not None:
            refused = result.exit_code and _NOT_RUN.search(result.complaint)
            self.script_end = ScriptEnd(not_started=result.complaint if refused else "")
        return ExecResult(stdout=result.stdout, stderr=result.stderr, return_code=result.exit_code)

    @override
    async def empty_dirs(self, dirs: Any, *, chmod: bool = True) -> ExecResult | None:
        """As Harbor's, which runs the container's own programs; then the engine has a look.

        Raises:
            SandboxError: something is left in one of them.
        """
        emptied = await super().empty_dirs(dirs, chmod=chmod)
        for directory in dirs:
            source = await self.running.source(str(directory), None)
            left = await asyncio.to_thread(first_entry, source)
            if left is not None:
                said = (emptied.stderr if emptied else None) or "something in it prevents that"
                raise SandboxError(f"{directory} can't be emptied of {left!r}: {said}")
        return None

    @override
    async def _run_docker_compose_command(
        self,
        command: list[str],
        check: bool = True,
        timeout_sec: int | None = None,
        stdin_data: bytes | None = None,
        on_output: OutputCallback | None = None,
    ) -> ExecResult:
        # Harbor's way to everything that concerns other services than `main`.
        result = await self.running.compose(
            command,
            stdin=stdin_data,
            timeout_sec=timeout_sec,
            on_chunk=decoded(on_output) if on_output is not None else None,
        )
        if check and result.exit_code != 0:
            raise SandboxError(f"compose {command[0]}: {result.complaint}")
        return ExecResult(
            stdout=result.stdout + result.stderr, stderr=None, return_code=result.exit_code
        )

    @override
    async def upload_file(self, source_path: Path | str, target_path: str) -> None:
        source, target = Path(source_path), str(target_path)
        if target.endswith("/") or await self.is_dir(target, user="root"):
            target = f"{target.rstrip('/')}/{source.name}"
        await self._put(await asyncio.to_thread(archive, source, target.lstrip("/")))

    @override
    async def upload_dir(self, source_dir: Path | str, target_dir: str) -> None:
        source, target = Path(source_dir), str(target_dir).rstrip("/")
        # The terminal's log came from the container, and there it still grows.
        skip = [_PANE.name] if source == self.trial_paths.agent_dir else []
        await self.ensure_dirs([target], chmod=False)
        await self._put(await asyncio.to_thread(archive, source, target.lstrip("/"), skip=skip))

    async def _put(self, data: bytes) -> None:
        running = self.running
        argv = [*running.engine, "cp", "-", f"{running.container}:/"]
        result = await run_cli(argv, stdin=data)
        if result.exit_code != 0:
            await running.check()
            raise SandboxError(f"not copied into the container: {result.complaint}")

    @override
    async def download_file(self, source_path: str, target_path: Path | str) -> None:
        await self.service_download_file(source_path, target_path)

    @override
    async def download_dir(self, source_dir: str, target_dir: Path | str) -> None:
        """Copies regular files and directories; links and special files stay behind.

        What the host already has in the trial's agent directory is its own record and is not
        replaced by what the container put under the same name.
        """
        await self.service_download_dir(source_dir, target_dir)

    @override
    async def service_download_file(
        self, source_path: str, target_path: Path | str, *, service: str | None = None
    ) -> None:
        target = Path(target_path)
        make_directory(target.parent)
        source = await self.running.source(str(source_path), service)
        if await download_async(source, target, directory=False) != 1:
            raise SandboxError(f"{source_path} in the container is not one regular file")

    @override
    async def service_download_dir(
        self, source_dir: str, target_dir: Path | str, *, service: str | None = None
    ) -> None:
        target = Path(target_dir)
        make_directory(target)
        own_record = target == Path(self.trial_paths.agent_dir)
        if own_record and self._pane is not None:
            await self._catch_up(self._pane)
        source = await self.running.source(str(source_dir), service)
        await download_async(source, target, directory=True, overwrite=not own_record)

    async def _catch_up(self, pane: ContainerPane) -> None:
        result = await self.running.shell('stat -c %s "$1"', str(_PANE))
        if result.exit_code == 0 and result.stdout.strip().isdigit():
            await pane.catch_up(int(result.stdout), _CATCH_UP_SEC)

    @override
    async def _apply_network_policy(self, network_policy: NetworkPolicy) -> None:
        if self._enable_egress_control:
            await super()._apply_network_policy(network_policy)
        else:
            await self.running.connect(network_policy.network_mode == NetworkMode.PUBLIC)

    async def listen(self, port: int) -> socket.socket | None:
        """A socket on the container's own loopback, made by this process, which is root; None: the
        container shares the host's network.

        Raises:
            SandboxError: the engine runs on another machine, or this process may not enter.
        """
        return await self.running.listen(port)

    @contextlib.asynccontextmanager
    async def with_network(self) -> AsyncIterator[None]:
        """The container has a network while the block lasts, whatever its task says.

        Raises:
            SandboxError: its compose file has networks of its own.
        """
        if self.network != "none":
            yield
            return
        if self._uses_compose:
            raise SandboxError("a task of several services can't be given a network for a while")
        await self.running.connect(public=True)
        try:
            yield
        finally:
            await self.running.connect(public=False)

    async def changed_file(self, sources: Sequence[Path], target: str) -> str | None:
        """The first file below `target` that isn't as in the directories uploaded there. Links
        are not looked at.

        Raises:
            SandboxError: it can't be copied out of the container.
        """
        with tempfile.TemporaryDirectory(prefix="tbtui-tests-") as folder:
            await self.service_download_dir(target, folder)
            name = await asyncio.to_thread(first_difference, sources, Path(folder))
        return None if name is None else f"{target.rstrip('/')}/{name}"

    @property
    def _kept_by_shells(self) -> dict[str, str]:
        return {"PROMPT_COMMAND": KEEPS_STATE} if self._keeps_states else {}

    def keep_states(self) -> None:
        """Let its shells save what is in no file. Call it before `start`."""
        self._keeps_states = True

    async def has_state(self, stored: StoredSnapshot) -> bool:
        """Whether the engine has this state's image."""
        image = stored.snapshot.container_image
        return bool(image) and not self._uses_compose and await has_image(self._engine, image)

    def begin_from(self, stored: StoredSnapshot) -> None:
        """Start from this state's image, and upload nothing. Call it before `start`."""
        self._restored = stored

    async def save_state(
        self, store: SnapshotStore, draft: Snapshot, terminal: TerminalSnapshot
    ) -> Snapshot:
        """Commit the container as the snapshot of `draft.turn`.

        Raises:
            SandboxError: it is too much, can't be kept, or has other containers beside it.
        """
        if self._uses_compose:
            raise SandboxError("a task of several services has no snapshots")
        return await commit_state(self.running, store, draft, terminal)

    async def show(self, screen: str) -> None:
        """Let the next shell restore itself, and show this first, as `printf` reads it."""
        await show_in_next_shell(self.running, screen)

    async def end_processes(self) -> None:
        """Kills all in the container that did not run before the agent came.

        By the container's own shell, which the agent may have replaced; the engine then looks.

        Raises:
            SandboxError: something still runs that did not before.
        """
        await self.running.end_processes()

    async def damage(self) -> str:
        """How the container's own programs have ended it, or filled its disk. Raises SandboxError:
        the engine can't say."""
        return await self.running.damage()

    async def freeze(self) -> None:
        """Stops every process of the trial until `thaw`; `exec` waits meanwhile."""
        self._thawed.clear()
        try:
            await self.running.pause()
        except BaseException:
            self._thawed.set()
            raise

    async def thaw(self) -> None:
        """Lets the processes go on."""
        await self.running.unpause()
        self._thawed.set()


class DockerEnvironment(ContainedEnvironment):
    """Trials in Docker."""


class PodmanEnvironment(ContainedEnvironment, HarborPodman):
    """Trials in Podman."""


def _is_log(target: str) -> bool:
    return PurePosixPath(target).is_relative_to(EnvironmentPaths.logs_dir)
