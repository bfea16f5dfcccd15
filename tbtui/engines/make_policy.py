"""The policy that a config names."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import IO

from tbtui.config import RunConfig
from tbtui.policies.base import Policy
from tbtui.policies.local.client import LocalPolicy

PolicyFactory = Callable[[RunConfig, IO[bytes]], Policy]
"""Makes the policy that a config names, not started yet; what it writes goes to the file."""


def make_policy(config: RunConfig, log_file: IO[bytes]) -> Policy:
    match config.policy:
        case "local":
            checkpoint = Path(config.checkpoint) if config.checkpoint else None
            return LocalPolicy(checkpoint, model_name=config.model_name, log=log_file)
        case "tinker":
            from tbtui.policies.tinker import TinkerPolicy, TinkerSettings

            return TinkerPolicy(
                TinkerSettings(
                    model_name=config.model_name,
                    checkpoint=config.checkpoint,
                    base_url=config.tinker_base_url,
                    lora_rank=config.lora_rank,
                    seed=config.seed,
                    loss=config.loss_fn,
                    context_limit=config.context_limit,
                    tokenizer=config.tokenizer,
                    renderer=config.renderer,
                    thinking=config.thinking,
                    checkpoint_ttl_hours=config.checkpoint_ttl_hours,
                    run_name=config.run_name,
                ),
                log_file,
            )
        case "vllm":
            from tbtui.policies.vllm import VllmPolicy, VllmSettings

            return VllmPolicy(
                VllmSettings(
                    model_name=config.model_name,
                    base_url=config.vllm_base_url,
                    context_limit=config.context_limit,
                    tokenizer=config.tokenizer,
                    renderer=config.renderer,
                    thinking=config.thinking,
                )
            )
