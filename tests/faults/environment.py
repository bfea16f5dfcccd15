"""The sandbox, with faults on order.

Plugged in by import path with the kwarg `orders`: a JSON file of trial -> order, so that each trial
of one run can have a fault of its own. A retry (`NAME-retry1`) follows its first attempt's order
while that has faulty attempts left.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import re
import signal
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, override

from harbor.environments.base import ExecResult

from tbtui.rollout.environments.sandbox import SandboxEnvironment
from tbtui.rollout.session import tmux_line

IMPORT_PATH = "tests.faults.environment:FaultyEnvironment"
_SEND_KEYS = tmux_line(["send-keys"])
_RETRY = re.compile(r"-retry(\d+)$")

FaultName = Literal[
    "start_raises",
    "start_hangs",
    "start_disk_full",
    "box_killed",  # its first process, at the `at`-th keystrokes; 0: at the first command
    "box_killed_verifying",
    "box_stopped",  # SIGSTOP: nothing in it answers any more, nothing fails
    "exec_hangs",  # from the `at`-th keystrokes on, time limits ignored
    "exec_raises",  # from the `at`-th keystrokes on
    "exec_raises_once",
    "tests_upload_fails",
    "test_script_vanishes",
    "verdict_download_fails",
    "agent_logs_download_fails",
    "stop_raises",
    "stop_hangs",
]


@dataclass(frozen=True, slots=True)
class Order:
    """What goes wrong in a trial's environment, and in how many of its attempts."""

    fault: FaultName
    at: int = 1
    attempts: int = 1_000


def attempt_of(trial: str) -> tuple[str, int]:
    """The name of the first attempt, and which attempt this is, from 1."""
    if match := _RETRY.search(trial):
        return trial[: match.start()], int(match[1]) + 1
    return trial, 1


def write_orders(path: Path, orders: dict[str, Order]) -> None:
    told = {trial: [o.fault, o.at, o.attempts] for trial, o in orders.items()}
    path.write_text(json.dumps(told))


def _order(path: Path, trial: str) -> Order | None:
    name, attempt = attempt_of(trial)
    told = json.loads(path.read_text()).get(name)
    if told is None:
        return None
    order = Order(*told)
    return order if attempt <= order.attempts else None


async def _for_ever() -> None:
    await asyncio.Event().wait()


class FaultyEnvironment(SandboxEnvironment):
    """Writes the first processes of its boxes into `orders`' neighbour `boxes.txt`, so that a
    check for leaks knows them whatever becomes of their parents."""

    def __init__(self, *args: Any, orders: str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._orders = Path(orders)
        self._order = _order(self._orders, self.session_id.removesuffix("__env"))
        self._typed = 0
        self._passing: asyncio.Task[None] | None = None

    def _is(self, *faults: FaultName) -> bool:
        return self._order is not None and self._order.fault in faults

    def _note_box(self) -> None:
        pids = [self.box.init_pid, self.box._process.pid]
        with self._orders.with_name("boxes.txt").open("a") as file:
            file.writelines(f"{pid}\n" for pid in pids if pid is not None)

    def _signal_box(self, number: signal.Signals) -> None:
        pid = self.box.init_pid or self.box._process.pid
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)

    @override
    async def start(self, force_build: bool) -> None:
        if self._is("start_raises"):
            raise ConnectionError("ordered: the sandbox's host refused")
        if self._is("start_disk_full"):
            raise OSError(errno.ENOSPC, "ordered: no space left on device")
        if self._is("start_hangs"):
            await _for_ever()
        await super().start(force_build)
        self._note_box()

    @override
    async def exec(
        self,
        command: str,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        timeout_sec: int | None = None,
        user: str | int | None = None,
    ) -> ExecResult:
        await self._spoil_exec(command)
        return await super().exec(command, cwd, env, timeout_sec, user)

    async def _spoil_exec(self, command: str) -> None:
        if "/tests/test.sh)" in command and self._is("box_killed_verifying"):
            self._signal_box(signal.SIGKILL)
        await self._spoil(typed=command.count("send-keys"))

    async def _spoil(self, typed: int) -> None:
        """Before something is run that types so often."""
        order = self._order
        if order is None:
            return
        self._typed += typed
        if self._typed < order.at:
            return
        now = self._typed == order.at and (typed > 0 or order.at == 0)
        match order.fault:
            case "box_killed" if now:
                self._signal_box(signal.SIGKILL)
            case "box_stopped" if now:
                self._signal_box(signal.SIGSTOP)
            case "exec_hangs":
                await _for_ever()
            case "exec_raises":
                raise OSError(errno.EIO, "ordered: input/output error")
            case "exec_raises_once" if now:
                raise OSError(errno.EIO, "ordered: input/output error")
            case _:
                pass

    @override
    async def open_program(
        self, argv: Sequence[str], *, user: str | int | None = None
    ) -> socket.socket:
        """The terminal's client, whose typing is spoiled on its way."""
        if self._is("box_killed_verifying") or self._order is None:
            return await super().open_program(argv, user=user)
        ours, theirs = socket.socketpair()
        if self._is("exec_raises", "exec_raises_once"):
            ours.close()  # without a client each command is run by itself
            return theirs
        program = await super().open_program(argv, user=user)
        self._passing = asyncio.create_task(self._pass_on(ours, program))
        return theirs

    async def _pass_on(self, typing: socket.socket, program: socket.socket) -> None:
        async def pump(source: socket.socket, sink: socket.socket) -> None:
            while data := await loop.sock_recv(source, 1 << 16):
                if source is typing:
                    await self._spoil(typed=data.count(_SEND_KEYS))
                await loop.sock_sendall(sink, data)

        loop = asyncio.get_running_loop()
        with typing, program:
            for end in (typing, program):
                end.setblocking(False)
            pumps = {asyncio.create_task(pump(*ends)) for ends in
                     ((typing, program), (program, typing))}  # fmt: skip
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            for task in pumps:
                task.cancel()
            await asyncio.wait(pumps)

    @override
    async def upload_dir(self, source_dir: Path | str, target_dir: str) -> None:
        for_tests = str(target_dir).rstrip("/") == "/tests"
        if for_tests and self._is("tests_upload_fails"):
            raise OSError(errno.ENOSPC, "ordered: no space left on device")
        await super().upload_dir(source_dir, target_dir)
        if for_tests and self._is("test_script_vanishes"):
            await super().exec("rm /tests/test.sh")

    @override
    async def download_dir(self, source_dir: str, target_dir: Path | str) -> None:
        role = Path(source_dir).name
        if role == "verifier" and self._is("verdict_download_fails"):
            raise OSError(errno.ENOSPC, "ordered: no space left on device")
        if role == "agent" and self._is("agent_logs_download_fails"):
            raise OSError(errno.ENOSPC, "ordered: no space left on device")
        await super().download_dir(source_dir, target_dir)

    @override
    async def stop(self, delete: bool) -> None:
        # The box itself is ended first: what is tried is how the trial takes the failure.
        await super().stop(delete)
        if self._is("stop_raises"):
            raise RuntimeError("ordered: the sandbox could not be deleted")
        if self._is("stop_hangs"):
            await _for_ever()
