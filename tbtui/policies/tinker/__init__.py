"""A model behind a server that speaks the Tinker API: the hosted service, or one's own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import IO, TYPE_CHECKING

from tbtui.policies import Backend, off_policy_sampling

if TYPE_CHECKING:
    from tbtui.config import RunConfig
    from tbtui.config.values import Problem
    from tbtui.policies.base import Policy


def _make(config: RunConfig, log_file: IO[bytes]) -> Policy:
    from tbtui.policies.tinker.policy import TinkerPolicy
    from tbtui.policies.tinker.training_run import TinkerSettings

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
            tool_format=config.tool_format,
            checkpoint_ttl_hours=config.checkpoint_ttl_hours,
            run_name=config.run_name,
        ),
        log_file,
    )


def _problems(config: RunConfig) -> Iterator[Problem]:
    from tbtui.config.values import error, without_password

    if config.tinker_base_url != without_password(config.tinker_base_url):
        yield error(
            "tinker_base_url: leave user and password out of it, which the SDK would write into"
            " logs; a server's key is TINKER_API_KEY"
        )
    if config.lora_rank == 0:
        yield error("lora_rank=0: a Tinker server trains an adapter; give a rank of at least 1")
    if config.min_p:
        yield error(
            f"min_p={config.min_p:g}: the Tinker API has temperature, top_p and top_k alone; leave"
            " it out, or give one of these"
        )
    # Another server may well serve the embedded model, whose name need not be given.
    if "model_name" not in config.given and config.tinker_base_url is None:
        yield error("model_name: name a model of the Tinker server, such as Qwen/Qwen3-8B")
    yield from off_policy_sampling(config, "a Tinker server")


def _preflight(config: RunConfig) -> tuple[str, ...]:
    key = os.environ.get("TINKER_API_KEY", "")
    if not (key.startswith("tml-") or os.environ.get("TINKER_CREDENTIAL_CMD")):
        # Only now: the SDK takes seconds to import.
        from tbtui.policies.tinker.session import require_credentials

        require_credentials()
    return ()


BACKEND = Backend(_make, _problems, address=("tinker_base_url", "Tinker"), preflight=_preflight)
