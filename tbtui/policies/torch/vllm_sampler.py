"""`sampler=vllm` as the policy sees it: a vLLM server draws completions, with a LoRA adapter per
version that is loaded while it runs.

The server is one that tbtui starts and supervises (`vllm_server.py`), in an environment of its own
(`vllm_environment.py`), or one that runs already (`vllm_base_url`): on this machine, started with
`--enable-lora --logprobs-mode processed_logprobs` and VLLM_ALLOW_RUNTIME_LORA_UPDATING=1.

vLLM reads an adapter's directory again whenever it has put the adapter out of its memory, and its
engine ends if the directory has gone: so each version is copied, and stays until it is unloaded.

In vLLM 0.32's CPU build a completion without an adapter is given that of the last slot as soon as
there is one there. So the first publication waits for those that were begun before it, and from
then on nothing is drawn without an adapter.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from tbtui.policies.base import (
    MODEL_ITSELF,
    PolicyError,
    PolicyRefusedError,
    Sample,
    SampleRequest,
)
from tbtui.policies.meter import RequestMeter
from tbtui.policies.torch.sampling import SamplerSettings
from tbtui.policies.torch.vllm_environment import Tell, build_for, vllm_python
from tbtui.policies.torch.vllm_memory import cache_gigabytes, share_for
from tbtui.policies.torch.vllm_server import BASE, Launch, VllmServer, launch
from tbtui.policies.vllm.connection import Connection, served_model
from tbtui.policies.vllm.metrics import ServerWatch
from tbtui.policies.vllm.policy import PATH, completion_body, read_completion
from tbtui.policies.work import fitted, unless_closed
from tbtui.server_status import ServerStatus

_CLOSED = "the policy has been closed"
_OWN_NOTE = "sampler=vllm: a vLLM server that tbtui supervises"
_SEED_NOTE = (
    "vLLM honours a completion's seed, but its last bits, and so now and then a draw, depend on"
    " what else is in the batch"
)


@dataclass(frozen=True, slots=True)
class VllmSettings:
    """What only `sampler=vllm` needs to know."""

    base_url: str | None = None
    """A server that runs already; None: tbtui starts one."""
    served_name: str | None = None
    """What that server calls the model; None: as the settings name it."""
    devices: tuple[str, ...] = ()
    """GPUs as CUDA_VISIBLE_DEVICES counts them; empty: the one that trains."""
    sleeps: bool = False
    """It may sleep while the model is trained: nothing is drawn meanwhile."""
    home: Path | None = None
    """Directory of vLLM's environments; in the user's cache when None."""


@dataclass(frozen=True, slots=True)
class _Published:
    """A version that the server can draw with."""

    version: int
    name: str
    """The server's, of the adapter."""
    directory: Path | None
    """Our copy of the adapter; None: the model without one."""


