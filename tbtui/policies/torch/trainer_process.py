"""The trainer's process: `python -m tbtui.policies.torch.trainer_process FD SETTINGS`.

SETTINGS are a `TrainerSettings` as JSON; of a model that is not trained it only says what is known,
and converts a checkpoint's weights. Everything is done in one thread, in the order in which it
was asked for. The process leaves when its channel ends, which is also how it learns of its
parent's death.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, get_args

import msgspec

from tbtui.policies.base import LossName, PolicyError, PolicyInfo, PolicyRefusedError
from tbtui.policies.policy_process import Publish, PublishedWeights, carry_out, run_process
from tbtui.policies.torch.loading import quiet_libraries, require_torch
from tbtui.policies.torch.messages import Loaded, ReleaseMemory, TrainerOrder, TrainerResult
from tbtui.policies.torch.settings import TrainerSettings

if TYPE_CHECKING:
    from tbtui.policies.torch.trainer import Trainer
    from tbtui.policies.torch.untrained import Untrained

HONOURED = frozenset(
    {
        "checkpoint",
        "dtype",
        "grad_clip",
        "gradient_checkpointing",
        "importance_cap",
        "kl_penalty_coef",
        "lora_alpha",
        "lora_rank",
        "lora_targets",
        "micro_batch_tokens",
        "renderer",
        "tool_format",
        "sampler",
        "thinking",
        "tokenizer",
        "train_device",
        "vllm_base_url",
        "vllm_devices",
    }
)
"""Settings that depend on the policy."""


def _start(settings: TrainerSettings) -> Trainer:
    require_torch()
    quiet_libraries()
    import torch

    from tbtui.policies.torch.trainer import Trainer

    try:
        trainer = Trainer(settings)
    except torch.OutOfMemoryError as error:
        raise PolicyRefusedError(
            f"model_name={settings.model_name}: with its optimiser it doesn't fit the memory of the"
            " device that trains; give lora_rank for an adapter alone, take a smaller model, or"
            " train_device=cpu"
        ) from error
    # The process's output is the run's log.
    sys.stderr.write(f"trainer: {trainer.description}\n")
    return trainer


def _loaded(settings: TrainerSettings, trainer: Trainer | Untrained) -> Loaded:
    info = PolicyInfo(
        name="torch",
        model_name=settings.model_name,
        parameters=trainer.size,
        context_limit=trainer.context_limit,
        losses=get_args(LossName),
        honours=HONOURED,
    )
    return Loaded(info, trainer.device, trainer.dtype, trainer.vocab_size)


def _perform(trainer: Trainer, order: TrainerOrder) -> TrainerResult:
    match order:
        case Publish(root):
            assert root is not None
            return PublishedWeights(*trainer.publish(root))
        case ReleaseMemory():
            trainer.release()
            return None
        case _:
            return carry_out(trainer, order)


def _load(settings: TrainerSettings) -> tuple[Loaded, Callable[[TrainerOrder], TrainerResult]]:
    if not settings.trains:
        return _load_untrained(settings)
    trainer = _start(settings)
    return _loaded(settings, trainer), lambda order: _perform(trainer, order)


def _load_untrained(
    settings: TrainerSettings,
) -> tuple[Loaded, Callable[[TrainerOrder], TrainerResult]]:
    require_torch()
    quiet_libraries()
    from tbtui.policies.torch.untrained import Untrained

    model = Untrained(settings)

    def perform(order: TrainerOrder) -> TrainerResult:
        if isinstance(order, Publish) and order.root is not None:
            return PublishedWeights(*model.publish(order.root))
        raise PolicyError("this run trains nothing")

    return _loaded(settings, model), perform


async def _main(arguments: list[str]) -> None:
    settings = msgspec.json.decode(
        arguments[2], type=TrainerSettings, dec_hook=lambda kind, text: kind(text)
    )
    executor = ThreadPoolExecutor(1, "train")
    await run_process(arguments, lambda: _load(settings), lambda _: executor)
    # What is being computed isn't wanted any more, and may take minutes.
    os._exit(0)


if __name__ == "__main__":
    asyncio.run(_main(sys.argv))
