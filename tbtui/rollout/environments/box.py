"""One box, seen by its owner: run commands in it, move files, end it."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import functools
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tbtui.rollout.environments.base import (
    ExecTimeoutError,
    SandboxError,
    ScriptEnd,
)
from tbtui.rollout.environments.cgroups import BoxCgroup, SessionWeights
from tbtui.rollout.environments.channel import BoxAnswer, ControlChannel
from tbtui.rollout.environments.ledger import Ledger
from tbtui.rollout.environments.limits import BoxReport, machine_memory_kills
from tbtui.rollout.environments.output import OutputReader
from tbtui.rollout.environments.plan import BoxPlan
from tbtui.rollout.environments.transfer import receive

_KILL_SECONDS = 5.0
_DOWNLOAD_SECONDS = 60.0
_SAVE_SECONDS = 60.0
_MAX_SUMMARY = 1 << 20
_log = logging.getLogger(__name__)

StreamName = Literal["stdout", "stderr"]
OutputSink = Callable[[StreamName, bytes], None]
"""Called with each chunk as it arrives."""


@dataclass(frozen=True, slots=True)
class CommandResult:
    """`exit_code` is 128 + the signal's number for a command that was killed."""

    exit_code: int
    stdout: str
    stderr: str


@dataclass(frozen=True, slots=True)
class SavedBox:
    """What a snapshot of a box has."""

    written: int
    """Bytes of its pack."""
    total: int
    """Bytes of all files in it."""
    packs: frozenset[int]
    """That its index points into."""
    prompt: str
    """What the shell has shown last; empty: it isn't known."""
    processes: tuple[tuple[int, int, str], ...]
    """Process, parent and command line of all that ran."""

    @classmethod
    def read(cls, lines: Sequence[str]) -> SavedBox:
        """The summary that `box_snapshot` has written. Raises `SandboxError`: it says why not."""
        try:
            written, total, packs, prompt = lines[0].split()
            processes = (line.split(" ", 2) for line in lines[1:])
            return cls(
                int(written),
                int(total),
                frozenset(int(pack) for pack in packs.split(",") if pack != "-"),
                "" if prompt == "-" else bytes.fromhex(prompt).decode(errors="replace"),
                tuple((int(pid), int(parent), command) for pid, parent, command in processes),
            )
        except (IndexError, ValueError):
            said = lines[0].removeprefix("error ") if lines else "it was cut off"
            raise SandboxError(f"no snapshot: {said}") from None