class VllmSampler:
    """Implements `SamplingEngine`."""

    def __init__(
        self, settings: SamplerSettings, vllm: VllmSettings, log: IO[bytes] | None = None,
        tell: Tell | None = None, meter: RequestMeter | None = None,
    ) -> None:  # fmt: skip
        """
        Args:
            log: where the server's output goes.
            tell: gets lines of progress; they go to `log` when None.
        """
        self._settings = settings
        self._vllm = vllm
        self._log = log
        self._tell: Tell = tell or self._write
        self._meter = meter or RequestMeter()
        self._own: VllmServer | None = None
        self._connection: Connection | None = None
        self._watch: ServerWatch | None = None
        self._adapters = contextlib.ExitStack()
        self._directory: Path | None = None
        self._published = _Published(0, vllm.served_name or str(settings.model), None)
        self._loaded: list[_Published] = []
        self._drawn_with: Counter[_Published] = Counter()
        """Requests under way."""
        self._open = asyncio.Event()
        """Completions may begin."""
        self._open.set()
        self._idle = asyncio.Event()
        """None is under way."""
        self._idle.set()
        self._number = 0
        self._unanswered: set[asyncio.Task[Any]] = set()
        self._unloading: set[asyncio.Task[None]] = set()
        self._failure: PolicyError | None = None

    @property
    def pid(self) -> int | None:
        return self._own.pid if self._own is not None else None

    @property
    def server(self) -> ServerStatus:
        return self._watch.status() if self._watch is not None else self._meter.status()

    @property
    def notes(self) -> tuple[str, ...]:
        whose = f"sampler=vllm: the server at {self._vllm.base_url}"
        return (whose if self._vllm.base_url else _OWN_NOTE, _SEED_NOTE)

    def running(self) -> int:
        count = len(self._unanswered)
        return self._watch.running(count) if self._watch is not None else count

    def progress(self) -> int | None:
        return self._watch.progress if self._watch is not None else None

    def drawn(self) -> int | None:
        return None

    async def start(self) -> None:
        if not self._settings.lora_rank:
            raise PolicyRefusedError(
                "sampler=vllm: a vLLM server is given every version as a LoRA adapter, and"
                " lora_rank=0 trains all weights; give a lora_rank, or sampler=transformers"
            )
        self._directory = Path(
            self._adapters.enter_context(tempfile.TemporaryDirectory(prefix="tbtui-adapters-"))
        )
        try:
            if self._vllm.base_url is None:
                await self._start_own()
            else:
                self._connection = Connection(self._vllm.base_url, self._meter)
            assert self._connection is not None
            await served_model(self._connection, self._published.name)
            self._watch = ServerWatch(self._connection, self._meter)
            # Also because a CPU build's first request may take longest.
            await self.sample(SampleRequest((1,) * 8, 1, MODEL_ITSELF, 0))
        except BaseException:
            await self.close()
            raise

    async def sample(self, request: SampleRequest) -> Sample:
        asked = fitted(request, self._settings.context_limit)
        await self._open.wait()
        used = self._published
        body = completion_body(used.name, asked, self._settings.stop_ids)
        self._drawn_with[used] += 1
        self._idle.clear()
        try:
            with self._meter.request("sample"):
                connection = self._connected()
                content = await self._answer(connection, body)
                drawn = read_completion(content, asked)
        finally:
            self._drawn_with[used] -= 1
            if not self._drawn_with.total():
                self._idle.set()
            self._unload_unused()
        if drawn.cached_tokens is not None:
            self._meter.answered(len(asked.prompt_ids), drawn.cached_tokens)
        return dataclasses.replace(drawn, weights_version=used.version)

    async def publish(self, version: int, weights: Path) -> None:
        connection = self._connected()
        assert self._directory is not None
        self._number += 1
        # A name and a directory of its own, even of a version that there has been: the server's
        # cache of prefixes goes by them.
        name = f"tbtui-{self._number}-v{version}"
        copy = self._directory / name
        try:
            await asyncio.to_thread(shutil.copytree, weights, copy)
        except (OSError, shutil.Error) as error:
            raise PolicyError(f"version {version} of the adapter can't be read: {error}") from error
        doing = f"publishing version {version}"
        body = {"lora_name": name, "lora_path": str(copy)}
        try:
            if self._published.directory is None:
                self._open.clear()
                await self._idle.wait()
            await self._unless_ended(connection.order("/v1/load_lora_adapter", body, doing))
        except PolicyRefusedError as error:
            if self._own is not None:
                raise
            raise PolicyRefusedError(
                f"{error}; the server has to run on this machine with --enable-lora,"
                f" --max-lora-rank {self._settings.lora_rank} or more and"
                " VLLM_ALLOW_RUNTIME_LORA_UPDATING=1"
            ) from error
        else:
            self._published = _Published(version, name, copy)
            self._loaded.append(self._published)
            self._unload_unused()
        finally:
            self._open.set()

    async def sleep(self) -> None:
        await self._unless_ended(
            self._connected().order("/sleep?level=1", {}, "putting vLLM to sleep")
        )

    async def wake(self) -> None:
        await self._unless_ended(self._connected().order("/wake_up", {}, "waking vLLM"))

    async def close(self) -> None:
        self._failure = self._failure or PolicyError(_CLOSED)
        for task in (*self._unanswered, *self._unloading):
            task.cancel()
        await asyncio.gather(*self._unanswered, *self._unloading, return_exceptions=True)
        watch, self._watch = self._watch, None
        if watch is not None:
            await watch.close()
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()
        own, self._own = self._own, None
        if own is not None:
            await own.close()
        self._adapters.close()

    @property
    def _shares_gpu(self) -> bool:
        return self._settings.device.startswith("cuda") and not self._vllm.devices

    @property
    def sleeps(self) -> bool:
        """What a server that runs already was started with isn't known."""
        return self._vllm.base_url is None and self._vllm.sleeps and self._shares_gpu

    async def _start_own(self) -> None:
        device = self._settings.device
        python = await vllm_python(build_for(device), self._tell, self._vllm.home)
        described = await self._launch(python)
        self._tell(f"Starting vLLM: {' '.join(described.command)}")
        self._own = own = await VllmServer.start(described, self._log, self._ended)
        self._connection = connection = Connection(described.url, self._meter, described.key)

        async def healthy() -> bool:
            try:
                await connection.text("/health", "waiting for vLLM")
            except PolicyError:
                return False
            return True

        await own.until_ready(healthy)
        self._published = _Published(0, BASE, None)
        self._tell("vLLM is ready")

    async def _launch(self, python: Path) -> Launch:
        settings = self._settings
        if not settings.device.startswith("cuda"):
            cache = await asyncio.to_thread(cache_gigabytes, settings)
            return launch(python, settings, cache_gigabytes=cache)
        share = await asyncio.to_thread(share_for, settings, shared=self._shares_gpu)
        return launch(
            python, settings, devices=self._vllm.devices, memory_share=share,
            sleeps=self.sleeps,
        )  # fmt: skip

    async def _answer(self, connection: Connection, body: dict[str, Any]) -> Any:
        request = connection.post(PATH, body, "sampling", patient=True)
        answer = asyncio.create_task(request)
        self._unanswered.add(answer)
        self._count()
        try:
            return await self._unless_ended(answer)
        finally:
            self._unanswered.discard(answer)
            self._count()

    async def _unless_ended[T](self, answer: Awaitable[T]) -> T:
        try:
            return await unless_closed(answer, _CLOSED)
        except PolicyError:
            # What was cut off by the server's end is that, and no error of a connection.
            if self._failure is not None:
                raise self._failure from None
            raise

    def _connected(self) -> Connection:
        if self._failure is not None:
            raise self._failure
        if self._connection is None:
            raise PolicyError("the sampler has not been started")
        return self._connection

    def _ended(self, failure: PolicyError) -> None:
        """Our server has ended by itself."""
        self._failure = self._failure or failure
        for task in self._unanswered:
            task.cancel()

    def _count(self) -> None:
        if self._watch is not None:
            self._watch.in_flight(len(self._unanswered))

    def _unload_unused(self) -> None:
        if self._failure is not None:
            return
        for each in [each for each in self._loaded if each != self._published]:
            if not self._drawn_with[each]:
                self._loaded.remove(each)
                del self._drawn_with[each]
                task = asyncio.create_task(self._unload(each))
                self._unloading.add(task)
                task.add_done_callback(self._unloading.discard)

    async def _unload(self, old: _Published) -> None:
        body = {"lora_name": old.name}
        # It takes no memory that the next one needs: one that stays is no reason to stop.
        with contextlib.suppress(PolicyError):
            await self._connected().order("/v1/unload_lora_adapter", body, "unloading an adapter")
            if old.directory is not None:
                await asyncio.to_thread(shutil.rmtree, old.directory, ignore_errors=True)

    def _write(self, line: str) -> None:
        if self._log is not None:
            self._log.write(f"{time.strftime('%H:%M:%S')} {line}\n".encode())
            self._log.flush()
