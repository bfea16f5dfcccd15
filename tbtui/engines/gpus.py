"""Measures the GPUs of this machine (through NVIDIA's NVML) and of others (`nvidia-smi` through
`ssh`), and journals what they do during training."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import importlib
import os
import socket
import time
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import psutil

from tbtui.engines.monitor import Roots, with_children
from tbtui.journal.events import AnyEvent, GpuMeasured, GpuShare, GpusMeasured
from tbtui.policies.work import in_daemon_thread
from tbtui.terminal import both_ends

PERIOD_SEC = 5.0
GPUS_LOST = "GPUs are not measured"
"""What is missing where the monitor fails, for a person."""
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

EXTRA = "uv sync --extra nvidia"
OTHERS = "others"
"""Role of processes on a GPU that the run has not started."""


@dataclass(frozen=True, slots=True)
class LocalGpus:
    """The GPUs of this machine, or why none can be seen."""

    gpus: tuple[GpuMeasured, ...] = ()
    driver: str = ""
    """Its version."""
    problem: str = ""
    """Why none can be seen; empty where some are."""
    package_missing: bool = False
    """The one that asks the driver is not installed."""


def local_gpus(roots: Roots = ()) -> LocalGpus:
    """Measure once, what processes of `roots` use apart. A driver in trouble may block for long:
    not for an event loop."""
    try:
        # Not a plain import: it comes with an extra, and has no types.
        nvml = importlib.import_module("pynvml")
    except ImportError:
        return LocalGpus(problem="nvidia-ml-py is not installed", package_missing=True)
    try:
        nvml.nvmlInit()
        try:
            return _all(nvml, roots)
        finally:
            nvml.nvmlShutdown()
    except nvml.NVMLError as error:
        return LocalGpus(problem=f"no NVIDIA driver can be asked ({error})")


def _all(nvml: Any, roots: Roots) -> LocalGpus:
    count = nvml.nvmlDeviceGetCount()
    own = _own_pids() if count else frozenset()
    roles = {process.pid: role for role, process in with_children(roots)} if count else {}
    return LocalGpus(
        tuple(_gpu(nvml, index, own, roles) for index in range(count)),
        _text(nvml.nvmlSystemGetDriverVersion()),
        "" if count else "the NVIDIA driver knows of none",
    )


def _gpu(nvml: Any, index: int, own: frozenset[int], roles: Mapping[int, str]) -> GpuMeasured:
    """`own`: process ids. What a GPU can't measure is None, and everything of a lost one."""

    def asked[T](ask: Callable[[], T]) -> T | None:
        try:
            return ask()
        except nvml.NVMLError_GpuIsLost:
            raise
        except nvml.NVMLError:
            return None

    try:
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        use = asked(lambda: nvml.nvmlDeviceGetUtilizationRates(handle))
        memory = asked(lambda: nvml.nvmlDeviceGetMemoryInfo(handle))
        power = asked(lambda: nvml.nvmlDeviceGetPowerUsage(handle))
        sensor = nvml.NVML_TEMPERATURE_GPU
        running = asked(lambda: nvml.nvmlDeviceGetComputeRunningProcesses(handle))
        pids = None if running is None else {int(each.pid) for each in running}
        shares: tuple[GpuShare, ...] = ()
        if running and pids and pids & roles.keys():
            held = {int(each.pid): each.usedGpuMemory for each in running}
            shares = _shares(held, asked(lambda: _process_use(nvml, handle)), roles)
        return GpuMeasured(
            index=index,
            name=_text(nvml.nvmlDeviceGetName(handle)),
            utilisation=None if use is None else use.gpu / 100,
            memory_used_mib=None if memory is None else memory.used >> 20,
            memory_total_mib=None if memory is None else memory.total >> 20,
            power_watt=None if power is None else round(power / 1000),
            temperature_c=asked(lambda: nvml.nvmlDeviceGetTemperature(handle, sensor)),
            processes=None if pids is None else len(pids),
            own_processes=None if pids is None else len(pids & own),
            shares=shares,
        )
    except nvml.NVMLError as error:
        # It fell off the bus, say; the others still work.
        return GpuMeasured(index=index, name="", problem=str(error))


