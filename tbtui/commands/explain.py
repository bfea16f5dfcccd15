"""`tbtui run --explain`: what a run with these settings does about outcomes and alarms."""

from __future__ import annotations

from collections.abc import Iterator

import typer

from tbtui.config import RunConfig
from tbtui.engines.grpo.alarms import MEANINGS, AlarmActions, alarm_actions
from tbtui.engines.grpo.outcome_policy import OutcomePolicy, outcome_policy
from tbtui.engines.grpo.review_rules import ReviewRules, load_rules
from tbtui.journal.review_rule import rule_line


def print_explanation(config: RunConfig) -> None:
    """Raises `ConfigError` for exceptions to the tables that can't be, and for such rules."""
    named = config.review_rules
    rules = ReviewRules() if named is None else load_rules(named)
    for line in _lines(config, outcome_policy(config.on_outcome)):
        typer.echo(line)
    for line in _review_lines(config, rules):
        typer.echo(line)
    for line in _alarm_lines(config, alarm_actions(config.on_alarm)):
        typer.echo(line)


def _lines(config: RunConfig, policy: OutcomePolicy) -> Iterator[str]:
    yield "What happens to a trial, by its outcome (on_outcome.NAME=ACTION changes it; * changed):"
    yield ""
    for outcome, action, meaning in policy.rows():
        yield f"  {outcome:<17} {action:<7} {meaning}"
    yield ""
    yield "  train  its reward counts: the verifier's verdict after a clean finish, else 0"
    yield "  mask   no reward, and no part in its group's baseline; evaluations count its verdict"
    yield (
        f"  retry  up to {_times(config.max_retries, 'fresh attempt')} after"
        f" {config.retry_wait_sec:g} s, doubling, then masked; earlier attempts are kept"
    )
    yield "  halt   the run ends and says why"
    yield ""
    what = {
        "refill": "gets the missing ones once more, and is left out if that does not help",
        "drop": "is left out",
    }[config.short_groups]
    yield f"A group with fewer than {config.min_group} scored trials {what} (short_groups)."
    yield _constant(config)
    if config.halt_after:
        yield f"{config.halt_after} failures of infrastructure in a row end the run (halt_after)."
    else:
        yield "No number of failures of infrastructure ends the run (halt_after=0)."
    yield _deadline(config)
    if config.oversample:
        yield (
            f"Each training group starts {_times(config.oversample, 'extra trial')};"
            f" {config.group_size} fill it: {config.oversample_keep} (oversample_keep)."
        )


def _constant(config: RunConfig) -> str:
    equal = "A group whose rewards are all equal has nothing to teach"
    if config.replace_constant_groups:
        others = _times(config.replace_constant_groups, "other")
        return f"{equal}; a step starts up to {others} instead (replace_constant_groups)."
    if config.remove_constant_reward_groups:
        return f"{equal} and is left out (remove_constant_reward_groups)."
    return f"{equal}; its tokens count in the loss's normaliser (remove_constant_reward_groups)."


def _review_lines(config: RunConfig, rules: ReviewRules) -> Iterator[str]:
    yield ""
    if config.review == "off":
        yield "No step waits for somebody's look before it is trained (review=off)."
        return
    whose = {"suspects": "trials that something is odd about", "always": "all trials"}[
        config.review
    ]
    yield f"Before a step is trained somebody looks at {whose} (review={config.review})."
    if config.review_timeout_sec is not None:
        then = {
            "accept": "it is trained as it stands",
            "exclude": "suspects that nobody decided upon are left out",
        }[config.at_review_timeout]
        yield f"After {config.review_timeout_sec:g} s without an answer {then} (at_review_timeout)."
    if not rules.rules:
        yield "No rule decides in a person's place (review_rules)."
        return
    yield f"The first of these rules that matches a trial decides ({config.review_rules}):"
    yield ""
    for rule in rules.rules:
        yield f"  {rule_line(rule)}"


def _alarm_lines(config: RunConfig, actions: AlarmActions) -> Iterator[str]:
    yield ""
    yield "What an alarm leads to (on_alarm.NAME=ACTION changes it; * changed):"
    yield ""
    for name, meaning in MEANINGS.items():
        changed = "*" if name in config.on_alarm else " "
        yield f"{changed} {name:<17} {actions[name]:<7} {meaning}"
    yield ""
    yield "  off    nothing"
    yield "  warn   it is shown; pause and halt also pause or end the run"


def _deadline(config: RunConfig) -> str:
    if config.step_deadline_sec is None:
        return "A step waits for its last trial, however long it takes (step_deadline_sec)."
    then = {
        "wait": "the step says so and waits on",
        "stop": "late trials are stopped and verified; they count as agent_timeout",
        "mask": "late trials are left out",
    }[config.at_deadline]
    return f"After {config.step_deadline_sec:g} s of a step {then} (at_deadline)."


def _times(count: int, what: str) -> str:
    return f"{count} {what}" + ("" if count == 1 else "s")
