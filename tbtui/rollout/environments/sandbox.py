"""The sandbox as a Harbor environment, plugged in by import path.

Differences from a container, all of them visible to a task:
  * the userland is the host's own, whatever the Dockerfile's FROM names,
  * the network is off unless task.toml itself says `network_mode = "public"` (or
    `allow_internet = true`, its older spelling),
  * files of the host's /usr can't be changed in place, only added to or replaced; `apt-get
    install` accepts what the host has, and installs nothing,
  * without a network, by the task or on this host, pip and uv install from the user's wheel cache
    (`tbtui tasks prefetch`),
  * an image's ENTRYPOINT runs beside the agent, as in Harbor's containers; CMD does not,
  * everything written lies in memory and ends with the box.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import stat
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal, override

import msgspec
from harbor.environments.base import BaseEnvironment, ExecResult
from harbor.environments.capabilities import (
    EnvironmentCapabilities,
    EnvironmentResourceCapabilities,
)
from harbor.models.task.config import NetworkMode
from harbor.models.trial.paths import EnvironmentPaths

from tbtui.invocation import to_type
from tbtui.paths import open_plain
from tbtui.rollout.environments.base import (
    PANE_LOG,
    SandboxError,
    SandboxLostError,
    SandboxStartError,
    ScriptEnd,
    direct_argv,
    script_run,
)
from tbtui.rollout.environments.box import Box, CommandResult
from tbtui.rollout.environments.box_start import AS_ROOT, start_box, start_bubblewrap_box
from tbtui.rollout.environments.build import (
    Image,
    UnbuildableError,
    base_python,
    build_image,
    check_definition,
)
from tbtui.rollout.environments.cgroups import default_processes
from tbtui.rollout.environments.limits import (
    DEFAULT_CPU_SECONDS,
    DEFAULT_DOWNLOAD_MB,
    MIB,
    BoxLimits,
    BoxReport,
    Positive,
    box_limits,
)
from tbtui.rollout.environments.output import streamed
from tbtui.rollout.environments.pane_log import PaneTap
from tbtui.rollout.environments.plan import Bind, Restored, plan_box
from tbtui.rollout.environments.snapshots import (
    MOST_PACKS,
    SCREEN,
    SavedImage,
    Snapshot,
    SnapshotStore,
    StoredSnapshot,
    TerminalSnapshot,
)
from tbtui.rollout.environments.transfer import make_directory
from tbtui.rollout.environments.upload import changed_file, upload_file, upload_tree
from tbtui.rollout.environments.userland import BasePython, Userland, reaches_index, userland
from tbtui.wheels.cache import WheelCache, WheelCacheError, open_cache

Backend = Literal["namespaces", "bubblewrap"]
HostPaths = Annotated[
    Sequence[Annotated[str, msgspec.Meta(pattern="^/")]],
    msgspec.Meta(description='a list of absolute paths, such as ["/data"]'),
]
_PANE = EnvironmentPaths.agent_dir / PANE_LOG
# Logs, not artifacts: of these a part is better than nothing, and they come from every trial.
_LOG_DIRECTORIES = (EnvironmentPaths.agent_dir, EnvironmentPaths.verifier_dir)
_LONGEST_LOG = 16 * MIB
# As in Harbor's Compose file, which puts it in the place of the image's CMD.
_CONTAINER_COMMAND = ("sh", "-c", "sleep infinity")
_ENTRY_SEC = 0.5
"""An ENTRYPOINT that ends sooner has failed."""
_QUOTED_OUTPUT = 2000
_PAGE = 4096
_SMALL_FILES = 64
_ROOT_NAMES = frozenset(["root", "0", "root:root", "0:0"])


class SandboxEnvironment(BaseEnvironment):
    """One box for one trial.

    Args (beyond Harbor's, given as `environment.kwargs`):
        backend: What makes the box.
        processes: Most processes and threads at a time; None: 512, or 256 where no control
            group of the box's own can hold them to a share of the CPU.
        cpu_seconds: CPU time of each process.
        download_mb: Most that one download (a log directory, an artifact) may bring to the host.
        visible: Further host paths shown read-only at the same place in the box.
        installed: A tree of the host's that is laid over the box's own (`agent_layers`).
    """

    notices_loss = True

    def __init__(
        self,
        *args: Any,
        backend: Backend = "namespaces",
        processes: Positive | None = None,
        cpu_seconds: Positive = DEFAULT_CPU_SECONDS,
        download_mb: Positive = DEFAULT_DOWNLOAD_MB,
        visible: HostPaths = (),
        installed: str | None = None,
        **kwargs: Any,
    ) -> None:
        self._backend: Backend = backend
        self._processes = processes
        self._cpu_seconds = cpu_seconds
        self._download_mb = download_mb
        self._visible = tuple(visible)
        self._installed = installed
        self._box: Box | None = None
        self._tap: PaneTap | None = None
        self._image = Image()
        self._entered: asyncio.Task[CommandResult] | None = None
        """The image's ENTRYPOINT, while it runs."""
        self._userland = Userland({})
        self._keeps_states = False
        self._restored: StoredSnapshot | None = None
        self.script_end: ScriptEnd | None = None
        self.on_build: Callable[[str], None] = lambda step: None
        """Called with each step of the Dockerfile that takes long."""
        super().__init__(*args, **kwargs)

    @staticmethod
    @override
    def type() -> str:
        return "sandbox"

    @property
    @override
    def capabilities(self) -> EnvironmentCapabilities:
        # Not `mounted`: a directory shared with the host would let the box plant links for the
        # host to write through, and fill its disk. Logs are copied out instead.
        return EnvironmentCapabilities(disable_internet=True)

    @classmethod
    @override
    def resource_capabilities(cls) -> EnvironmentResourceCapabilities:
        return EnvironmentResourceCapabilities(
            cpu_limit=True, memory_limit=True, fractional_cpus=True
        )

    @override
    def _validate_definition(self) -> None:
        # Not here: an exception out of the constructor would cost the trial its result file.
        # `start` checks, and reports a failed environment.
        return

    @property
    def box(self) -> Box:
        """The running box.

        Raises:
            SandboxLostError: not started, or stopped.
        """
        if self._box is None:
            raise SandboxLostError("the sandbox is not running")
        return self._box

    @property
    def limits(self) -> BoxLimits:
        """What this trial's box may use."""
        return box_limits(
            memory_mb=self._effective_memory_mb,
            storage_mb=self._effective_storage_mb,
            cpus=self._effective_cpus,
            processes=self._processes or default_processes(),
            cpu_seconds=self._cpu_seconds,
            download_mb=self._download_mb,
        )

    @property
    def network(self) -> bool:
        """Whether the box shares the host's network.

        Harbor's default is a public network, which here would mean the host's own, with every
        service that listens on its localhost. So the task has to say so itself.
        """
        stated = "network_mode" in self.task_env_config.model_fields_set
        stated = stated or self.task_env_config.allow_internet is True
        return stated and self._network_policy.network_mode == NetworkMode.PUBLIC

    @override
    async def start(self, force_build: bool) -> None:
        """Makes the box and follows the Dockerfile.

        Raises:
            SandboxBuildFailedError: the task's environment can't be built here.
            SandboxStartError: this host can't make the box.
        """
        check_definition(self.environment_dir, self.task_env_config.docker_image)
        grants = [Bind(path, path) for path in self._visible]
        for mount in self._mounts:
            target = PurePosixPath(mount["target"])
            if target.is_relative_to(EnvironmentPaths.logs_dir):
                continue  # Harbor's own log directories: private here, copied out later
            if mount["type"] != "bind":
                raise SandboxStartError(f"only bind mounts work in the sandbox, not {mount}")
            grants.append(Bind(mount["source"], str(target), bool(mount.get("read_only"))))
        base = base_python(self.environment_dir / "Dockerfile")
        self._userland = await asyncio.to_thread(self._make_userland, base)
        plan = plan_box(
            self.limits,
            network=self.network,
            grants=tuple(grants),
            userland=self._userland,
            keeps_state=self._keeps_states,
            installed=self._installed,
        )
        if (stored := self._restored) is not None:
            plan = replace(plan, restored=Restored(stored.index, stored.packs))
        if self._backend == "bubblewrap":
            if os.geteuid() == 0:
                self.logger.warning(AS_ROOT)
            self._box = await start_bubblewrap_box(plan, self.session_id)
        else:
            self._box = await start_box(plan, self.session_id)
        try:
            if self.trial_paths.agent_dir.is_dir():
                pane = self.trial_paths.agent_dir / _PANE.name
                self._tap = await PaneTap.open(self._box, str(_PANE), pane)
            await self._build()
        except BaseException:
            await self.stop(delete=True)
            raise

    def _make_userland(self, base: BasePython) -> Userland:
        cache: WheelCache | None = None
        if not (self.network and reaches_index()):
            try:
                cache = open_cache()
            except WheelCacheError as error:
                raise SandboxStartError(str(error)) from error
        made = userland(base, cache, layered=self._backend == "namespaces")
        if made.note:
            remedy = to_type("tasks", "prefetch", self.environment_dir.parent)
            self.logger.warning("%s: `%s` brings Python along", made.note, remedy)
        return made

    async def _build(self) -> None:
        if self._restored is not None and (saved := self._restored.snapshot.image) is not None:
            self._image = Image(
                saved.workdir, dict(saved.environment), saved.user, entrypoint=saved.entrypoint
            )
            await self._enter()
            return
        self._image = await build_image(
            self.box,
            self.environment_dir / "Dockerfile",
            base=self._userland.environment,
            timeout_sec=self.task_env_config.build_timeout_sec,
            log=self.logger,
            tell=self.on_build,
        )
        await self._enter()
        workdir = self.task_env_config.workdir or self._image.workdir
        if not workdir.startswith("/"):
            workdir = f"/{workdir}"
        self._image = self._image.at(workdir)
        await self.box.make_directories([workdir])

    async def _enter(self) -> None:
        """Start the image's ENTRYPOINT, with the command that Harbor's containers have.

        It runs as long as the box, beside what follows.

        Raises:
            UnbuildableError: it ends at once, as its container would.
        """
        image = self._image
        if not image.entrypoint:
            return
        environment = {
            **self._userland.environment,
            **image.environment,
            **(self._merge_env(None) or {}),
        }
        account = None if image.user in _ROOT_NAMES else image.user
        if account is not None and "HOME" not in image.environment:
            environment.pop("HOME")
        program = asyncio.create_task(
            self.box.run(
                [*image.entrypoint, *_CONTAINER_COMMAND],
                environment=environment,
                cwd=image.workdir,
                user=account,
            ),
            name=f"{self.session_id}: ENTRYPOINT",
        )
        await asyncio.wait([program], timeout=_ENTRY_SEC)
        if not program.done():
            self._entered = program
            program.add_done_callback(self._entry_ended)
            return
        result = program.result()
        said = (result.stderr or result.stdout).strip()[-_QUOTED_OUTPUT:]
        message = f"{self.environment_dir / 'Dockerfile'}: ENTRYPOINT ended at once, with exit code"
        raise UnbuildableError(f"{message} {result.exit_code}, and a container with it: {said}")

    def _entry_ended(self, program: asyncio.Task[CommandResult]) -> None:
        error = None if program.cancelled() else program.exception()
        if not program.cancelled() and error is None:
            self.logger.warning("ENTRYPOINT ended, exit code %d", program.result().exit_code)

    @override
    async def stop(self, delete: bool) -> None:
        """Ends the box. It leaves nothing, so `delete` makes no difference."""
        box, self._box = self._box, None
        if self._entered is not None:
            self._entered.cancel()
        try:
            if box is not None:
                # To its end even when this task is cancelled meanwhile.
                await asyncio.shield(box.stop())
        finally:
            if self._tap is not None:
                self._tap.close()
                self._tap = None

    @override
    async def exec(
        self,
        command: str,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        timeout_sec: int | None = None,
        user: str | int | None = None,
    ) -> ExecResult:
        """Runs a command to its end.

        Raises:
            ExecTimeoutError: it took longer than `timeout_sec`.
            SandboxLostError: the box is gone.
        """
        account, environment = self._identity(user, env)
        if (script := script_run(command)) is not None:
            status, self.script_end = await self.box.run_script(
                script.script,
                script.output,
                environment=environment,
                cwd=cwd or self._image.workdir,
                user=account,
                timeout_sec=timeout_sec,
            )
            return ExecResult(stdout="", stderr="", return_code=status)
        argv = direct_argv(command)
        if account is None and argv is not None and await self._made_executable(argv):
            return ExecResult(stdout="", stderr="", return_code=0)
        async with streamed(self._output_callback()) as sink:
            result = await self.box.run(
                argv or ["/bin/bash", "-c", command],
                environment=environment,
                cwd=cwd or self._image.workdir,
                user=account,
                timeout_sec=timeout_sec,
                sink=sink,
                may_be_gone=cwd is None,
            )
        return ExecResult(stdout=result.stdout, stderr=result.stderr, return_code=result.exit_code)

    async def _made_executable(self, argv: Sequence[str]) -> bool:
        """Harbor's `chmod +x` of each script that it is about to run, without a program for it."""
        if argv[:2] != ["chmod", "+x"] or len(argv) != 3 or not argv[2].startswith("/"):
            return False
        try:
            await self.box.make_executable(argv[2])
        except OSError:
            return False  # chmod itself says why
        return True

    async def open_program(
        self, argv: Sequence[str], *, user: str | int | None = None
    ) -> socket.socket:
        """Starts a program as `exec` would; it reads and writes the other end of the socket.

        Raises:
            SandboxLostError: the box is gone.
        """
        account, environment = self._identity(user, None)
        return await self.box.open_program(
            argv,
            environment=environment,
            cwd=self._image.workdir,
            user=account,
            may_be_gone=True,
        )

    async def listen(self, port: int) -> socket.socket | None:
        """A socket on the box's own loopback; None: it shares the host's."""
        return None if self.network else await self.box.listen(port)

    def _identity(
        self, user: str | int | None, env: dict[str, str] | None
    ) -> tuple[str | None, dict[str, str]]:
        """A command's account, None for root, and its environment variables."""
        resolved = self._resolve_user(user)
        account = str(resolved) if resolved is not None else self._image.user
        environment = {
            **self._userland.environment,
            **self._image.environment,
            **(self._merge_env(env) or {}),
        }
        if account in _ROOT_NAMES:
            return None, environment
        if "HOME" not in self._image.environment:
            environment.pop("HOME")  # the account's own, from the box's /etc/passwd
        return account, environment

    @override
    async def ensure_dirs(self, dirs: Any, *, chmod: bool = True) -> ExecResult | None:
        """As Harbor's, without starting programs for it."""
        if dirs:
            paths = [str(path) for path in dirs]
            await self.box.make_directories(paths, 0o777 if chmod else None)
        return None

    @override
    async def empty_dirs(self, dirs: Any, *, chmod: bool = True) -> ExecResult | None:
        """As Harbor's, but out of reach of what runs in the box."""
        if dirs:
            paths = [str(path) for path in dirs]
            await self.box.empty_directories(paths, 0o777 if chmod else 0o755)
        return None

    @override
    async def is_dir(self, path: str, user: str | int | None = None) -> bool:
        mode = await self.box.mode_of(path)
        return mode is not None and stat.S_ISDIR(mode)

    @override
    async def is_file(self, path: str, user: str | int | None = None) -> bool:
        mode = await self.box.mode_of(path)
        return mode is not None and stat.S_ISREG(mode)

    @override
    async def upload_file(self, source_path: Path | str, target_path: str) -> None:
        target = str(target_path)
        if await self.is_dir(target):
            target = f"{target.rstrip('/')}/{Path(source_path).name}"
        await upload_file(self.box, Path(source_path), target)

    @override
    async def upload_dir(self, source_dir: Path | str, target_dir: str) -> None:
        await upload_tree(self.box, Path(source_dir), str(target_dir))

    @override
    async def download_file(self, source_path: str, target_path: Path | str) -> None:
        target = Path(target_path)
        make_directory(target.parent)
        if await self.box.get(str(source_path), target) != 1:
            raise SandboxError(f"{source_path} in the sandbox is not one regular file")

    @override
    async def download_dir(self, source_dir: str, target_dir: Path | str) -> None:
        """Copies regular files and directories; links and special files stay behind.

        Of a log of more than 16 MiB the beginning and the end are copied.

        What the host already has in the trial's agent directory is its own record and is not
        replaced by what the box put under the same name.
        """
        target = Path(target_dir)
        make_directory(target)
        own_record = target == Path(self.trial_paths.agent_dir)
        if own_record and self._tap is not None:
            self._tap.drain()
        log = any(PurePosixPath(source_dir).is_relative_to(place) for place in _LOG_DIRECTORIES)
        await self.box.get(
            str(source_dir),
            target,
            overwrite=not own_record,
            note=self.logger.warning,
            longest=_LONGEST_LOG if log else 0,
        )

    async def changed_file(self, sources: Sequence[Path], target: str) -> str | None:
        """The first file below `target` that isn't as in the directories uploaded there."""
        return await changed_file(self.box, sources, target)

    async def has_room(self, sources: Sequence[Path]) -> bool:
        """Whether its disk takes what is below these directories, and a few small files."""
        files = [path for source in sources for path in source.rglob("*") if path.is_file()]
        free, inodes = await self.box.room()
        needed = sum(-(-path.stat().st_size // _PAGE) * _PAGE for path in files)
        return free >= needed + _SMALL_FILES * _PAGE and inodes >= len(files) + _SMALL_FILES

    async def end_processes(self) -> None:
        """Kills every process in the box, daemons and the terminal included.

        Raises:
            SandboxError: one of them does not go.
        """
        try:
            await self.box.end_processes()
        except OSError as error:
            raise SandboxError(f"the box can't be cleared: {error.strerror}") from error

    async def mark_programs(self) -> None:
        """Takes the programs that are there now for unchanged."""
        await self.box.mark_programs()

    async def changed_programs(self) -> str:
        """The first program or library that was changed since; empty: none was."""
        return await self.box.changed_programs()

    async def report(self) -> BoxReport:
        """What the box did to itself, and others to it. Raises SandboxLostError."""
        return await self.box.report()

    async def damage(self) -> str:
        """What the box has used up just now, so that nothing more can run in it. Raises
        SandboxLostError."""
        used_up = (await self.report()).used_up
        return used_up and f"used up {used_up}"

    async def make_room(self) -> None:
        """For the verifier: ends a bomb that goes on, and gives up the box's reserve of disk."""
        await self.box.make_room()

    def keep_states(self) -> None:
        """Let its shells save what is in no file. Call it before `start`."""
        self._keeps_states = True

    async def has_state(self, stored: StoredSnapshot) -> bool:
        """Whether it is a sandbox's."""
        return stored.snapshot.image is not None

    def begin_from(self, stored: StoredSnapshot) -> None:
        """Start with these files, and build nothing. Call it before `start`."""
        self._restored = stored

    async def save_state(
        self, store: SnapshotStore, draft: Snapshot, terminal: TerminalSnapshot
    ) -> Snapshot:
        """Save all that was written in the box, as the snapshot of `draft.turn`.

        Raises:
            SandboxError: it is too much, or can't be written; the text says which.
        """
        turn = draft.turn
        before = [
            each
            for each in store.turns()[-1:]
            if (was := store.read(each)) and len(was.packs) < MOST_PACKS
        ]
        with contextlib.ExitStack() as files:
            try:
                store.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
                index = files.enter_context(store.index(turn).open("w+b"))
                pack = files.enter_context(store.pack(turn).open("w+b"))
                previous = [files.enter_context(open_plain(store.index(each))) for each in before]
            except OSError as error:
                raise SandboxError(f"no snapshot: {error.strerror}") from error
            saved = await self.box.save(
                index.fileno(),
                pack.fileno(),
                turn,
                store.max_bytes,
                previous[0].fileno() if previous else None,
            )
        if not saved.written:
            store.pack(turn).unlink(missing_ok=True)
        image = self._image
        return msgspec.structs.replace(
            draft,
            image=SavedImage(
                workdir=image.workdir,
                environment=image.environment,
                user=image.user,
                entrypoint=image.entrypoint,
            ),
            packs=tuple(sorted(saved.packs - ({turn} if not saved.written else set()))),
            written=saved.written,
            total=saved.total,
            programs=terminal.programs(saved.processes),
            not_at_prompt=terminal.not_at_prompt(saved.processes, saved.prompt),
        )

    async def show(self, screen: str) -> None:
        """Let the next shell restore itself, and show this first, as `printf` reads it."""
        with tempfile.TemporaryFile() as file:
            file.write(screen.encode())
            file.seek(0)
            await self.box.put_file(file.fileno(), SCREEN, mode=0o666)

    async def freeze(self) -> None:
        """Stops every process in the box until `thaw`; `exec` still works meanwhile."""
        await self.box.freeze()

    async def thaw(self) -> None:
        """Lets the box's processes go on."""
        await self.box.thaw()