def _process_use(nvml: Any, handle: Any) -> dict[int, float]:
    """Process -> the share of the last period in which it computed on this GPU."""
    since = int((time.time() - PERIOD_SEC) * 1e6)
    try:
        samples = nvml.nvmlDeviceGetProcessUtilization(handle, since)
    except nvml.NVMLError_NotFound:
        return {}  # none of them has computed anything
    found: dict[int, list[int]] = {}
    for sample in samples:
        found.setdefault(int(sample.pid), []).append(int(sample.smUtil))
    return {pid: sum(each) / len(each) / 100 for pid, each in found.items()}


def _shares(
    held: Mapping[int, int | None], use: Mapping[int, float] | None, roles: Mapping[int, str]
) -> tuple[GpuShare, ...]:
    """By role, others last.

    Args:
        held: process -> bytes of the GPU's memory.
        use: process -> share of the time; None: the driver doesn't tell.
    """
    by_role: dict[str, list[int]] = {}
    for pid in held:
        by_role.setdefault(roles.get(pid, OTHERS), []).append(pid)
    shares = []
    for role, pids in sorted(by_role.items(), key=lambda each: (each[0] == OTHERS, each[0])):
        sizes = [size for pid in pids if (size := held[pid]) is not None]
        shares.append(
            GpuShare(
                role=role,
                memory_mib=sum(sizes) >> 20 if sizes else None,
                utilisation=None
                if use is None
                else min(1.0, sum(use.get(pid, 0.0) for pid in pids)),
            )
        )
    return tuple(shares)


def _own_pids() -> frozenset[int]:
    """Ids of this process and all that it has started, directly or not. In a container the driver
    may know them by other numbers: then none of them is found."""
    return frozenset(
        {os.getpid(), *(each.pid for each in psutil.Process().children(recursive=True))}
    )


def _text(value: str | bytes) -> str:
    """Older releases of the package give bytes."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


class GpuMonitor:
    """Looks every few seconds until it is cancelled; without a GPU here and a host to ask, once."""

    def __init__(
        self,
        append: Callable[[AnyEvent], object],
        hosts: Sequence[str] = (),
        *,
        processes: Callable[[], Roots] = lambda: (),
        period_sec: float = PERIOD_SEC,
        remote_period_sec: float = REMOTE_PERIOD_SEC,
    ) -> None:
        """
        Args:
            append: takes an event where GPUs have changed; called on the event loop.
            hosts: other machines, as `ssh` knows them.
            processes: what the run has started here by now.
        """
        self._append = append
        self._processes = processes
        self._here = socket.gethostname()
        self._hosts = tuple(host for host in dict.fromkeys(hosts) if host != self._here)
        self._period = period_sec
        self._remote_period = remote_period_sec
        self._last: dict[str, GpusMeasured] = {}

    async def run(self) -> None:
        """Measure until cancelled, and append. Raises what `append` does."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._watch_here())
                for host in self._hosts:
                    group.create_task(self._watch(host))
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from failed

    async def _watch_here(self) -> None:
        if not (await in_daemon_thread(functools.partial(local_gpus, ()), "nvml")).gpus:
            return  # which `tbtui doctor` explains
        while True:
            measure = functools.partial(local_gpus, tuple(self._processes()))
            found = await in_daemon_thread(measure, "nvml")
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
    """A machine's answer is no table of GPUs; the message is one line for a person."""


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
            out, err = await asyncio.gather(_text_of(process.stdout), _text_of(process.stderr))
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


async def _text_of(stream: asyncio.StreamReader) -> str:
    """The first `_MOST_BYTES`; the rest is read and dropped, for ssh must not wait."""
    kept = bytearray()
    while chunk := await stream.read(_MOST_BYTES):
        kept += chunk[: _MOST_BYTES - len(kept)]
    return kept.decode("utf-8", "replace")


def _last_line(text: str) -> str:
    lines = [" ".join(line.split()) for line in text.splitlines() if line.strip()]
    return both_ends(lines[-1], _LONGEST_REASON) if lines else ""
