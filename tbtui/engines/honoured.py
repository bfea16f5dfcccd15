"""Settings that can't be honoured are refused, or a person is told: none is ignored in silence.

What the settings say by themselves is checked before anything starts (`contradictions`), what
depends on the policy as soon as it is known (`unhonoured`). Both are pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

from tbtui.config import POLICY_SETTINGS, ConfigError, RunConfig, is_embedded, to_json
from tbtui.config.values import lacks_password, without_password
from tbtui.engines.prices import price_list
from tbtui.journal.vocabulary import AlarmName

if TYPE_CHECKING:
    from tbtui.policies.base import PolicyInfo

PRICES = ("prompt", "sampled", "trained")
"""All of them, or none, are given."""
FURTHER_PRICES = ("cached", "scored", "storage")
"""The first two are the price of a prompt where they are not given; without the last, storage isn't
counted."""

LEAST_TO_THINK = 2048
"""Tokens of one completion. What a model of 8 billion parameters thinks before a command often
takes more than a thousand; recipes of the field give 4096 to 8192."""

HIGHEST_SENSIBLE_RATE = 0.01
"""A LoRA adapter is trained with about a tenth of it, whole weights with less."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A setting that is not, or not quite, honoured."""

    level: Literal["error", "warning"]
    text: str
    """One line: the setting, why, and what to do."""


def require_consistent(config: RunConfig) -> list[str]:
    """The warnings of `contradictions`.

    Raises:
        ConfigError: the first of its errors.
    """
    return _warnings(contradictions(config))


def require_honoured(config: RunConfig, info: PolicyInfo) -> list[str]:
    """The warnings of `unhonoured`.

    Raises:
        ConfigError: the first of its errors.
    """
    return _warnings(unhonoured(config, info))


def contradictions(config: RunConfig) -> list[Problem]:
    """What is wrong with the settings whichever policy it is."""
    if config.engine == "prime-rl":
        # Here, because it asks this module for what is wrong with any engine.
        from tbtui.engines.prime_rl.launch.configuration import launch_problems

        return launch_problems(config)
    return [
        *_without_prime_rl(config),
        *_embedded(config),
        *_on_a_server(config),
        *_on_a_vllm_server(config),
        *_temperature(config),
        *_budget(config),
        *contradictions_of_any_engine(config),
    ]


def contradictions_of_any_engine(config: RunConfig) -> list[Problem]:
    """What of that holds whoever samples and trains."""
    return [
        *_schedule(config),
        *_learning(config),
        *_review(config),
        *_evaluation(config),
        *_lengths(config),
        *_where(config),
    ]


def unhonoured(config: RunConfig, info: PolicyInfo) -> list[Problem]:
    """What the policy can't do of what was asked for. The errors come first."""
    problems = [*_not_the_policys(config, info), *_context(config, info)]
    return sorted(problems, key=lambda problem: problem.level != "error")


def _warnings(problems: list[Problem]) -> list[str]:
    for problem in problems:
        if problem.level == "error":
            raise ConfigError(problem.text)
    return [problem.text for problem in problems]


def _error(text: str) -> Problem:
    return Problem("error", text)


def _warning(text: str) -> Problem:
    return Problem("warning", text)


def _without_prime_rl(config: RunConfig) -> Iterator[Problem]:
    for name in ("prime_rl_dir", "prime_rl_config", "num_train_gpus", "num_infer_gpus"):
        if name in config.given:
            yield _error(f"{name}: only for engine=prime-rl; give that too, or leave it out")


def _embedded(config: RunConfig) -> Iterator[Problem]:
    if config.policy != "local":
        return
    if "lora_rank" in config.given:
        yield _error("lora_rank: the embedded policy trains all its weights; leave it out")
    if config.tinker_base_url is not None:
        yield _error("tinker_base_url: the embedded policy has no server; leave it out")


def _on_a_server(config: RunConfig) -> Iterator[Problem]:
    if config.policy != "tinker":
        return
    if config.tinker_base_url != without_password(config.tinker_base_url):
        yield _error(
            "tinker_base_url: leave user and password out of it, which the SDK would write into"
            " logs; a server's key is TINKER_API_KEY"
        )
    # Another server may well serve the embedded model, whose name nobody has to give.
    if "model_name" not in config.given and config.tinker_base_url is None:
        yield _error("model_name: name a model of the Tinker server, such as Qwen/Qwen3-8B")


