"""Sampling for a model that is trained on this machine: what an engine does, and its settings.

An engine draws completions with published weights, while the trainer's process computes the next
ones. Two kinds exist: `transformers` (`sampler_client.py`, a process of tbtui's own) and `vllm`
(`vllm_sampler.py`, a vLLM server that tbtui supervises).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tbtui.policies.base import Sample, SampleRequest
from tbtui.policies.torch.loading import Dtype
from tbtui.server_status import ServerStatus


@dataclass(frozen=True, slots=True)
class SamplerSettings:
    """What an engine needs to know of the model and of the machine."""

    model: str
    """Directory of a Hugging Face checkpoint, or a name on the hub that is in the cache."""
    dtype: Dtype
    device: str
    """As torch calls it: cpu, cuda, cuda:1, mps."""
    context_limit: int
    """Tokens: prompt and completion together."""
    max_rows: int
    """Most completions that are computed at once; more wait."""
    seed: int
    """Seeds the engine's own draws, where it has any; a request seeds its completion's."""
    lora_rank: int
    """Rank of the adapters that are published; 0: whole checkpoints are."""
    stop_ids: tuple[int, ...]
    """Tokens that end a completion, and are its last."""
    tokenizer: str | None = None
    """Directory, or name on the hub, for texts that end a completion; None: the model's own."""


class SamplingEngine(Protocol):
    """Draws completions with the weights published last.

    Every method raises `PolicyError` when the engine fails, `PolicyLostError` where a new one
    could go on from the last checkpoint: its process or server died.
    """

    @property
    def pid(self) -> int | None:
        """The process that computes, when it is ours."""
        ...

    @property
    def server(self) -> ServerStatus | None:
        """What its server tells of itself; None: it is no server."""
        ...

    @property
    def notes(self) -> tuple[str, ...]:
        """What a person should know of it once it has started, one line each."""
        ...

    @property
    def sleeps(self) -> bool:
        """Whether it has memory to give back while the model is trained."""
        ...

    def progress(self) -> int | None:
        """Grows as completions are worked on; None where that can't be seen."""
        ...

    def drawn(self) -> int | None:
        """Tokens drawn so far, those of completions under way included; None where that can't be
        seen."""
        ...

    async def start(self) -> None:
        """Load the model: the starting weights are version 0."""
        ...

    async def sample(self, request: SampleRequest) -> Sample:
        """Draw a completion with the version that is published as it begins.

        Raises `ContextOverflowError` when not one token fits behind the prompt; a completion is
        cut off where the context ends.
        """
        ...

    async def publish(self, version: int, weights: Path) -> None:
        """Draw what begins from now on with `weights`: a directory with a PEFT adapter
        (`adapter_model.safetensors`, `adapter_config.json`), or a whole Hugging Face checkpoint
        where `lora_rank` is 0. It has been read when this returns, and may be removed.

        Completions under way are finished with the version that they began with.
        """
        ...

    async def sleep(self) -> None:
        """Give the GPU's memory back until `wake`; nothing may be under way, nor begin."""
        ...

    async def wake(self) -> None: ...

    def running(self) -> int:
        """Requests that are computed at this moment."""
        ...

    async def close(self) -> None:
        """Let go of everything, within seconds and without an error, started or not; what is still
        in flight fails with `PolicyError`."""
        ...