class Box:
    """A running box. Made by `box_start.start_box`; used on the event loop it was started on."""

    def __init__(
        self,
        name: str,
        plan: BoxPlan,
        channel: ControlChannel,
        process: asyncio.subprocess.Process,
        cgroup: BoxCgroup,
        ledger: Ledger,
    ) -> None:
        self.name = name
        self.init_pid: int | None = None
        """The host's number for process 1 of the box."""
        self._plan = plan
        self._channel = channel
        self._process = process
        self._cgroup = cgroup
        self._weights: SessionWeights | None = None
        self._ledger = ledger
        self._readers: list[OutputReader] = []

    @property
    def network(self) -> bool:
        """Whether it shares the host's network."""
        return self._plan.network

    @property
    def lost(self) -> str | None:
        """Why the box is gone, or None while it runs."""
        return self._channel.lost

    async def run(
        self,
        argv: Sequence[str],
        *,
        environment: Mapping[str, str],
        cwd: str = "/",
        user: str | None = None,
        timeout_sec: float | None = None,
        sink: OutputSink | None = None,
        may_be_gone: bool = False,
    ) -> CommandResult:
        """Runs a command to its end, whatever daemons it leaves.

        Of each output stream the first and last 4 MiB are kept. With `may_be_gone` it runs in `/`
        where there is no directory `cwd`.

        Raises:
            ExecTimeoutError: it ran longer than `timeout_sec`; its process group was killed.
            SandboxLostError: the box died.
            SandboxError: the box can't start another process.
        """
        loop = asyncio.get_running_loop()
        pipes = [os.pipe(), os.pipe()]
        readers = []
        names: tuple[StreamName, StreamName] = ("stdout", "stderr")
        for name, (end, _) in zip(names, pipes, strict=True):
            on_chunk = None if sink is None else functools.partial(sink, name)
            readers.append(OutputReader(loop, end, on_chunk))
        try:
            try:
                number, future = await self._channel.submit(
                    "exec",
                    list(argv),
                    dict(environment),
                    cwd,
                    user,
                    may_be_gone,
                    descriptors=[pipes[0][1], pipes[1][1]],
                )
            finally:
                for _, end in pipes:
                    os.close(end)
            answer = await self._ended(number, future, timeout_sec)
            if answer.detail:
                raise SandboxError(f"can't run a command in the sandbox: {answer.detail}")
            for reader in readers:
                reader.finish()
        except BaseException:
            for reader in readers:
                reader.close()
            raise
        self._readers = [r for r in (*self._readers, *readers) if not r.closed]
        stdout, stderr = (reader.output.text() for reader in readers)
        return CommandResult(answer.status, stdout, stderr)

    async def open_program(
        self,
        argv: Sequence[str],
        *,
        environment: Mapping[str, str],
        cwd: str = "/",
        user: str | None = None,
        may_be_gone: bool = False,
    ) -> socket.socket:
        """Starts a program and returns at once; it reads and writes the other end of the socket.

        Raises:
            SandboxLostError: the box died.
        """
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                arguments = (list(argv), dict(environment), cwd, user, may_be_gone)
                await self._channel.submit("open", *arguments, descriptors=[theirs.fileno()])
            except BaseException:
                ours.close()
                raise
        return ours

    async def run_script(
        self,
        script: str,
        output: str,
        *,
        environment: Mapping[str, str],
        cwd: str,
        user: str | None = None,
        timeout_sec: float | None = None,
    ) -> tuple[int, ScriptEnd]:
        """Runs a test script to its end, with what it prints in the box's file `output`.

        As a child of the box's first process, which nothing in the box can trace or replace: how
        it ended is what the kernel says. It runs in `/` where there is no directory `cwd`.

        Returns:
            The exit status as a shell would give it, and how the script ended.

        Raises:
            ExecTimeoutError, SandboxLostError, SandboxError: as `run`.
        """
        kills = machine_memory_kills()
        number, future = await self._channel.submit(
            "script", output, [script], dict(environment), cwd, user, True
        )
        answer = await self._ended(number, future, timeout_sec)
        if not answer.detail.startswith("ended "):
            raise SandboxError(f"can't run a command in the sandbox: {answer.detail}")
        _, killed_by, limited, reason = answer.detail.split(" ", 3)
        short = int(limited) > 0 or machine_memory_kills() != kills
        return answer.status, ScriptEnd(int(killed_by), reason, memory=short)

    async def _ended(
        self, number: int, future: asyncio.Future[BoxAnswer], timeout_sec: float | None
    ) -> BoxAnswer:
        """The answer of a command; it is killed when that takes too long, or is cancelled."""
        try:
            async with asyncio.timeout(timeout_sec):
                return await future
        except TimeoutError:
            await self._kill(number)
            await asyncio.wait([future], timeout=_KILL_SECONDS)
            raise ExecTimeoutError(f"Command timed out after {timeout_sec} seconds") from None
        except asyncio.CancelledError:
            await self._kill(number)
            raise

    async def is_same(self, path: str, *, source: int | None = None, target: str = "") -> bool:
        """Whether `path` is a regular file with the bytes of the open file `source`, or, without
        one, a symbolic link to `target`."""
        descriptors = [] if source is None else [source]
        try:
            await self._channel.request("same", path, target, descriptors=descriptors)
        except OSError as error:
            if error.errno == errno.EILSEQ:
                return False
            raise
        return True

    async def room(self) -> tuple[int, int]:
        """How many bytes and how many files its disk still takes."""
        answer = await self._channel.request("room")
        free, files = answer.detail.split()
        return int(free), int(files)

    async def end_processes(self) -> None:
        """Kills every process of the box. Raises OSError where one does not go."""
        await self._channel.request("end")

    async def mark_programs(self) -> None:
        """Takes the programs that are there now for unchanged."""
        await self._channel.request("mark_programs")

    async def changed_programs(self) -> str:
        """The first program or library that was changed since; empty: none was."""
        return (await self._channel.request("changed_programs")).detail

    async def make_directories(self, paths: Sequence[str], mode: int | None = None) -> None:
        """`mkdir -p`, and `chmod mode` when one is given. Raises OSError as these would."""
        await self._channel.request("mkdir", list(paths), mode)

    async def empty_directories(self, paths: Sequence[str], mode: int = 0o755) -> None:
        """Makes each path a new, empty directory, whatever was there. Raises OSError."""
        await self._channel.request("empty", list(paths), mode)

    async def put_file(
        self,
        source: int,
        target: str,
        *,
        mode: int,
        owner: str | None = None,
    ) -> None:
        """Writes the open file `source` to `target`, replacing what is there, never through it."""
        await self._channel.request("put", target, mode, owner, descriptors=[source])

    async def put_link(self, target: str, path: str) -> None:
        """A symbolic link at `path`."""
        await self._channel.request("link", path, target)

    async def make_executable(self, path: str) -> None:
        """`chmod +x` of a regular file; raises OSError where it is anything else."""
        await self._channel.request("executable", path)

    async def mode_of(self, path: str) -> int | None:
        """`st_mode` of the file at `path`, links followed inside the box; None: there is none."""
        try:
            answer = await self._channel.request("stat", path)
        except OSError as error:
            if error.errno in {errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.ELOOP}:
                return None
            raise
        return int(answer.detail) if answer.detail.isdigit() else None

    async def get(
        self,
        path: str,
        target: Path,
        *,
        overwrite: bool = True,
        longest: int = 0,
        note: Callable[[str], None] = _log.warning,
        timeout_sec: float = _DOWNLOAD_SECONDS,
    ) -> int:
        """Copies a file, or the files below a directory, to the host; the number of files.

        Links, devices and FIFOs stay behind, and what is more than `transfer.MAX_FILES`. Never
        writes outside `target`.

        Args:
            path: A file or directory in the box.
            target: Where it goes on the host.
            overwrite: Whether files that the host has already are replaced.
            note: Called with a line where there were too many files.
            longest: Most bytes of a file; a larger one is cut in its middle. 0: no limit.
            timeout_sec: For all of it. Something in the box may have stopped the sender.

        Raises:
            SandboxError: there is no such file, it is more than the box may send, or it took
                too long.
        """
        reading, writing = os.pipe()
        pipe = os.fdopen(reading, "rb")
        try:
            number, future = await self._channel.submit("get", path, longest, descriptors=[writing])
        except BaseException:
            pipe.close()
            raise
        finally:
            os.close(writing)

        def write_down() -> int:
            # Closed where it is read: to close it elsewhere waits for the reader to let go of it.
            with pipe:
                return receive(
                    pipe,
                    target,
                    max_bytes=self._plan.limits.download_bytes,
                    overwrite=overwrite,
                    note=note,
                )

        writer = asyncio.get_running_loop().run_in_executor(None, write_down)
        try:
            async with asyncio.timeout(timeout_sec):
                files = await asyncio.shield(writer)
        except BaseException as error:
            # Ends the sender, and with it the thread's stream.
            await self._kill(number)
            await asyncio.wait([writer])
            if isinstance(error, TimeoutError):
                message = f"can't read {path} in the sandbox within {timeout_sec:g} s"
                raise SandboxError(message) from error
            raise
        answer = await future
        if answer.status:
            raise SandboxError(f"can't read {path} in the sandbox: no such file, or not readable")
        return files

    async def open_fifo(self, path: str) -> int:
        """Makes a FIFO in the box; a non-blocking descriptor to read it by, owned by the caller."""
        answer = await self._channel.request("fifo", path)
        if answer.descriptor is None:
            raise SandboxError(f"no FIFO at {path}")
        return answer.descriptor

    async def save(
        self, index: int, pack: int, number: int, limit: int, previous: int | None
    ) -> SavedBox:
        """Writes a snapshot of what the box has written into open files.

        Args:
            index, pack: descriptors of the files to write.
            number: the pack's.
            limit: most bytes of the pack.
            previous: descriptor of the index of the snapshot before; None: there is none.

        Raises:
            SandboxError: it is more, or can't be written; the text says which.
        """
        if sys.platform != "linux":  # refused before
            raise NotImplementedError
        summary = os.memfd_create("box-snapshot", os.MFD_CLOEXEC)
        try:
            files = [index, pack, summary, *([] if previous is None else [previous])]
            asked, future = await self._channel.submit("save", number, limit, descriptors=files)
            await self._ended(asked, future, _SAVE_SECONDS)
            lines = os.pread(summary, _MAX_SUMMARY, 0).decode(errors="replace").splitlines()
        finally:
            os.close(summary)
        return SavedBox.read(lines)

    async def listen(self, port: int) -> socket.socket:
        """A TCP socket that listens on the box's own loopback, served from here.

        Raises:
            OSError: something in the box has that port.
        """
        answer = await self._channel.request("listen", port)
        if answer.descriptor is None:
            raise SandboxError(f"no socket on port {port}")
        return socket.socket(fileno=answer.descriptor)

    async def freeze(self) -> None:
        """Stops every process of the box."""
        await self._channel.request("freeze")

    async def thaw(self) -> None:
        """Lets them go on."""
        await self._channel.request("thaw")

    async def report(self) -> BoxReport:
        """What its first process has counted. Raises SandboxLostError."""
        if sys.platform != "linux":  # refused before
            raise NotImplementedError
        answer = await self._channel.request("report")
        report = BoxReport.read(answer.detail, self._cgroup.memory_kills())
        if "cpu" not in self._cgroup.held and self.init_pid is not None:
            if self._weights is None:
                self._weights = SessionWeights(self.init_pid, len(os.sched_getaffinity(0)))
            await asyncio.to_thread(self._weights.look, report.runnable)
        return report

    async def make_room(self) -> None:
        """Ends what is over the box's limits, and gives up its reserve of disk."""
        await self._channel.request("make_room")

    async def stop(self) -> None:
        """Ends the box and everything in it. Nothing is left, in memory or on disk. Idempotent."""
        self._channel.close("the sandbox was stopped")
        for reader in self._readers:
            reader.close()
        # By the kernel, not by request: it must work on a box that does not answer. The process
        # we started ends when everything in the box has.
        first = self.init_pid if self.init_pid is not None else self._process.pid
        for pid in (first, self._process.pid):
            if self._process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._process.wait(), _KILL_SECONDS)
        await asyncio.to_thread(self._cgroup.remove)
        self._ledger.forget(self.name)

    async def _kill(self, number: int) -> None:
        with contextlib.suppress(SandboxError):
            await self._channel.submit("kill", number)
