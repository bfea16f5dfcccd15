"""Checks of our own trainer's settings, before a run and when they change while it goes on: what
contradicts itself, and what a policy can't do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, get_args

from tbtui.config import (
    BudgetUnit,
    ConfigError,
    RunConfig,
    fixed_on_resume,
    live_effects,
    read_setting,
    settings,
    to_json,
)
from tbtui.config.values import (
    EMBEDDED_MODELS,
    Problem,
    completion_within,
    error,
    errors_first,
    is_embedded,
    require_no_errors,
    warning,
)
from tbtui.engines.config_checks import (
    common_problems,
    context_problems,
    listed,
    thinking_problems,
)
from tbtui.engines.grpo.outcome_policy import outcome_policy
from tbtui.engines.grpo.review_rules import load_rules
from tbtui.engines.prices import price_list
from tbtui.engines.probe_arms import probe_problems
from tbtui.policies.registry import policy_problems
from tbtui.resources import tasks_dir as bundled_tasks

if TYPE_CHECKING:
    from tbtui.policies.base import PolicyInfo


_COLLAPSING_RATE = 4e-4
"""Two of five runs of the embedded policy at this rate fell to a fraction of what they had
reached."""


def grpo_problems(config: RunConfig) -> list[Problem]:
    """Problems of the settings that can be seen before the policy starts."""
    return [
        *_embedded_models(config),
        *_outcomes(config),
        *_without_prime_rl(config),
        *policy_problems(config),
        *_tasks_of_others(config),
        *_budget(config),
        *probe_problems(config),
        *common_problems(config),
        *_biased_or_collapsing(config),
    ]


def unsupported(config: RunConfig, info: PolicyInfo) -> list[Problem]:
    """What the policy, once it has started, can't do of what was asked for. The errors come
    first."""
    fitted = fitted_to_model(config, info)
    thinking = thinking_problems(fitted) if info.thinks else ()
    return errors_first([*_by_the_policy(config, info), *_context(fitted, info), *thinking])


def fitted_to_model(config: RunConfig, info: PolicyInfo) -> RunConfig:
    """`config` with a `max_tokens` that nobody has given as its default is in the model's context,
    which may not have been known before the policy had started."""
    most = completion_within(_context_of(config, info))
    if "max_tokens" in config.given or config.max_tokens <= most or is_embedded(to_json(config)):
        return config
    return config.replace(max_tokens=most)


def _context_of(config: RunConfig, info: PolicyInfo) -> int:
    return min(config.context_limit or info.context_limit, info.context_limit)


def _embedded_models(config: RunConfig) -> Iterator[Problem]:
    if config.policy == "local" and config.model_name not in EMBEDDED_MODELS:
        yield error(
            f"model_name={config.model_name}: the embedded policy has two models,"
            f" {' and '.join(EMBEDDED_MODELS)}; to start from other weights, give"
            " checkpoint=DIRECTORY; for another model, policy=tinker or engine=prime-rl, or"
            " policy=vllm to evaluate one"
        )


def _outcomes(config: RunConfig) -> Iterator[Problem]:
    try:
        yield from map(warning, outcome_policy(config.on_outcome).warnings())
    except ConfigError as wrong:
        yield error(str(wrong))


def _biased_or_collapsing(config: RunConfig) -> Iterator[Problem]:
    if config.oversample and config.oversample_keep == "first_finished":
        yield warning(
            "oversample_keep=first_finished: the first trials to finish fill a group, so short"
            " ones are trained on more often"
        )
    if config.policy == "local" and config.learning_rate >= _COLLAPSING_RATE:
        yield warning(
            f"learning_rate={config.learning_rate:g}: from {_COLLAPSING_RATE:g} on the embedded"
            " policy has been seen to collapse; 2e-4 learns well"
        )


def _without_prime_rl(config: RunConfig) -> Iterator[Problem]:
    for name in ("prime_rl_dir", "prime_rl_config", "num_train_gpus", "num_infer_gpus"):
        if name in config.given:
            yield error(f"{name}: only for engine=prime-rl; give that too, or leave it out")


def _tasks_of_others(config: RunConfig) -> Iterator[Problem]:
    """Bundled tasks with an embedded model that was made for others."""
    given = config.tasks_dir
    if config.policy != "local" or config.checkpoint is not None or given is None:
        return
    found = given.resolve() if given.is_dir() else bundled_tasks() / given
    if found.parent == bundled_tasks() and found.name != config.model_name:
        whose = (
            f"model_name={found.name} is" if found.name in EMBEDDED_MODELS else "larger models are"
        )
        yield warning(
            f"tasks_dir={given}: the embedded model {config.model_name} solves none of these tasks;"
            f" {whose} made for them"
        )


def _budget(config: RunConfig) -> Iterator[Problem]:
    units = get_args(BudgetUnit)
    for unit in config.budget.keys() - set(units):
        yield error(f"budget.{unit}: no run counts that; give budget.{', .'.join(units)}")
    if "dollars" in config.budget and not price_list(config).prices:
        yield error(
            f"budget.dollars={config.budget['dollars']:g}: there are no prices to count by; give"
            " prices.prompt, prices.sampled and prices.trained too"
        )
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
    yield from context_problems(config, _context_of(config, info))


def changed_config(config: RunConfig, values: Mapping[str, Any]) -> RunConfig:
    """`config` with these JSON-like values in it.

    Raises:
        ConfigError: a setting can't change in a live run, or not to this.
    """
    if not values:
        raise ConfigError("no setting is named; write name=value")
    new = {name: _read_live(name, value) for name, value in values.items()}
    changed = config.replace(**new, given=config.given | new.keys())
    require_no_errors(grpo_problems(changed))
    if "review_rules" in new and changed.review_rules is not None:
        load_rules(changed.review_rules)
    return changed


def differences(old: RunConfig, new: RunConfig) -> dict[str, Any]:
    """Settings of `new` that differ, as JSON has them."""
    before, now = to_json(old), to_json(new)
    return {name: value for name, value in now.items() if before[name] != value}


def in_words(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """`eval_every 5 (was 10; counts from the first step, as before)`."""
    effects = live_effects()
    return ", ".join(
        f"{name} {_shown(value)} (was {_shown(before[name])}; {effects[name]})"
        for name, value in now.items()
    )


def _read_live(name: str, value: Any) -> Any:
    """The value of a setting that may change in a live run; raises `ConfigError`."""
    read = read_setting(name, value)
    if name not in live_effects():
        reason = fixed_on_resume().get(name)
        raise ConfigError(
            f"{name}: can't change in a live run"
            + (f": {reason}" if reason else f"; stop it, and resume it with {name}=...")
        )
    return read


def _shown(value: Any) -> str:
    return "none" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
