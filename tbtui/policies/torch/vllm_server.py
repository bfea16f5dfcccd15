"""Starts a vLLM server on this machine, waits until it answers, and ends it with all that it has
started."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import secrets
import signal
import socket
import subprocess
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from tbtui.ipc import Channel, exit_words, spawn, wait_for_exit
from tbtui.policies.base import PolicyError, PolicyLostError, PolicyRefusedError
from tbtui.policies.torch.sampling import SamplerSettings
from tbtui.terminal import both_ends, one_line

_MODULE = "tbtui.policies.torch.vllm_supervisor"
BASE = "base"
"""What the server calls the model without an adapter."""
_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)
"""Largest ranks that vLLM accepts as `--max-lora-rank`."""
ADAPTERS_AT_ONCE = 3
"""In one batch: those of completions that began before the last publications, and the last one."""
_ADAPTERS_KEPT = 16
_READY_SEC = 1800.0
"""Compiling a large model for the first time takes long."""
_BETWEEN_LOOKS_SEC = 0.25
_EXIT_SEC = 8.0
_TELLING = re.compile(r"\b(?:\w*Error|\w*Exception|[Vv]alue error)[:,] ")
"""Matches an exception's last line, and what pydantic says is wrong."""
_LINES_SAID = 2
_LONGEST_REASON = 400


@dataclass(frozen=True, slots=True)
class ServerEnded:
    """Supervisor to client, once: the server has ended by itself."""

    status: int
    """Below 0: by a signal."""
    last_lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Launch:
    """A server to start."""

    command: tuple[str, ...]
    environment: dict[str, str]
    url: str
    key: str
    """What its requests are authorised with: no other user of the machine has it."""


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def launch(
    python: Path,
    settings: SamplerSettings,
    *,
    devices: Sequence[str] = (),
    memory_share: float | None = None,
    sleeps: bool = False,
    cache_gigabytes: int = 1,
) -> Launch:
    """The command that serves the model.

    Args:
        devices: GPUs, as CUDA_VISIBLE_DEVICES counts them; empty: that of the settings.
        memory_share: of the GPU's memory that it may take; None: vLLM's own choice.
        sleeps: it can give its memory back while the model is trained (CUDA).
        cache_gigabytes: for keys and values, on a CPU.
    """
    port, key = free_port(), secrets.token_urlsafe(24)
    options = {
        "model": str(settings.model),
        "host": "127.0.0.1",
        "port": str(port),
        "served-model-name": BASE,
        "dtype": settings.dtype,
        "max-model-len": str(settings.context_limit),
        "max-num-seqs": str(settings.max_rows),
        "seed": str(settings.seed),
        # Of the distribution that is drawn from: temperature included.
        "logprobs-mode": "processed_logprobs",
        # The model's generation_config.json must not change what is drawn.
        "generation-config": "vllm",
        "max-lora-rank": str(next(rank for rank in _RANKS if rank >= settings.lora_rank)),
        "max-loras": str(ADAPTERS_AT_ONCE),
        "max-cpu-loras": str(_ADAPTERS_KEPT),
    }
    flags = ["enable-lora", "enable-prefix-caching", "enable-prompt-tokens-details"]
    environment = {
        "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_API_KEY": key,
        "PYTHONUNBUFFERED": "1",
    }
    if settings.device == "cpu":
        environment["VLLM_CPU_KVCACHE_SPACE"] = str(cache_gigabytes)
        flags.append("enforce-eager")  # compiling takes longer than it gains here
    else:
        index = settings.device.partition(":")[2]
        environment["CUDA_VISIBLE_DEVICES"] = ",".join(devices) or _visible(index or "0")
        if len(devices) > 1:
            options["tensor-parallel-size"] = str(len(devices))
        if memory_share is not None:
            options["gpu-memory-utilization"] = f"{memory_share:.2f}"
        if sleeps:
            flags.append("enable-sleep-mode")
            environment["VLLM_SERVER_DEV_MODE"] = "1"
    parts = [part for name, value in options.items() for part in (f"--{name}", value)]
    # Not `vllm serve`: its CPU build has no such program that works.
    command = (str(python), "-m", "vllm.entrypoints.openai.api_server", *parts)
    every = (*command, *(f"--{flag}" for flag in flags))
    return Launch(every, environment, f"http://127.0.0.1:{port}", key)


def _visible(index: str) -> str:
    """The GPU that torch counts as `index`, as CUDA counts all of them."""
    named = [each for each in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if each]
    return named[int(index)] if int(index) < len(named) else index


class VllmServer:
    """A server's process, under a supervisor that ends it when this process dies."""

    def __init__(
        self, process: subprocess.Popen[bytes], channel: Channel[None, ServerEnded],
        ended: Callable[[PolicyError], None],
    ) -> None:  # fmt: skip
        self._process = process
        self._channel = channel
        self._ended = ended
        self._ready = False
        self._failure: PolicyError | None = None
        self._watch = asyncio.create_task(self._receive())

    @classmethod
    async def start(
        cls, launch: Launch, log: IO[bytes] | None, ended: Callable[[PolicyError], None]
    ) -> VllmServer:
        """
        Args:
            log: gets the server's output.
            ended: gets why the server is gone, when it is and was not closed.

        Raises:
            PolicyError: the supervisor can't be started.
        """
        try:
            process, sock = spawn(_MODULE, launch.command, log=log, env=launch.environment)
        except OSError as error:
            raise PolicyError(f"can't start vLLM: {error.strerror}") from error
        return cls(process, await Channel.over(sock), ended)

    @property
    def pid(self) -> int:
        """Process id of the supervisor, whose children are the server's processes."""
        return self._process.pid

    async def until_ready(self, healthy: Callable[[], Awaitable[bool]]) -> None:
        """Ask whether the server is `healthy` until it is.

        Raises:
            PolicyError: it ends first, or isn't within half an hour.
        """
        deadline = time.monotonic() + _READY_SEC
        while not await healthy():
            if self._failure is not None:
                raise self._failure
            if time.monotonic() > deadline:
                raise PolicyError(
                    f"sampler=vllm: vLLM doesn't answer within {_READY_SEC:g} s; see the run's"
                    " log, or use sampler=transformers"
                )
            await asyncio.sleep(_BETWEEN_LOOKS_SEC)
        self._ready = True

    async def close(self) -> None:
        """End the server and all that it has started."""
        self._watch.cancel()
        await asyncio.gather(self._watch, return_exceptions=True)
        await self._channel.close()
        await wait_for_exit(self._process, _EXIT_SEC)
        # It kills its own group; if it hangs, or was killed alone, that is for us to do.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        await asyncio.to_thread(self._process.wait)

    async def _receive(self) -> None:
        report: ServerEnded | None = None
        async for message in self._channel:
            report = message
            break
        if report is not None:
            reason = f"vLLM {exit_words(report.status)}: {_last_words(report.last_lines)}"
        else:
            reason = f"vLLM's supervisor {exit_words(self._process.poll())}"
        self._failure = (
            PolicyLostError(reason)
            if self._ready
            else PolicyRefusedError(
                f"sampler=vllm: {reason}; see the run's log, or use sampler=transformers"
            )
        )
        self._ended(self._failure)


def _last_words(lines: Sequence[str]) -> str:
    """The last lines that say what is wrong; else the last ones."""
    telling = [line for line in lines if _TELLING.search(line)]
    chosen = (telling or lines or ["it wrote nothing"])[-_LINES_SAID:]
    return both_ends(one_line(" | ".join(chosen)), _LONGEST_REASON)
