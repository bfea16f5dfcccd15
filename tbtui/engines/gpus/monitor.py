"""Journals what the GPUs of this machine, and of others through `ssh`, do during training."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Callable, Sequence

from tbtui.engines.gpus.nvml import local_gpus
from tbtui.journal.events import AnyEvent, GpuMeasured, GpusMeasured
from tbtui.policies.threads import in_daemon_thread

PERIOD_SEC = 5.0
REMOTE_PERIOD_SEC = 15.0
"""A login each time."""

_FIELDS = (
    *("index", "name", "utilization.gpu", "memory.used", "memory.total"),
    *("power.draw", "temperature.gpu"),
)
_NUMBERS = 5
"""Fields behind the name, which may have commas in it."""
COMMAND = f"nvidia-smi --query-gpu={','.join(_FIELDS)} --format=csv,noheader,nounits"
_CONNECT_SEC = 5
_ANSWER_SEC = 15.0
_MOST_BYTES = 1 << 16
_LONGEST_REASON = 200


class GpuMonitor:
    """Looks every few seconds until it is cancelled; without a GPU here and a host to ask, once."""

    def __init__(
        self,
        append: Callable[[AnyEvent], object],
        hosts: Sequence[str] = (),
        *,
        period_sec: float = PERIOD_SEC,
        remote_period_sec: float = REMOTE_PERIOD_SEC,
    ) -> None:
        """
        Args:
            append: takes an event where GPUs have changed; called on the event loop.
            hosts: other machines, as `ssh` knows them.
        """
        self._append = append
        self._here = socket.gethostname()
        self._hosts = tuple(host for host in dict.fromkeys(hosts) if host != self._here)
        self._period = period_sec
        self._remote_period = remote_period_sec
        self._last: dict[str, GpusMeasured] = {}

    async def run(self) -> None:
        """Raises what `append` does."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._watch_here())
                for host in self._hosts:
                    group.create_task(self._watch(host))
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from failed

    async def _watch_here(self) -> None:
        seen = False
        while True:
            found = await in_daemon_thread(local_gpus, "nvml")
            if not found.gpus and not seen:
                return  # which `tbtui doctor` explains
            seen = True
            self._tell(GpusMeasured(host=self._here, gpus=found.gpus, unreachable=found.problem))
            await asyncio.sleep(self._period)

    async def _watch(self, host: str) -> None:
        while True:
            self._tell(await remote_gpus(host))
            await asyncio.sleep(self._remote_period)

    def _tell(self, measured: GpusMeasured) -> None:
        if self._last.get(measured.host) != measured:
            self._last[measured.host] = measured
            self._append(measured)


class UnreadableError(Exception):
    """What a machine answered is no table of GPUs; the message is one line for a person."""


async def remote_gpus(host: str, answer_sec: float = _ANSWER_SEC) -> GpusMeasured:
    """Ask `host`, a name that `ssh` knows; one that can't be asked is reported as such. Never asks
    a person for anything: a key must open the machine."""
    try:
        process = await asyncio.create_subprocess_exec(
            "ssh",
            *("-o", "BatchMode=yes", "-o", f"ConnectTimeout={_CONNECT_SEC}"),
            *("--", host, COMMAND),
            stdin=DEVNULL,
            stdout=PIPE,
            stderr=PIPE,
            # Our terminal is not for it to talk to, and our ctrl-c not for it to hear.
            start_new_session=True,
        )
    except OSError as error:
        return GpusMeasured(host=host, gpus=(), unreachable=f"ssh can't be run: {error.strerror}")
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        async with asyncio.timeout(answer_sec):
            out, err = await asyncio.gather(_all(process.stdout), _all(process.stderr))
            status = await process.wait()
    except TimeoutError:
        return GpusMeasured(
            host=host, gpus=(), unreachable=f"no answer through ssh in {answer_sec:g} s"
        )
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    if status != 0:
        reason = _last_line(err) or _last_line(out) or f"ssh ended with status {status}"
        return GpusMeasured(host=host, gpus=(), unreachable=reason)
    try:
        return GpusMeasured(host=host, gpus=read_table(out))
    except UnreadableError as error:
        return GpusMeasured(host=host, gpus=(), unreachable=str(error))


def read_table(text: str) -> tuple[GpuMeasured, ...]:
    """The rows that `COMMAND` prints; what a login shell prints around them is passed over.

    Raises:
        UnreadableError: there is no row at all.
    """
    gpus = tuple(gpu for line in text.splitlines() if (gpu := _row(line)) is not None)
    if not gpus:
        said = _last_line(text)
        raise UnreadableError(f"nvidia-smi says: {said}" if said else "nvidia-smi says nothing")
    return gpus


def _row(line: str) -> GpuMeasured | None:
    cells = [cell.strip() for cell in line.split(",")]
    if len(cells) < len(_FIELDS) or not cells[0].isdecimal():
        return None
    use, used, total, power, temperature = (_number(cell) for cell in cells[-_NUMBERS:])
    return GpuMeasured(
        index=int(cells[0]),
        name=", ".join(cells[1:-_NUMBERS]),
        utilisation=None if use is None else use / 100,
        memory_used_mib=_whole(used),
        memory_total_mib=_whole(total),
        power_watt=_whole(power),
        temperature_c=_whole(temperature),
    )


def _number(cell: str) -> float | None:
    """None for `[N/A]`, `[Not Supported]`, `[Unknown Error]` and the like."""
    try:
        value = float(cell)
    except ValueError:
        return None
    return value if 0 <= value < 1e9 else None


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)


async def _all(stream: asyncio.StreamReader) -> str:
    """The first `_MOST_BYTES`; the rest is read and dropped, for ssh must not wait."""
    kept = bytearray()
    while chunk := await stream.read(_MOST_BYTES):
        kept += chunk[: _MOST_BYTES - len(kept)]
    return kept.decode("utf-8", "replace")


def _last_line(text: str) -> str:
    lines = [" ".join(line.split()) for line in text.splitlines() if line.strip()]
    return lines[-1][:_LONGEST_REASON] if lines else ""
