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
from collections.abc import Sequence
from pathlib import Path
from typing import IO

import msgspec

from tbtui.policies.base import (
    Activity,
    ChatRenderer,
    Datum,
    Ended,
    GradientResult,
    LossSettings,
    OptimSettings,
    PolicyError,
    PolicyRefusedError,
    PolicyStatus,
    Sample,
    SampleRequest,
    StepResult,
)
from tbtui.policies.chat.make import load_renderer
from tbtui.policies.policy_process import PolicyProcess
from tbtui.policies.threads import in_daemon_thread
from tbtui.policies.torch.messages import (
    Accumulate,
    Apply,
    Array,
    Load,
    Loaded,
    Order,
    Publish,
    Published,
    Release,
    Result,
    Save,
    Score,
    Scored,
    Weights,
)
from tbtui.policies.torch.model_files import download, find_model
from tbtui.policies.torch.sampler_choice import make_sampler
from tbtui.policies.torch.sampling import SamplerSettings, SamplingEngine
from tbtui.policies.torch.settings import TorchSettings, TrainerSettings
from tbtui.policies.torch.sleeping import Sleeper
from tbtui.policies.torch.vllm_sampler import VllmSettings
from tbtui.policies.work import Startable, Work, fitted, unless_closed

_MODULE = "tbtui.policies.torch.trainer_process"
_CLOSED = "the policy has been closed"
_TOLERANCE = {"float32": 0.01, "bfloat16": 0.1}
"""Nats a token between sampler and trainer with the same weights, the mean over a probe. Measured
in fp32 on a CPU: below 1e-4. In bf16, with 8 bits to a number, chosen: kernels of two programs
round a logit of 10 by up to 0.03 each."""

TrainerProcess = PolicyProcess[Order, Result, Loaded]


class TorchPolicy(Startable[ChatRenderer]):
    """Implements `tbtui.policies.base.Policy`."""

    def __init__(self, settings: TorchSettings, log: IO[bytes] | None = None) -> None:
        """`log`: where the output of both processes goes."""
        self._settings = settings
        self._log = log
        self._trainer: TrainerProcess | None = None
        self._sampler: SamplingEngine | None = None
        self._sleeper: Sleeper | None = None
        self._weights: Path | None = None
        """Directory of the directories that samplers read."""
        self._publishing = asyncio.Lock()
        self._unread: Published | None = None
        """What the sampler has not read yet: it is tried again where that failed."""
        self._unanswered: set[asyncio.Task[Sample]] = set()
        self._work = Work()
        self._starting = ""
        """What is waited for while it starts."""

    async def start(self, resume: Path | None = None) -> None:
        """Load the tokenizer, the model into the trainer, then into the sampler.

        Raises `PolicyError` when one of them can't be had, or they don't belong together."""
        settings = self._settings
        await self._download()
        renderer = await load_renderer(
            settings.renderer, settings.tokenizer or settings.model_name, settings.thinking
        )
        self._trainer, loaded = await TrainerProcess.start(
            _MODULE, (_as_json(settings),), self._log
        )
        if renderer.vocab_size is not None and renderer.vocab_size > loaded.vocab_size:
            raise PolicyRefusedError(
                f"tokenizer: it has {renderer.vocab_size} tokens, and {settings.model_name}"
                f" {loaded.vocab_size}; give the model's own tokenizer"
            )
        self._weights = Path(tempfile.mkdtemp(prefix="tbtui-weights-"))
        sampler, chosen = make_sampler(
            settings.sampler,
            _sampler_settings(settings, loaded, renderer.stop_ids),
            VllmSettings(
                settings.vllm_base_url, devices=settings.vllm_devices, sleeps=settings.vllm_sleeps
            ),
            self._log,
            self._tell,
        )
        self._sampler = sampler
        await sampler.start()
        self._sleeper = Sleeper(sampler, lambda: self._call(Release()))
        self._renderer = renderer
        self._info = dataclasses.replace(
            loaded.info,
            tokenizer=renderer.digest,
            notes=(*renderer.notes, *chosen, *sampler.notes),
            sampler_tolerance=_TOLERANCE[loaded.dtype],
        )
        await self.publish()

    async def sample(self, request: SampleRequest) -> Sample:
        """Raises `ContextOverflowError` when not one token fits behind the prompt. A completion
        is cut off where the context ends."""
        asked = fitted(request, self.info.context_limit)
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

    async def accumulate(self, data: Sequence[Datum], loss: LossSettings) -> GradientResult:
        """Raises `PolicyError` for data that can't be trained on. The gradient then lacks a part,
        so the next `apply` takes no step either."""
        result = await self._call_alone("training", Accumulate(tuple(data), loss))
        assert isinstance(result, GradientResult)
        return result

    async def apply(self, settings: OptimSettings) -> StepResult:
        """Raises `PolicyError` when there is no whole, finite gradient; the weights are then what
        they were, and the accumulated gradient is zero."""
        result = await self._call_alone("training", Apply(settings))
        assert isinstance(result, StepResult)
        return result

    async def score(self, data: Sequence[Datum], weights: Weights) -> tuple[Array, ...]:
        result = await self._call_alone("training", Score(tuple(data), weights))
        assert isinstance(result, Scored)
        return result.logprobs

    async def publish(self) -> int:
        root = self._weights
        if root is None:
            raise PolicyError(_CLOSED)
        if self._sleeper is None:
            raise PolicyError(_CLOSED)
        async with self._sleeper.training(needs_memory=False):
            published = await self._call(Publish(root))
        assert isinstance(published, Published)
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

    async def save(self, directory: Path) -> None:
        await self._call_alone("saving", Save(directory))

    async def load(self, directory: Path) -> None:
        """Go on with the training that `directory` is a checkpoint of: weights (trained and
        published), optimiser and version become what they were when it was saved."""
        await self._call_alone("loading", Load(directory))
        with self._work.beside_sampling("loading"):
            await self.publish()

    async def forget(self, directory: Path) -> None:
        """There is nothing of it elsewhere."""

    def status(self) -> PolicyStatus:
        sampler = self._sampler
        status = self._work.status(
            in_flight=len(self._unanswered),
            running=0 if sampler is None else sampler.running(),
            pid=None if self._trainer is None else self._trainer.pid,
            server=None if sampler is None else sampler.server,
        )
        # A vLLM server computes in children of its process.
        alone = None if sampler is None or sampler.server is not None else sampler.pid
        return dataclasses.replace(status, starting=self._starting, sampler_pid=alone)

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

    async def _call_alone(self, activity: Activity, order: Order) -> Result:
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

    async def _call(self, order: Order) -> Result:
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
    )