def _on_a_vllm_server(config: RunConfig) -> Iterator[Problem]:
    if config.policy != "vllm":
        if config.vllm_base_url is not None:
            yield _error(
                f"vllm_base_url: policy={config.policy} asks no vLLM server; leave it out, or give"
                " policy=vllm"
            )
        return
    if config.step_limit != 0:
        yield _error(
            "policy=vllm: a model on a vLLM server can only be evaluated; use tbtui eval, or train"
            " with policy=tinker"
        )
    if "model_name" not in config.given:
        yield _error("model_name: give the name under which the vLLM server serves the model")
    if lacks_password(config.vllm_base_url):
        yield _error(
            "vllm_base_url: passwords are not written down; give it again:"
            f" vllm_base_url={config.vllm_base_url} with the password in place of ***"
        )
    if config.checkpoint is not None:
        yield _error(
            f"checkpoint={config.checkpoint}: a vLLM server has the weights that it was started"
            " with; leave it out"
        )
    if config.tinker_base_url is not None:
        yield _error("tinker_base_url: policy=vllm asks a vLLM server; give vllm_base_url")
    if config.eval_temperature != 1:
        yield _warning(
            f"eval_temperature={config.eval_temperature:g}: a vLLM server tells log-probabilities"
            " at temperature 1, unless it was started with --logprobs-mode processed_logprobs"
        )


def _temperature(config: RunConfig) -> Iterator[Problem]:
    # A vLLM server trains nothing, and Prime-RL's trainer divides by the temperature itself.
    if config.policy == "vllm" or config.step_limit == 0 or config.temperature == 1:
        return
    who = "a Tinker server" if config.policy == "tinker" else "the embedded policy"
    yield _warning(
        f"temperature={config.temperature:g}: {who} trains on log-probabilities at temperature 1,"
        " so what was sampled at another one is off-policy"
    )


def _schedule(config: RunConfig) -> Iterator[Problem]:
    if config.num_substeps > config.batch_size:
        yield _error(
            f"num_substeps={config.num_substeps}: a batch has only batch_size={config.batch_size}"
            " groups to divide among them"
        )
    limit = config.step_limit
    if limit and config.warmup_steps >= limit:
        yield _error(
            f"warmup_steps={config.warmup_steps}: the learning rate would still be rising at the"
            f" last of max_steps={limit}"
        )
    if config.stream and config.advantage_method == "batch":
        yield _error(
            "stream=true: advantage=batch needs the rewards of the whole batch before the first"
            " gradient; choose another advantage, or stream=false"
        )
    if config.min_group > config.group_size:
        yield _error(
            f"min_group={config.min_group}: no group has more than group_size={config.group_size}"
            " trials, so none would be trained on"
        )


def _learning(config: RunConfig) -> Iterator[Problem]:
    if config.normalize_advantages_by_std and config.advantage not in ("centred", "std"):
        yield _error(
            "normalize_advantages_by_std=true means advantage=std, but"
            f" advantage={config.advantage}; give one of them"
        )
    given = config.given
    if config.learning_rate > HIGHEST_SENSIBLE_RATE and config.step_limit != 0:
        yield _warning(
            f"learning_rate={config.learning_rate:g}: AdamW moves every weight by about so much a"
            f" step; above {HIGHEST_SENSIBLE_RATE:g} a model usually forgets all it can do"
        )
    if "dro_beta" in given and config.loss_fn != "dro":
        yield _warning(f"dro_beta: not used by loss_fn={config.loss_fn}, only by dro")
    for name in sorted({"clip_low", "clip_high"} & given):
        if config.loss_fn in ("importance_sampling", "dro"):
            yield _warning(f"{name}: not used by loss_fn={config.loss_fn}, which clips nothing")
    if "overlong_buffer" in given and not config.overlong_penalty:
        yield _warning("overlong_buffer: without overlong_penalty there is nothing to rise")
    if "proactive_summarization_threshold" in given and not config.enable_summarize:
        yield _warning("proactive_summarization_threshold: not used without enable_summarize=true")
    if "train_summaries" in given and not config.enable_summarize:
        yield _warning("train_summaries: without enable_summarize=true there are none")


def _review(config: RunConfig) -> Iterator[Problem]:
    if config.review != "off" and config.stream:
        yield _error(
            f"review={config.review}: stream=true trains a group as soon as it is complete; leave"
            " one of them out"
        )
    given = config.given
    for name in sorted({"review_rules", "review_timeout_sec", "at_review_timeout"} & given):
        if config.review == "off":
            yield _warning(f"{name}: not used without review=suspects or review=always")
    if "at_review_timeout" in given and config.review_timeout_sec is None:
        yield _warning("at_review_timeout: not used without review_timeout_sec")


