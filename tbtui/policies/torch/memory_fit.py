"""Whether a model fits the memory that is free here, and the setting to change where it doesn't."""

from __future__ import annotations

import dataclasses
import sys
from dataclasses import dataclass

from tbtui.policies.base import PolicyRefusedError
from tbtui.policies.torch.free_memory import Memory, free_memory
from tbtui.policies.torch.memory_plan import (
    Dimensions,
    Item,
    Part,
    PlanSettings,
    activation_bytes_per_token,
    gib,
    items,
    micro_batch_for,
    micro_batch_on_cpu,
)
from tbtui.policies.torch.model_files import ModelFiles, find_model, require_disk
from tbtui.policies.torch.settings import TorchSettings
from tbtui.policies.torch.vllm_memory import (
    cache_bytes,
    fixed_bytes,
    memory_share,
    whole_gigabytes,
)

_LEAST_CONTEXT = 1024
"""Tokens; a shorter context is of no use to an agent."""


@dataclass(frozen=True, slots=True)
class Fit:
    """A model's memory table against what is free."""

    model: ModelFiles
    settings: PlanSettings
    memory: Memory
    items: tuple[Item, ...]
    shared: bool
    """Training and sampling take the same memory."""
    own_server: bool = True
    """tbtui starts what samples."""

    @property
    def needed(self) -> int:
        """Bytes, with all trials at the context limit."""
        return sum(item.size for item in self._counted)

    @property
    def fits(self) -> bool:
        """Whether one trial at a time fits: more of them wait for room."""
        return _needed_by_one(self) <= self.memory.free and self.trials_at_once > 0

    @property
    def trials_at_once(self) -> int:
        """How many trials fit at the context limit; at most what the settings ask for."""
        cache = next(item.size for item in self.items if item.what == "KV cache")
        rows = self.settings.n_parallel_envs
        if not self.shared:
            return rows
        room = self.memory.free - (self.needed - cache)
        if self.server_bytes is not None:
            rest = fixed_bytes(self.model, self.settings) if self.settings.on_gpu else 0
            room = min(room, self.server_bytes - rest)
        return max(0, min(rows, room * rows // cache))

    @property
    def server_share(self) -> float | None:
        """What a vLLM server on the GPU that trains is given of it, from 0 to 1; None: there is
        none."""
        if not (self.settings.vllm and self.settings.on_gpu and self.shared):
            return None
        # It is started once the trainer has its weights, gradients and optimiser.
        held = ("weights", "adapter", "gradients", "optimiser", "runtime")
        taken = sum(i.size for i in self.items if i.part == "training" and i.what in held)
        needed = fixed_bytes(self.model, self.settings) + cache_bytes(self.model, self.settings)
        free = max(0, self.memory.free - taken)
        return memory_share(needed, dataclasses.replace(self.memory, free=free))

    @property
    def server_bytes(self) -> int | None:
        """What a vLLM server of tbtui's own is given: of the shared GPU, or for keys and values on
        a CPU."""
        if self.server_share is not None:
            return int(self.server_share * self.memory.total)
        if self.settings.vllm and not self.settings.on_gpu and self.own_server:
            return whole_gigabytes(cache_bytes(self.model, self.settings)) << 30
        return None

    @property
    def micro_batch_tokens(self) -> int:
        """Tokens of one pass, as the trainer chooses it by itself."""
        if self.settings.micro_batch_tokens:
            return self.settings.micro_batch_tokens
        sizes = Dimensions.of(self.model.config)
        held = ("activations", "logits", "KV cache")
        fixed = sum(item.size for item in self._counted if item.what not in held)
        per_token = activation_bytes_per_token(
            sizes.width, sizes.inner, sizes.layers, self.settings.itemsize,
            checkpointing=self.settings.gradient_checkpointing,
        )  # fmt: skip
        return micro_batch_for(max(0, self.memory.free - fixed), per_token)

    @property
    def verdict(self) -> str:
        """One line: whether it fits, and what to change where it doesn't."""
        free = f"{gib(self.memory.free)} free ({self.memory.label})"
        if self.server_bytes is not None and not self.trials_at_once:
            return (
                f"does not fit: the vLLM server's {gib(self.server_bytes)} have no room for one"
                f" trial of {self.settings.context_limit} tokens, {free}; {self._remedy()}"
            )
        if not self.fits:
            return f"does not fit: {gib(_needed_by_one(self))} needed, {free}; {self._remedy()}"
        at_once, rows = self.trials_at_once, self.settings.n_parallel_envs
        if at_once < rows:
            return (
                f"fits, with {at_once} of {rows} trials at once at the context limit: more wait"
                f" for room; n_parallel_envs={max(1, at_once)} or a lower context_limit avoids that"
            )
        return f"fits: {gib(self.needed)} needed, {free}"

    @property
    def _counted(self) -> list[Item]:
        return [item for item in self.items if self.shared or item.part == "training"]

    @property
    def _parts(self) -> set[Part]:
        return {item.part for item in self.items}

    def size(self, part: Part) -> int:
        """Bytes of training or of sampling."""
        return sum(item.size for item in self.items if item.part == part)

    def _remedy(self) -> str:
        context = self.settings.context_limit
        while (context := context // 2) >= _LEAST_CONTEXT:
            if self._with(context, self.settings.lora_rank).fits:
                return f"give context_limit={context}"
        trains = "training" in self._parts
        if trains and not self.settings.lora_rank and self._with(4096, 32).fits:
            return "give lora_rank=32 context_limit=4096 (an adapter in place of all weights)"
        return "take a smaller model"

    def _with(self, context_limit: int, lora_rank: int) -> Fit:
        settings = dataclasses.replace(
            self.settings, context_limit=context_limit, lora_rank=lora_rank
        )
        return dataclasses.replace(
            self,
            settings=settings,
            items=tuple(i for i in items(self.model, settings) if i.part in self._parts),
        )


def _needed_by_one(fit: Fit) -> int:
    """Bytes with one trial at a time."""
    cache = next(item.size for item in fit.items if item.what == "KV cache")
    rows = fit.settings.n_parallel_envs
    return fit.needed - (cache - cache // rows if fit.shared else 0)


def assess(settings: TorchSettings, model: ModelFiles | None = None) -> Fit | None:
    """The table for a run's settings; None where the model's files don't say enough.

    Raises:
        PolicyRefusedError: the model can't be had, or has a shorter context than is asked for.
    """
    model = model or find_model(settings.model_name)
    try:
        sizes = Dimensions.of(model.config)
    except KeyError:
        return None
    if model.shapes is None:
        return None
    context = settings.context_limit or sizes.context
    if context is None:
        return None
    if sizes.context is not None and context > sizes.context:
        raise PolicyRefusedError(
            f"context_limit={context}: {settings.model_name} has a context of {sizes.context}"
            " tokens; give at most that"
        )
    memory = free_memory(settings.train_device)
    on_gpu = memory.kind == "cuda"
    bf16 = settings.dtype == "bf16" or (settings.dtype == "auto" and on_gpu)
    auto = settings.sampler == "auto" and on_gpu and sys.platform == "linux"
    plan = PlanSettings(
        lora_rank=settings.lora_rank,
        lora_targets=settings.lora_targets,
        itemsize=2 if bf16 else 4,
        on_gpu=on_gpu,
        vllm=settings.sampler == "vllm" or (auto and settings.lora_rank > 0),
        context_limit=context,
        n_parallel_envs=settings.max_rows,
        gradient_checkpointing=settings.gradient_checkpointing,
        micro_batch_tokens=settings.micro_batch_tokens,
    )
    if not on_gpu and not plan.micro_batch_tokens:
        per_token = activation_bytes_per_token(
            sizes.width, sizes.inner, sizes.layers, plan.itemsize,
            checkpointing=plan.gradient_checkpointing,
        )  # fmt: skip
        tokens = micro_batch_on_cpu(memory.free, per_token)
        plan = dataclasses.replace(plan, micro_batch_tokens=tokens)
    elsewhere = bool(settings.vllm_base_url or settings.vllm_devices)
    needed = [each for each in items(model, plan) if settings.trains or each.part == "sampling"]
    return Fit(
        model, plan, memory, tuple(needed), shared=not elsewhere,
        own_server=not settings.vllm_base_url,
    )  # fmt: skip


def preflight(settings: TorchSettings) -> tuple[str, ...]:
    """The table in a line; nothing where the model's files don't say enough.

    Raises:
        PolicyRefusedError: the model can't be had, or can't fit its memory or the disk.
    """
    model = find_model(settings.model_name)
    require_disk(model)
    fit = assess(settings, model)
    if fit is None:
        return ()
    if not fit.fits:
        raise PolicyRefusedError(f"model_name={settings.model_name}: {fit.verdict}")
    training = f"training {gib(fit.size('training'))}, " if settings.trains else ""
    return (f"memory: {training}sampling {gib(fit.size('sampling'))}: {fit.verdict}",)
