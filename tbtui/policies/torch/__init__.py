"""A Hugging Face model, trained and sampled on this machine with PyTorch (the extra `torch`).

client                      TorchPolicy, the Policy that engines use: owns a trainer's process and
                            a sampling engine, and carries weights from one to the other
trainer_process             the child process around a Trainer
untrained                   what is known of a model that is only sampled from
trainer                     micro-batches, gradients, optimiser steps, scores; memory that runs out
logprobs                    log-probabilities and entropies in chunks, without whole logits; the
                            losses of `algorithm/losses.py` in PyTorch
optimizer                   AdamW on fp32 weights
checkpoint_file             one file that training goes on from; what samplers are given
model_files, memory_plan    what a model's files say of it; how much memory it takes, by formulas
memory_fit, free_memory     whether that is free here, and the setting to change
loading                     a model, its adapter, device and precision; every reason against one
sampling                    what a sampling engine does
endings                     what ends a completion: a token, a text, its length
sleeping                    an engine on the trainer's GPU sleeps while it trains

Nothing here imports torch before it is used: the extra may be missing.
"""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING

from tbtui.invocation import to_type
from tbtui.policies import Backend, lost_password, off_policy_sampling

if TYPE_CHECKING:
    from tbtui.config import RunConfig
    from tbtui.config.values import Problem
    from tbtui.policies.base import Policy
    from tbtui.policies.torch.settings import TorchSettings

_VISIBLE_DEVICE = re.compile(r"\d+|(GPU|MIG)-[\w/-]+")
INSTALL = "uv run --extra torch tbtui ..."


def _make(config: RunConfig, log_file: IO[bytes]) -> Policy:
    from tbtui.policies.torch.client import TorchPolicy

    return TorchPolicy(settings_of(config), log_file)


def settings_of(config: RunConfig) -> TorchSettings:
    """What a run's settings say to this policy."""
    from tbtui.policies.torch.settings import TorchSettings

    return TorchSettings(
        model_name=config.model_name,
        checkpoint=Path(config.checkpoint) if config.checkpoint else None,
        lora_rank=config.lora_rank,
        lora_alpha=config.lora_alpha,
        lora_targets=config.lora_targets,
        dtype=config.dtype,
        train_device=config.train_device,
        micro_batch_tokens=config.micro_batch_tokens,
        gradient_checkpointing=config.gradient_checkpointing,
        sampler=config.sampler,
        vllm_devices=config.vllm_devices,
        vllm_base_url=config.vllm_base_url,
        vllm_sleeps=not (config.stream or config.max_steps_off_policy),
        max_rows=config.n_parallel_envs,
        seed=config.seed,
        trains=config.step_limit != 0,
        context_limit=config.context_limit,
        tokenizer=config.tokenizer,
        renderer=config.renderer,
        thinking=config.thinking,
        tool_format=config.tool_format,
    )


def _preflight(config: RunConfig) -> tuple[str, ...]:
    from tbtui.policies.torch.memory_fit import preflight

    return preflight(settings_of(config))


def _problems(config: RunConfig) -> Iterator[Problem]:
    from tbtui.config.values import error

    missing = [name for name in ("torch", "peft") if importlib.util.find_spec(name) is None]
    if missing:
        # Nobody may have chosen it: a hub's name alone means a model that is trained here.
        key = ", for which there is a TINKER_API_KEY" if os.environ.get("TINKER_API_KEY") else ""
        other = "" if "policy" in config.given else f"; or policy=tinker, on a server{key}"
        yield error(
            f"policy=torch: {' and '.join(missing)} not installed; run it as {INSTALL} (the extra"
            f" brings them){other}",
            of_machine=True,
        )
    if "model_name" not in config.given:
        yield error(
            "model_name: name the model to train: a directory, or a name on the Hugging Face hub"
            " such as Qwen/Qwen3-0.6B"
        )
    if config.lora_rank == 0:
        for name, default in (("lora_alpha", 32.0), ("lora_targets", ())):
            if getattr(config, name) != default:
                yield error(f"{name}: lora_rank=0 trains all weights, no adapter; leave it out")
    yield from _device_problems(config)
    yield from lost_password("vllm_base_url", config.vllm_base_url)
    yield from off_policy_sampling(config, "a model trained here")


def _device_problems(config: RunConfig) -> Iterator[Problem]:
    from tbtui.config.values import error

    trains, samples = config.train_device, config.vllm_devices
    if len(several := [each for each in re.split(r"[\s,+]+", trains) if each]) > 1:
        yield error(
            f"train_device={trains}: policy=torch trains on one device; on {len(several)} GPUs"
            " Prime-RL does: "
            + to_type("run", "engine=prime-rl", f"model_name={config.model_name}")
        )
    elif not re.fullmatch(r"auto|cpu|mps|cuda(:\d+)?", trains):
        yield error(f"train_device={trains}: write cuda, cuda:1, mps, cpu or auto")
    if not samples:
        return
    given = f"vllm_devices={','.join(samples)}"
    if config.vllm_base_url:
        yield error(f"{given}: the server at vllm_base_url has its own GPUs; leave it out")
    elif config.sampler == "transformers":
        yield error(f"{given}: sampler=transformers samples where it trains; give sampler=vllm")
    elif wrong := [each for each in samples if not _VISIBLE_DEVICE.fullmatch(each)]:
        yield error(
            f"{given}: {wrong[0]!r} is no GPU as CUDA_VISIBLE_DEVICES counts them, such as 1"
        )
    elif len(set(samples)) < len(samples):
        yield error(f"{given}: a GPU is named twice")
    elif (shared := _training_gpu(trains)) in samples:
        yield error(
            f"{given}: GPU {shared} is the one that trains (train_device={trains}); name another,"
            " or leave vllm_devices out: vLLM then shares that GPU and sleeps while it trains"
        )


def _training_gpu(train_device: str) -> str | None:
    """The GPU that trains, as CUDA_VISIBLE_DEVICES counts them; None: not one of CUDA's."""
    if train_device in ("cpu", "mps"):
        return None
    index = train_device.partition(":")[2] or "0"
    visible = [each.strip() for each in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")]
    if visible == [""]:
        return index
    return visible[int(index)] if index.isdecimal() and int(index) < len(visible) else None


BACKEND = Backend(_make, _problems, takes_address="vllm_base_url", preflight=_preflight)