def _evaluation(config: RunConfig) -> Iterator[Problem]:
    if config.agent == "oracle" and config.step_limit != 0:
        yield _error(
            "agent=oracle: a task's own solution teaches the policy nothing; use tbtui eval, or"
            " tbtui tasks try TASK --oracle"
        )
    if config.eval_tasks and "eval_split" in config.given:
        yield _error("eval_tasks and eval_split: both say which tasks to hold out; give one")
    for name in sorted(config.prices):
        if name not in (*PRICES, *FURTHER_PRICES):
            known = _listed((*PRICES, *FURTHER_PRICES))
            yield _error(f"prices.{name}: there is no such price; there are {known}")
    missing = [name for name in PRICES if name not in config.prices]
    if config.prices and missing:
        yield _error(
            f"prices: {_listed([f'prices.{name}' for name in missing])} missing; a step's cost"
            " needs all of them (0 where nothing is charged)"
        )


def _budget(config: RunConfig) -> Iterator[Problem]:
    if config.max_cost is not None and config.engine == "grpo" and not price_list(config).prices:
        yield _error(
            f"max_cost={config.max_cost:g}: there are no prices to count by; give prices.prompt,"
            " prices.sampled and prices.trained too"
        )


def _lengths(config: RunConfig) -> Iterator[Problem]:
    """Room for long answers. The embedded model's are short."""
    if is_embedded(to_json(config)) or config.prime_rl_config is not None:
        return
    if config.thinking != "off" and config.max_tokens < LEAST_TO_THINK:
        yield _warning(
            f"max_tokens={config.max_tokens}: a model that thinks is often cut off before it has"
            " answered, and a trial that ends so has reward 0; leave it out, or give at least"
            f" {LEAST_TO_THINK}, or thinking=off"
        )


def _where(config: RunConfig) -> Iterator[Problem]:
    if config.wandb_name is not None and config.wandb_project is None:
        yield _error("wandb_name: nothing is logged to wandb without wandb_project")
    alarms = get_args(AlarmName)
    for name in sorted(config.on_alarm):
        if name not in alarms:
            yield _error(f"on_alarm.{name}: there is no such alarm; there are {_listed(alarms)}")
    if "oversample_keep" in config.given and not config.oversample:
        yield _warning("oversample_keep: not used without oversample")
    if "at_deadline" in config.given and config.step_deadline_sec is None:
        yield _warning("at_deadline: not used without step_deadline_sec")


def _not_the_policys(config: RunConfig, info: PolicyInfo) -> Iterator[Problem]:
    values = to_json(config)
    for name in sorted((POLICY_SETTINGS & config.given) - info.honours):
        # Zero or none switches such a setting off, which any policy can do.
        if values[name]:
            yield _error(
                f"{name}={values[name]}: the {info.name} policy can't honour it; leave it out"
            )
    if config.max_steps_off_policy and not info.keeps_published:
        yield _error(
            f"max_steps_off_policy={config.max_steps_off_policy}: the {info.name} policy's server"
            " has one place for the weights that are sampled and those that are trained, and would"
            " mix them up; leave it out"
        )
    # Without any loss it is only evaluated.
    if info.losses and config.loss_fn not in info.losses:
        yield _error(f"loss_fn={config.loss_fn}: the {info.name} policy has {_listed(info.losses)}")
    if config.stream and not info.divides_gradient and config.loss_normalizer != "sum":
        yield _error(
            f"stream=true: loss_normalizer={config.loss_normalizer} is known only at the end of a"
            f" batch, and the {info.name} policy can't divide a gradient; choose"
            " loss_normalizer=sum, or stream=false"
        )


def _context(config: RunConfig, info: PolicyInfo) -> Iterator[Problem]:
    if config.context_limit is not None and config.context_limit > info.context_limit:
        yield _error(
            f"context_limit={config.context_limit}: {info.model_name} has {info.context_limit}"
            " tokens"
        )
    limit = min(config.context_limit or info.context_limit, info.context_limit)
    if config.max_tokens >= limit:
        yield _error(
            f"max_tokens={config.max_tokens}: nothing of the context of {limit} tokens would be"
            " left for a prompt"
        )
    if config.enable_summarize and limit <= config.proactive_summarization_threshold:
        yield _error(
            f"enable_summarize=true: the context of {limit} tokens always has fewer free ones than"
            f" proactive_summarization_threshold={config.proactive_summarization_threshold};"
            " give a smaller threshold"
        )


def _listed(names: list[str] | tuple[str, ...]) -> str:
    return ", ".join(names[:-1]) + " and " * (len(names) > 1) + names[-1]
