"""A stand-in for nvidia-ml-py's module `pynvml`: no machine of ours has an NVIDIA GPU. The names,
units and exceptions are those of nvidia-ml-py 13."""

from __future__ import annotations

import time
import types
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


class NVMLError(Exception):
    pass


class NVMLError_LibraryNotFound(NVMLError):  # noqa: N801 - its name there
    def __str__(self) -> str:
        return "NVML Shared Library Not Found"


class NVMLError_NotSupported(NVMLError):  # noqa: N801
    def __str__(self) -> str:
        return "Not Supported"


class NVMLError_NotFound(NVMLError):  # noqa: N801
    def __str__(self) -> str:
        return "Not Found"


class NVMLError_GpuIsLost(NVMLError):  # noqa: N801
    def __str__(self) -> str:
        return "GPU is lost"


@dataclass
class Device:
    """One GPU; an exception in place of a value is raised when the value is asked for."""

    name: str | bytes = "NVIDIA H100 80GB HBM3"
    use: int | NVMLError = 0
    used: int = 2 << 30
    total: int | NVMLError = 80 << 30
    milliwatts: int | NVMLError = 74_400
    temperature: int | NVMLError = 31
    pids: list[int] = field(default_factory=list)
    held: dict[int, int | None] = field(default_factory=dict)
    """Process -> bytes; None: the driver doesn't tell, as in some containers."""
    process_use: dict[int, list[int]] | NVMLError = field(default_factory=dict)
    """Process -> percent, a sample each."""
    handle: NVMLError | None = None


def stand_in_nvml(devices: list[Device], without_driver: bool = False) -> types.ModuleType:
    """Such a module over `devices`, which may change; `open` of it counts what is not shut down."""
    module: Any = types.ModuleType("pynvml")
    module.NVMLError = NVMLError
    module.NVMLError_NotSupported = NVMLError_NotSupported
    module.NVMLError_NotFound = NVMLError_NotFound
    module.NVMLError_GpuIsLost = NVMLError_GpuIsLost
    module.NVML_TEMPERATURE_GPU = 0
    module.open = 0

    def init() -> None:
        if without_driver:
            raise NVMLError_LibraryNotFound
        module.open += 1

    def shutdown() -> None:
        module.open -= 1

    def handle(index: int) -> Device:
        device = devices[index]
        return device if device.handle is None else _value(device.handle)

    def of(ask: Callable[..., Any]) -> Callable[..., Any]:
        return lambda device, *_: ask(device)

    module.nvmlInit, module.nvmlShutdown = init, shutdown
    module.nvmlDeviceGetCount = lambda: len(devices)
    module.nvmlDeviceGetHandleByIndex = handle
    module.nvmlSystemGetDriverVersion = lambda: "580.65.06"
    module.nvmlDeviceGetName = of(lambda device: device.name)
    module.nvmlDeviceGetUtilizationRates = of(
        lambda device: types.SimpleNamespace(gpu=_value(device.use), memory=0)
    )
    module.nvmlDeviceGetMemoryInfo = of(
        lambda device: types.SimpleNamespace(used=device.used, total=_value(device.total))
    )
    module.nvmlDeviceGetPowerUsage = of(lambda device: _value(device.milliwatts))
    module.nvmlDeviceGetTemperature = of(lambda device: _value(device.temperature))
    module.nvmlDeviceGetComputeRunningProcesses = of(
        lambda device: [
            types.SimpleNamespace(pid=pid, usedGpuMemory=device.held.get(pid))
            for pid in device.pids
        ]
    )
    module.nvmlDeviceGetProcessUtilization = lambda device, since: _samples(device, since)
    return module


def _samples(device: Device, since: int) -> list[Any]:
    """`since`: microseconds since the epoch; all samples are a second old."""
    moment = int((time.time() - 1) * 1e6)
    found = [
        types.SimpleNamespace(pid=pid, timeStamp=moment, smUtil=percent, memUtil=0)
        for pid, percents in _value(device.process_use).items()
        for percent in percents
        if moment > since
    ]
    if not found:
        raise NVMLError_NotFound
    return found


def _value(value: Any) -> Any:
    if isinstance(value, NVMLError):
        raise value
    return value
