"""Checks of the settings that hold for any engine: no setting is ignored in silence.

An engine's own checks are in `grpo/config_checks.py` and `prime_rl/config_checks.py`; both ask
these too. All are pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tbtui.config import RunConfig, is_embedded, to_json
from tbtui.config.values import (
    Problem,
    as_typed,
    completion_within,
    error,
    own_context,
    warning,
)
from tbtui.engines.agent_checks import agent_problems
from tbtui.findings import ALARMS
from tbtui.invocation import to_type

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


def listed(names: Sequence[str]) -> str:
    """`a, b and c`."""
    return ", ".join(names[:-1]) + " and " * (len(names) > 1) + names[-1]


MOST_STOPS = 16
"""Every answer is searched for each."""


def _sampling(config: RunConfig) -> Iterator[Problem]:
    if config.temperature == 0 and config.step_limit != 0:
        yield error(
            "temperature=0: the trials of a group would all be the same, and a group of equal"
            " rewards has no gradient; give more than 0, such as temperature=0.7"
        )
    if config.eval_temperature == 0 and config.eval_group_size > 1:
        yield error(
            f"eval_temperature=0: the {config.eval_group_size} trials of a task would all be the"
            " same; give eval_group_size=1, or more than 0"
        )
    if "" in config.stop:
        yield error("stop: one of the texts is empty, and would end every answer; leave it out")
    if len(config.stop) > MOST_STOPS:
        yield error(f"stop: there are {len(config.stop)} texts; give {MOST_STOPS} at most")


def _rewards(config: RunConfig) -> Iterator[Problem]:
    if config.reward_key is not None and config.reward_weights:
        yield error(
            f"reward_key={config.reward_key}: with reward_weights it is their sum that counts;"
            " leave one of the two out"
        )


def common_problems(config: RunConfig) -> list[Problem]:
    """What contradicts itself whichever engine it is."""
    return [
        *_schedule(config),
        *_learning(config),
        *_review(config),
        *_evaluation(config),
        *_rewards(config),
        *_sampling(config),
        *agent_problems(config),
        *_lengths(config),
        *_where(config),
    ]


def context_problems(config: RunConfig, limit: int) -> Iterator[Problem]:
    """What doesn't fit into a context of `limit` tokens."""
    if config.max_tokens >= limit:
        yield error(
            f"max_tokens={config.max_tokens}: nothing of the context of {limit} tokens would be"
            f" left for a prompt; leave it out, or give max_tokens={completion_within(limit)}"
        )
    if config.enable_summarize and limit <= config.proactive_summarization_threshold:
        yield error(
            f"enable_summarize=true: the context of {limit} tokens always has fewer free ones than"
            f" proactive_summarization_threshold={config.proactive_summarization_threshold};"
            " give a smaller threshold"
        )


def _schedule(config: RunConfig) -> Iterator[Problem]:
    if config.num_substeps > config.batch_size:
        yield error(
            f"num_substeps={config.num_substeps}: a batch has only batch_size={config.batch_size}"
            " groups to divide among them"
        )
    limit = config.step_limit
    if limit and config.warmup_steps >= limit:
        yield error(
            f"warmup_steps={config.warmup_steps}: the learning rate would still be rising at the"
            f" last of max_steps={limit}"
        )
    if config.stream and config.advantage == "batch":
        yield error(
            "stream=true: advantage=batch needs the rewards of the whole batch before the first"
            " gradient; choose another advantage, or stream=false"
        )
    if config.min_group > config.group_size:
        yield error(
            f"min_group={config.min_group}: no group has more than group_size={config.group_size}"
            " trials, so none would be trained on"
        )
    yield from _screen(config)


def _screen(config: RunConfig) -> Iterator[Problem]:
    screen, size, least = config.screen_trials, config.group_size, max(2, config.min_group)
    if not screen or least <= screen < size:
        return
    if least >= size:
        yield error(
            f"screen_trials={screen}: a group that is compared after {least} trials has no others"
            f" with group_size={size}; give a larger group_size, or leave it out"
        )
    else:
        yield error(
            f"screen_trials={screen}: rewards of the first trials of a group are compared, so it"
            f" should be from {least} (min_group, and at least 2) to {size - 1}, less than"
            f" group_size={size}; 0 begins all at once"
        )


