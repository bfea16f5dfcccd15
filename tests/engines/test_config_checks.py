"""No setting is ignored in silence: an error or a warning names each that can't be honoured."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tbtui.config import ConfigError, RunConfig, parse_settings
from tbtui.config.values import require_no_errors
from tbtui.engines.grpo.config_checks import fitted_to_model, grpo_problems, unsupported
from tbtui.policies.base import PolicyInfo

EMBEDDED = PolicyInfo(
    "local",
    "starter",
    1,
    1024,
    ("importance_sampling", "ppo"),
    True,
    frozenset({"checkpoint", "grad_clip", "kl_penalty_coef", "importance_cap"}),
)
SERVICE = replace(
    EMBEDDED,
    name="service",
    divides_gradient=False,
    keeps_published=False,
    honours=frozenset(),
)


def test_the_defaults_are_honoured() -> None:
    assert not grpo_problems(parse_settings([]))
    assert not unsupported(parse_settings([]), EMBEDDED)
    short = replace(EMBEDDED, context_limit=8192, honours=frozenset({"renderer"}))
    served = parse_settings(["model_name=org/m"])
    assert not unsupported(served, short)
    assert (served.max_tokens, fitted_to_model(served, short).max_tokens) == (8192, 2048)


@pytest.mark.parametrize(
    ("arguments", "level", "text"),
    [
        ("num_substeps=5", "error", "num_substeps=5: a batch has only batch_size=4"),
        ("warmup_steps=40", "error", "warmup_steps=40: the learning rate would still be rising"),
        ("stream=true advantage=batch", "error", "stream=true: advantage=batch needs"),
        ("demo_weight=2", "warning", "demo_weight: not used without demos=train"),
        ("screen_trials=8", "error", "it should be from 2 (min_group, and at least 2) to 7"),
        ("screen_trials=1", "error", "less than group_size=8; 0 begins all at once"),
        ("screen_trials=2 group_size=2", "error", "has no others with group_size=2; give a larger"),
        ("min_group=9", "error", "min_group=9: no group has more than group_size=8"),
        ("review=always stream=true", "error", "review=always: stream=true trains a group as soon"),
        ("review_rules=a.toml", "warning", "review_rules: not used without review=suspects"),
        (
            "review=always at_review_timeout=accept",
            "warning",
            "at_review_timeout: not used without",
        ),
        ("eval_tasks=a eval_split=0.5", "error", "eval_tasks and eval_split: both say"),
        ("wandb_name=x", "error", "wandb_name: nothing is logged"),
        ("prices.promt=1", "error", "prices.promt: there is no such price"),
        ("max_cost=5", "error", "max_cost=5: there are no prices to count by"),
        ("prices.prompt=1", "error", "prices: prices.sampled and prices.trained missing"),
        ("on_alarm.fire=halt", "error", "on_alarm.fire: there is no such alarm"),
        ("dro_beta=0.1", "warning", "dro_beta: not used by loss_fn=importance_sampling"),
        ("clip_high=0.3", "warning", "clip_high: not used by"),
        ("overlong_buffer=9", "warning", "overlong_buffer: without overlong_penalty"),
        ("train_summaries=false", "warning", "train_summaries: without enable_summarize"),
        ("proactive_summarization_threshold=9", "warning", "not used without enable_summarize"),
        ("oversample_keep=first_finished", "warning", "oversample_keep: not used"),
        ("at_deadline=mask", "warning", "at_deadline: not used"),
        ("policy=tinker", "error", "model_name: name a model of the Tinker server"),
        ("temperature=0", "error", "a group of equal rewards has no gradient; give more than 0"),
        ("eval_temperature=0 eval_group_size=4", "error", "the 4 trials of a task would all be"),
        (f"stop={','.join(map(str, range(17)))}", "error", "stop: there are 17 texts; give 16"),
        # What else a policy's kind says is in tests/policies/test_registry.py.
        ("temperature=0.7", "warning", "temperature=0.7: the embedded policy trains on"),
    ],
)
def test_settings_that_contradict_each_other(arguments: str, level: str, text: str) -> None:
    (problem, *_) = grpo_problems(parse_settings(arguments.split()))
    assert problem.level == level
    assert text in problem.text
    assert "\n" not in problem.text


@pytest.mark.parametrize(
    ("setting", "text"),
    [
        ("temperature=-1", "a number of at least 0"),
        ("top_p=0", "a number above 0 and at most 1"),
        ("top_p=1.1", "a number above 0 and at most 1"),
        ("top_p=nan", "a number above 0 and at most 1"),
        ("top_k=0", "a whole number of at least 1 (tokens), or none"),
        ("top_k=-1", "a whole number of at least 1 (tokens), or none"),
        ("top_k=2.5", "a whole number of at least 1 (tokens), or none"),
        ("min_p=1", "a number of at least 0 and below 1"),
        ("min_p=-0.1", "a number of at least 0 and below 1"),
    ],
)
def test_what_nothing_can_be_drawn_from_is_refused(setting: str, text: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_settings([setting])
    assert f"{setting}: should be {text}" in str(refused.value)
    assert "\n" not in str(refused.value)


def test_an_empty_stop_text_is_refused() -> None:
    (problem, *_) = grpo_problems(RunConfig(stop=("END", "")))
    assert (problem.level, problem.text[:34]) == ("error", "stop: one of the texts is empty, a")


@pytest.mark.parametrize(
    "arguments",
    [
        "warmup_steps=50 n_epochs=3",
        "policy=tinker model_name=Qwen/Qwen3-8B temperature=1",
        "prices.prompt=1 prices.sampled=2 prices.trained=0",
        "prices.prompt=1 prices.sampled=2 prices.trained=0 prices.cached=0 prices.scored=1",
        "wandb_name=x wandb_project=y",
        "clip_low=0.1 loss_fn=ppo",
        "max_steps=0",
        "max_steps=0 temperature=0.7",
        "max_steps=0 temperature=0 eval_temperature=0 top_p=0.9 top_k=20 min_p=0.1 stop=a,b",
        "stream=true num_substeps=4",
    ],
)
def test_settings_that_go_together(arguments: str) -> None:
    assert not grpo_problems(parse_settings(arguments.split()))


@pytest.mark.parametrize(
    ("arguments", "info", "text"),
    [
        ("context_limit=2000", EMBEDDED, "context_limit=2000: starter has 1024 tokens"),
        ("max_tokens=1024", EMBEDDED, "max_tokens=1024: nothing of the context of 1024"),
        ("max_tokens=99 context_limit=99", EMBEDDED, "nothing of the context of 99"),
        (
            "policy=torch model_name=m max_tokens=4096",
            replace(EMBEDDED, context_limit=4096, honours=frozenset({"lora_rank"})),
            "leave it out, or give max_tokens=1024",
        ),
        ("loss_fn=dro", EMBEDDED, "loss_fn=dro: the local policy has importance_sampling and ppo"),
        ("enable_summarize=true", EMBEDDED, "the context of 1024 tokens always has fewer"),
        ("stream=true", SERVICE, "stream=true: loss_normalizer=token is known only at the end"),
        ("kl_penalty_coef=0.1", SERVICE, "kl_penalty_coef=0.1: the service policy can't"),
        ("importance_cap=2", SERVICE, "importance_cap=2.0: the service policy can't"),
        ("lora_rank=32", SERVICE, "lora_rank=32: the service policy can't"),
        ("grad_clip=1", SERVICE, "grad_clip=1.0: the service policy can't"),
        ("max_steps_off_policy=1", SERVICE, "max_steps_off_policy=1: the service policy's server"),
    ],
)
def test_what_the_policy_cannot_do(arguments: str, info: PolicyInfo, text: str) -> None:
    (problem,) = unsupported(parse_settings(arguments.split()), info)
    assert problem.level == "error"
    assert text in problem.text
    with pytest.raises(ConfigError):
        require_no_errors(unsupported(parse_settings(arguments.split()), info))


@pytest.mark.parametrize(
    "arguments",
    [
        "kl_penalty_coef=0 grad_clip=0",
        "stream=true loss_normalizer=sum",
        "enable_summarize=true proactive_summarization_threshold=300",
    ],
)
def test_what_is_switched_off_or_fits_is_no_problem(arguments: str) -> None:
    assert not unsupported(parse_settings(arguments.split()), SERVICE)


def test_warnings_are_returned_and_errors_raised() -> None:
    warned = grpo_problems(parse_settings(["dro_beta=0.1", "at_deadline=mask"]))
    assert len(require_no_errors(warned)) == 2
    refused = grpo_problems(parse_settings(["dro_beta=0.1", "min_group=9"]))
    with pytest.raises(ConfigError, match=r"^min_group"):
        require_no_errors(refused)
