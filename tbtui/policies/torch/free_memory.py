"""Memory that is free for a model on this machine, asked without importing torch."""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import platform
import shutil
import subprocess
import sys
from dataclasses import dataclass
from typing import Literal

import psutil

_ANSWER_SEC = 10.0

Kind = Literal["cuda", "mps", "cpu"]


@dataclass(frozen=True, slots=True)
class Memory:
    """One device's memory, in bytes."""

    kind: Kind
    label: str
    """`RAM`, `cuda:0 (NVIDIA H100)`."""
    total: int
    free: int


def free_memory(device: str) -> Memory:
    """What is free on the device that `train_device` names; "auto": the first GPU, else the CPU.

    A device that can't be asked counts as the CPU: the trainer itself refuses one that isn't there.
    """
    kind, _, number = device.partition(":")
    if kind in ("auto", "cuda") and not _cpu_build():
        found = _gpu(int(number) if number.isdecimal() else 0)
        if found is not None:
            return found
    ram = psutil.virtual_memory()
    apple = sys.platform == "darwin" and platform.machine() == "arm64"
    if apple and kind in ("auto", "mps"):
        return Memory("mps", "mps (memory shared with the CPU)", ram.total, ram.available)
    return Memory("cpu", "RAM", ram.total, ram.available)


def _cpu_build() -> bool:
    """Whether the installed PyTorch is one for CPUs alone."""
    try:
        return importlib.metadata.version("torch").endswith("+cpu")
    except importlib.metadata.PackageNotFoundError:
        return False


def _gpu(number: int) -> Memory | None:
    """The GPU that torch calls `cuda:NUMBER`, as NVML or else nvidia-smi measures it."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        id = str(number)
    else:
        ids = [each.strip() for each in visible.split(",") if each.strip()]
        if number >= len(ids) or ids[number] == "-1":
            return None
        id = ids[number]
    found = _by_nvml(id) or _by_nvidia_smi(id)
    if found is None:
        return None
    name, total, free = found
    return Memory("cuda", f"cuda:{number} ({name})", total, free)


def _by_nvml(id: str) -> tuple[str, int, int] | None:
    try:
        # Not a plain import: it comes with an extra, and has no types.
        nvml = importlib.import_module("pynvml")
    except ImportError:
        return None
    try:
        nvml.nvmlInit()
        try:
            by_index = id.isdecimal()
            handle = (
                nvml.nvmlDeviceGetHandleByIndex(int(id))
                if by_index
                else nvml.nvmlDeviceGetHandleByUUID(id)
            )
            memory = nvml.nvmlDeviceGetMemoryInfo(handle)
            name = nvml.nvmlDeviceGetName(handle)
        finally:
            nvml.nvmlShutdown()
    except nvml.NVMLError:
        return None
    return (name if isinstance(name, str) else name.decode()), int(memory.total), int(memory.free)


def _by_nvidia_smi(id: str) -> tuple[str, int, int] | None:
    program = shutil.which("nvidia-smi")
    if program is None:
        return None
    query = "--query-gpu=name,memory.total,memory.free"
    try:
        done = subprocess.run(
            [program, query, "--format=csv,noheader,nounits", f"--id={id}"],
            capture_output=True, text=True, timeout=_ANSWER_SEC, check=False,
        )  # fmt: skip
        name, total, free = done.stdout.strip().rsplit(",", 2)
        return name.strip(), int(total) << 20, int(free) << 20
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None