def _learning(config: RunConfig) -> Iterator[Problem]:
    given = config.given
    if config.learning_rate > HIGHEST_SENSIBLE_RATE and config.step_limit != 0:
        yield warning(
            f"learning_rate={config.learning_rate:g}: AdamW moves every weight by about so much a"
            f" step; above {HIGHEST_SENSIBLE_RATE:g} a model usually forgets all it can do"
        )
    if "dro_beta" in given and config.loss_fn != "dro":
        yield warning(f"dro_beta: not used by loss_fn={config.loss_fn}, only by dro")
    for name in sorted({"clip_low", "clip_high"} & given):
        if config.loss_fn in ("importance_sampling", "dro"):
            yield warning(f"{name}: not used by loss_fn={config.loss_fn}, which clips nothing")
    for name in sorted({"demo_weight", "demos_per_step"} & given):
        if config.demos != "train":
            yield warning(f"{name}: not used without demos=train")
    if "overlong_buffer" in given and not config.overlong_penalty:
        yield warning("overlong_buffer: without overlong_penalty there is nothing to rise")
    if "proactive_summarization_threshold" in given and not config.enable_summarize:
        yield warning("proactive_summarization_threshold: not used without enable_summarize=true")
    if "train_summaries" in given and not config.enable_summarize:
        yield warning("train_summaries: without enable_summarize=true there are none")


def _review(config: RunConfig) -> Iterator[Problem]:
    if config.review != "off" and config.stream:
        yield error(
            f"review={config.review}: stream=true trains a group as soon as it is complete; leave"
            " one of them out"
        )
    given = config.given
    for name in sorted({"review_rules", "review_timeout_sec", "at_review_timeout"} & given):
        if config.review == "off":
            yield warning(f"{name}: not used without review=suspects or review=always")
    if "at_review_timeout" in given and config.review_timeout_sec is None:
        yield warning("at_review_timeout: not used without review_timeout_sec")


def _evaluation(config: RunConfig) -> Iterator[Problem]:
    if config.agent == "oracle" and config.step_limit != 0:
        yield error(
            "agent=oracle: a task's own solution teaches the policy nothing; use"
            f" {to_type('eval', *as_typed(config, 'max_steps', 'n_epochs'))},"
            f" or {to_type('tasks', 'try', 'TASK', '--oracle')}"
        )
    if config.eval_tasks and "eval_split" in config.given:
        yield error("eval_tasks and eval_split: both say which tasks to hold out; give one")
    for name in sorted(config.prices):
        if name not in (*PRICES, *FURTHER_PRICES):
            known = listed((*PRICES, *FURTHER_PRICES))
            yield error(f"prices.{name}: there is no such price; there are {known}")
    missing = [name for name in PRICES if name not in config.prices]
    if config.prices and missing:
        yield error(
            f"prices: {listed([f'prices.{name}' for name in missing])} missing; a step's cost"
            " needs all of them (0 where nothing is charged)"
        )


def _lengths(config: RunConfig) -> Iterator[Problem]:
    """Room for long answers. The embedded model's are short."""
    if is_embedded(to_json(config)) or config.prime_rl_config is not None:
        return
    if (limit := config.context_limit or own_context(config.model_name)) is not None:
        yield from context_problems(config, limit)
    # What knows its model's chat template says so once it has started.
    if config.engine == "prime-rl" or config.policy == "openai":
        yield from thinking_problems(config)


def thinking_problems(config: RunConfig) -> Iterator[Problem]:
    """Too little room for a model that thinks."""
    if config.thinking != "off" and config.max_tokens < LEAST_TO_THINK:
        yield warning(
            f"max_tokens={config.max_tokens}: a model that thinks is often cut off before it has"
            " answered, and a trial that ends so has reward 0; leave it out, or give at least"
            f" {LEAST_TO_THINK}, or thinking=off"
        )


def _where(config: RunConfig) -> Iterator[Problem]:
    if config.wandb_name is not None and config.wandb_project is None:
        yield error("wandb_name: nothing is logged to wandb without wandb_project")
    for name in sorted(config.on_alarm):
        if name not in ALARMS:
            yield error(f"on_alarm.{name}: there is no such alarm; there are {listed(ALARMS)}")
    if "oversample_keep" in config.given and not config.oversample:
        yield warning("oversample_keep: not used without oversample")
    if "at_deadline" in config.given and config.step_deadline_sec is None:
        yield warning("at_deadline: not used without step_deadline_sec")
