"""The GPUs of this machine, through NVIDIA's management library (NVML)."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import psutil

from tbtui.journal.events import GpuMeasured

EXTRA = "uv sync --extra nvidia"


@dataclass(frozen=True, slots=True)
class LocalGpus:
    """What there is on this machine."""

    gpus: tuple[GpuMeasured, ...] = ()
    driver: str = ""
    """Its version."""
    problem: str = ""
    """Why none can be seen; empty where some are."""
    package_missing: bool = False
    """The one that asks the driver is not installed."""


def local_gpus() -> LocalGpus:
    """Look once. A driver in trouble may block for long: not for an event loop."""
    try:
        # Not a plain import: it comes with an extra, and has no types.
        nvml = importlib.import_module("pynvml")
    except ImportError:
        return LocalGpus(problem="nvidia-ml-py is not installed", package_missing=True)
    try:
        nvml.nvmlInit()
        try:
            return _all(nvml)
        finally:
            nvml.nvmlShutdown()
    except nvml.NVMLError as error:
        return LocalGpus(problem=f"no NVIDIA driver can be asked ({error})")


def _all(nvml: Any) -> LocalGpus:
    count = nvml.nvmlDeviceGetCount()
    own = _own_pids() if count else frozenset()
    return LocalGpus(
        tuple(_gpu(nvml, index, own) for index in range(count)),
        _text(nvml.nvmlSystemGetDriverVersion()),
        "" if count else "the NVIDIA driver knows of none",
    )


def _gpu(nvml: Any, index: int, own: frozenset[int]) -> GpuMeasured:
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
        )
    except nvml.NVMLError as error:
        # It fell off the bus, say; the others still work.
        return GpuMeasured(index=index, name="", problem=str(error))


def _own_pids() -> frozenset[int]:
    """Of this process and all that it has started, directly or not. In a container the driver
    may know them by other numbers: then none of them is found."""
    return frozenset(
        {os.getpid(), *(each.pid for each in psutil.Process().children(recursive=True))}
    )


def _text(value: str | bytes) -> str:
    """Older releases of the package give bytes."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
