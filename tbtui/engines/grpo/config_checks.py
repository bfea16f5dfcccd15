"""Checks of our own trainer's settings: what contradicts itself, and what a policy can't do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tbtui.config import RunConfig, settings, to_json
from tbtui.config.problems import Problem, error, errors_first, warning
from tbtui.config.values import lacks_password, without_password
from tbtui.engines.config_checks import common_problems, context_problems, listed
from tbtui.engines.prices import price_list

if TYPE_CHECKING:
    from tbtui.policies.base import PolicyInfo


def grpo_problems(config: RunConfig) -> list[Problem]:
    """What is wrong with the settings by themselves."""
    return [
        *_without_prime_rl(config),
        *_embedded(config),
        *_tinker(config),
        *_vllm(config),
        *_temperature(config),
        *_budget(config),
        *common_problems(config),
    ]


def unsupported(config: RunConfig, info: PolicyInfo) -> list[Problem]:
    """What the policy, once it has started, can't do of what was asked for. The errors come
    first."""
    return errors_first([*_by_the_policy(config, info), *_context(config, info)])


def _without_prime_rl(config: RunConfig) -> Iterator[Problem]:
    for name in ("prime_rl_dir", "prime_rl_config", "num_train_gpus", "num_infer_gpus"):
        if name in config.given:
            yield error(f"{name}: only for engine=prime-rl; give that too, or leave it out")


def _embedded(config: RunConfig) -> Iterator[Problem]:
    if config.policy != "local":
        return
    if "lora_rank" in config.given:
        yield error("lora_rank: the embedded policy trains all its weights; leave it out")
    if config.tinker_base_url is not None:
        yield error("tinker_base_url: the embedded policy has no server; leave it out")


def _tinker(config: RunConfig) -> Iterator[Problem]:
    if config.policy != "tinker":
        return
    if config.tinker_base_url != without_password(config.tinker_base_url):
        yield error(
            "tinker_base_url: leave user and password out of it, which the SDK would write into"
            " logs; a server's key is TINKER_API_KEY"
        )
    # Another server may serve the embedded model, whose name is the default.
    if "model_name" not in config.given and config.tinker_base_url is None:
        yield error("model_name: name a model of the Tinker server, such as Qwen/Qwen3-8B")


def _vllm(config: RunConfig) -> Iterator[Problem]:
    if config.policy != "vllm":
        if config.vllm_base_url is not None:
            yield error(
                f"vllm_base_url: policy={config.policy} asks no vLLM server; leave it out, or give"
                " policy=vllm"
            )
        return
    if config.step_limit != 0:
        yield error(
            "policy=vllm: a model on a vLLM server can only be evaluated; use tbtui eval, or train"
            " with policy=tinker"
        )
    if "model_name" not in config.given:
        yield error("model_name: give the name under which the vLLM server serves the model")
    if lacks_password(config.vllm_base_url):
        yield error(
            "vllm_base_url: passwords are not written down; give it again:"
            f" vllm_base_url={config.vllm_base_url} with the password in place of ***"
        )
    if config.checkpoint is not None:
        yield error(
            f"checkpoint={config.checkpoint}: a vLLM server has the weights that it was started"
            " with; leave it out"
        )
    if config.tinker_base_url is not None:
        yield error("tinker_base_url: policy=vllm asks a vLLM server; give vllm_base_url")
    if config.eval_temperature != 1:
        yield warning(
            f"eval_temperature={config.eval_temperature:g}: a vLLM server tells log-probabilities"
            " at temperature 1, unless it was started with --logprobs-mode processed_logprobs"
        )


def _temperature(config: RunConfig) -> Iterator[Problem]:
    # A vLLM server trains nothing, and Prime-RL's trainer divides by the temperature itself.
    if config.policy == "vllm" or config.step_limit == 0 or config.temperature == 1:
        return
    who = "a Tinker server" if config.policy == "tinker" else "the embedded policy"
    yield warning(
        f"temperature={config.temperature:g}: {who} trains on log-probabilities at temperature 1,"
        " so what was sampled at another one is off-policy"
    )


def _budget(config: RunConfig) -> Iterator[Problem]:
    if config.max_cost is not None and not price_list(config).prices:
        yield error(
            f"max_cost={config.max_cost:g}: there are no prices to count by; give prices.prompt,"
            " prices.sampled and prices.trained too"
        )


def _by_the_policy(config: RunConfig, info: PolicyInfo) -> Iterator[Problem]:
    values = to_json(config)
    depending = {name for name, row in settings().items() if row.about.depends_on_policy}
    for name in sorted((depending & config.given) - info.honours):
        # Zero or none switches such a setting off, which any policy can do.
        if values[name]:
            yield error(
                f"{name}={values[name]}: the {info.name} policy can't honour it; leave it out"
            )
    if config.max_steps_off_policy and not info.keeps_published:
        yield error(
            f"max_steps_off_policy={config.max_steps_off_policy}: the {info.name} policy's server"
            " has one place for the weights that are sampled and those that are trained, and would"
            " mix them up; leave it out"
        )
    # Without any loss it is only evaluated.
    if info.losses and config.loss_fn not in info.losses:
        yield error(f"loss_fn={config.loss_fn}: the {info.name} policy has {listed(info.losses)}")
    if config.stream and not info.divides_gradient and config.loss_normalizer != "sum":
        yield error(
            f"stream=true: loss_normalizer={config.loss_normalizer} is known only at the end of a"
            f" batch, and the {info.name} policy can't divide a gradient; choose"
            " loss_normalizer=sum, or stream=false"
        )


def _context(config: RunConfig, info: PolicyInfo) -> Iterator[Problem]:
    if config.context_limit is not None and config.context_limit > info.context_limit:
        yield error(
            f"context_limit={config.context_limit}: {info.model_name} has {info.context_limit}"
            " tokens"
        )
    limit = min(config.context_limit or info.context_limit, info.context_limit)
    yield from context_problems(config, limit)
