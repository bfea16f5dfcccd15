"""A Hugging Face model on this machine, as engines see it.

A process trains it, a sampling engine draws from it. Weights go from one to the other through a
directory of our own, so that the engine may be on another device, or be another program.
"""

from __future__ import annotations

import asyncio
import dataclasses
import shutil
import tempfile
import time
from pathlib import Path
from typing import IO

import msgspec

from tbtui.policies.base import (
    Activity,
    ChatRenderer,
    Ended,
    PolicyError,
    PolicyRefusedError,
    PolicyStatus,
    Sample,
    SampleRequest,
)
from tbtui.policies.chat.make import load_renderer, may_think
from tbtui.policies.policy_process import (
    PolicyProcess,
    Publish,
    PublishedWeights,
    TrainedInProcess,
    TrainingOrder,
)
from tbtui.policies.torch.messages import Loaded, ReleaseMemory, TrainerOrder, TrainerResult
from tbtui.policies.torch.model_files import download, find_model
from tbtui.policies.torch.sampler_client import make_sampler
from tbtui.policies.torch.sampling import SamplerSettings, SamplingEngine
from tbtui.policies.torch.settings import TorchSettings, TrainerSettings
from tbtui.policies.torch.sleeping import Sleeper
from tbtui.policies.torch.vllm_sampler import VllmSampler, VllmSettings
from tbtui.policies.work import fitted, in_daemon_thread, unless_closed

_MODULE = "tbtui.policies.torch.trainer_process"
_CLOSED = "the policy has been closed"
_TOLERANCE = {"float32": 0.01, "bfloat16": 0.1}
"""Nats a token between sampler and trainer with the same weights, the mean over a probe. Measured
on a CPU: in fp32 below 2e-6, vLLM's included; in bf16 0.001 to 0.012 (`python -m
tests.benchmarks.torch_bf16_gap`: cached decoding against the trainer, Qwen3, Llama and Gemma-3 of
12 layers with random weights). The bound in bf16 is eight times the largest, for deeper models and
other kernels."""

TrainerProcess = PolicyProcess[TrainerOrder, TrainerResult, Loaded]


