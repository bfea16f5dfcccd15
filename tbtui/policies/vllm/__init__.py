"""A model that a vLLM server serves: it can be sampled from, token for token, and not trained."""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO, TYPE_CHECKING

from tbtui.invocation import to_type
from tbtui.policies import Backend, lost_password, sampling_of, truncating

if TYPE_CHECKING:
    from tbtui.config import RunConfig
    from tbtui.config.values import Problem
    from tbtui.policies.base import Policy


def _make(config: RunConfig, log_file: IO[bytes]) -> Policy:
    from tbtui.policies.vllm.policy import VllmPolicy
    from tbtui.policies.work import ServerSettings

    return VllmPolicy(
        ServerSettings(
            model_name=config.model_name,
            base_url=config.vllm_base_url,
            context_limit=config.context_limit,
            tokenizer=config.tokenizer,
            renderer=config.renderer,
            thinking=config.thinking,
            tool_format=config.tool_format,
            sampling=sampling_of(config, config.eval_temperature),
        ),
        log_file,
    )


def _problems(config: RunConfig) -> Iterator[Problem]:
    from tbtui.config.values import as_typed, error, warning

    if config.step_limit != 0:
        yield error(
            "policy=vllm: a model on a vLLM server can only be evaluated; use"
            f" {to_type('eval', *as_typed(config, 'max_steps', 'n_epochs'))},"
            " or train with policy=tinker"
        )
    if "model_name" not in config.given:
        yield error("model_name: give the name under which the vLLM server serves the model")
    yield from lost_password("vllm_base_url", config.vllm_base_url)
    if config.checkpoint is not None:
        yield error(
            f"checkpoint={config.checkpoint}: a vLLM server has the weights that it was started"
            " with; leave it out"
        )
    if config.eval_temperature != 1:
        yield warning(
            f"eval_temperature={config.eval_temperature:g}: a vLLM server returns log-probabilities"
            " at temperature 1, unless it was started with --logprobs-mode processed_logprobs"
        )
    if left_out := truncating(config):
        yield warning(
            f"{left_out[0]}: a vLLM server returns log-probabilities of all tokens, unless it was"
            " started with --logprobs-mode processed_logprobs"
        )


BACKEND = Backend(_make, _problems, address=("vllm_base_url", "vLLM"))