class TorchPolicy(TrainedInProcess[ChatRenderer]):
    """Implements `tbtui.policies.base.Policy`."""

    def __init__(self, settings: TorchSettings, log: IO[bytes] | None = None) -> None:
        """`log`: where the output of both processes goes."""
        super().__init__()
        self._settings = settings
        self._log = log
        self._trainer: TrainerProcess | None = None
        self._sampler: SamplingEngine | None = None
        self._sleeper: Sleeper | None = None
        self._weights: Path | None = None
        """Directory of the directories that samplers read."""
        self._publishing = asyncio.Lock()
        self._unread: PublishedWeights | None = None
        """What the sampler has not read yet: it is tried again where that failed."""
        self._unanswered: set[asyncio.Task[Sample]] = set()
        self._starting = ""
        """What is waited for while it starts."""

    async def start(self, resume: Path | None = None) -> None:
        """Load the tokenizer, the model into the trainer, if there is one, then into the sampler.

        Raises `PolicyError` when one of them can't be had, or they don't belong together."""
        settings = self._settings
        await self._download()
        renderer = await load_renderer(
            settings.renderer,
            settings.tokenizer or settings.model_name,
            settings.thinking,
            settings.tool_format,
            self._tell,
        )
        trains = settings.trains
        self._starting = "loading the model: what trains" if trains else "reading the model's files"
        trainer, loaded = await TrainerProcess.start(_MODULE, (_as_json(settings),), self._log)
        self._trainer = trainer
        if renderer.vocab_size is not None and renderer.vocab_size > loaded.vocab_size:
            raise PolicyRefusedError(
                f"tokenizer: it has {renderer.vocab_size} tokens, and {settings.model_name}"
                f" {loaded.vocab_size}; give the model's own tokenizer"
            )
        self._starting = "loading the model: what samples"
        self._weights = Path(tempfile.mkdtemp(prefix="tbtui-weights-"))
        sampler, chosen = await self._start_sampler(
            _sampler_settings(settings, loaded, renderer.stop_ids)
        )
        self._sleeper = Sleeper(sampler, lambda: self._call(ReleaseMemory()))
        self._renderer = renderer
        self._info = dataclasses.replace(
            loaded.info,
            tokenizer=renderer.digest,
            thinks=may_think(renderer),
            notes=(*renderer.notes, *chosen, *sampler.notes),
            sampler_tolerance=_TOLERANCE[loaded.dtype] if trains else None,
        )
        await self.publish()
        if not trains:
            # It has nothing more to say, and has PyTorch in its memory.
            self._trainer = None
            await trainer.close()
        self._starting = ""

    async def _start_sampler(
        self, settings: SamplerSettings
    ) -> tuple[SamplingEngine, tuple[str, ...]]:
        """The running sampler, and notes on the choice. `sampler=auto` does without a vLLM server
        of its own that can't be had: no network to install it from, no room, a driver too old."""
        wanted = self._settings.sampler
        vllm = VllmSettings(
            self._settings.vllm_base_url,
            devices=self._settings.vllm_devices,
            sleeps=self._settings.vllm_sleeps,
        )
        self._sampler, chosen = make_sampler(wanted, settings, vllm, self._log, self._tell)
        try:
            await self._sampler.start()
        except PolicyError as error:
            if (
                wanted != "auto"
                or vllm.base_url is not None
                or not isinstance(self._sampler, VllmSampler)
            ):
                raise
            self._sampler, _ = make_sampler("transformers", settings, vllm, self._log)
            self._tell("vLLM can't be started; starting sampler=transformers")
            await self._sampler.start()
            chosen = (
                f"sampler=auto chose transformers, which is slower, for want of vLLM: {error}",
            )
        return self._sampler, chosen

    async def sample(self, request: SampleRequest) -> Sample:
        """Raises `ContextOverflowError` when not one token fits behind the prompt. A completion
        is cut off where the context ends."""
        asked = dataclasses.replace(
            fitted(request, self.info.context_limit), on_drawn=request.on_drawn
        )
        if self._sampler is None or self._sleeper is None:
            raise PolicyError(_CLOSED)
        started = time.monotonic()
        answer = asyncio.create_task(self._draw(self._sampler, self._sleeper, asked))
        self._unanswered.add(answer)
        try:
            drawn = await unless_closed(answer, _CLOSED)
        finally:
            self._unanswered.discard(answer)
        self._work.answered(drawn, time.monotonic() - started)
        return drawn

    async def publish(self) -> int:
        root = self._weights
        if root is None:
            raise PolicyError(_CLOSED)
        if self._sleeper is None:
            raise PolicyError(_CLOSED)
        async with self._sleeper.training(needs_memory=False):
            published = await self._call(Publish(root))
        assert isinstance(published, PublishedWeights)
        if published.directory is not None:
            self._unread = published
        async with self._publishing:
            unread = self._unread
            if unread is not None and unread.directory is not None:
                if self._sampler is None:
                    raise PolicyError(_CLOSED)
                async with self._sleeper.drawing():
                    await self._sampler.publish(unread.version, unread.directory)
                self._unread = None
                await asyncio.to_thread(shutil.rmtree, unread.directory, ignore_errors=True)
        return published.version

    async def load(self, directory: Path) -> None:
        """Go on with the training that `directory` is a checkpoint of: weights (trained and
        published), optimiser and version become what they were when it was saved."""
        await super().load(directory)
        with self._work.beside_sampling("loading"):
            await self.publish()

    def status(self) -> PolicyStatus:
        sampler = self._sampler
        status = self._work.status(
            in_flight=len(self._unanswered),
            running=0 if sampler is None else sampler.running(),
            pid=None if self._trainer is None else self._trainer.pid,
            server=None if sampler is None else sampler.server,
            progress=None if sampler is None else sampler.progress(),
        )
        sampler_pid = None if sampler is None else sampler.pid
        drawn = None if sampler is None else sampler.drawn()
        return dataclasses.replace(
            status,
            starting=self._starting,
            sampler_pid=sampler_pid,
            sampled_tokens=status.sampled_tokens if drawn is None else drawn,
        )

    async def close(self, ended: Ended = "success") -> None:
        """End both processes; what is still in flight fails with `PolicyError`."""
        sampler, self._sampler = self._sampler, None
        trainer, self._trainer = self._trainer, None
        weights, self._weights = self._weights, None
        for answer in self._unanswered:
            answer.cancel()
        if sampler is not None:
            await sampler.close()
        if trainer is not None:
            await trainer.close()
        if weights is not None:
            await asyncio.to_thread(shutil.rmtree, weights, ignore_errors=True)

    async def _download(self) -> None:
        """Fetch a model of the hub that is not in its cache, before anything loads it."""
        found = await in_daemon_thread(lambda: find_model(self._settings.model_name), "model files")
        # Weights in other files than safetensors are fetched by what loads them.
        if found.directory is None and found.shapes is not None:
            await in_daemon_thread(lambda: download(found, self._tell), "download")
            self._tell("loading the policy")

    def _tell(self, line: str) -> None:
        self._starting = line
        if self._log is not None:
            self._log.write(f"{time.strftime('%H:%M:%S')} {line}\n".encode())
            self._log.flush()

    async def _train(self, activity: Activity, order: TrainingOrder) -> TrainerResult:
        if self._sleeper is None:
            raise PolicyError("the policy is not running")
        needs_memory = activity == "training"
        with self._work.beside_sampling(activity):
            async with self._sleeper.training(needs_memory=needs_memory):
                return await self._call(order)

    async def _draw(
        self, sampler: SamplingEngine, sleeper: Sleeper, request: SampleRequest
    ) -> Sample:
        async with sleeper.drawing():
            return await sampler.sample(request)

    async def _call(self, order: TrainerOrder) -> TrainerResult:
        if self._trainer is None:
            raise PolicyError("the policy is not running")
        return await self._trainer.call(order)


def _as_json(settings: TorchSettings) -> str:
    names = [field.name for field in dataclasses.fields(TrainerSettings)]
    values = {name: getattr(settings, name) for name in names}
    return msgspec.json.encode(TrainerSettings(**values), enc_hook=str).decode()


def _sampler_settings(
    settings: TorchSettings, loaded: Loaded, stop_ids: tuple[int, ...]
) -> SamplerSettings:
    return SamplerSettings(
        model=settings.model_name,
        dtype=loaded.dtype,
        device=loaded.device,
        context_limit=loaded.info.context_limit,
        max_rows=settings.max_rows,
        seed=settings.seed,
        lora_rank=settings.lora_rank,
        stop_ids=stop_ids,
        tokenizer=settings.tokenizer,
    )
