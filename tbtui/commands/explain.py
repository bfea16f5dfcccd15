"""`tbtui run --explain`: what a run with these settings does about outcomes and alarms."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator

import typer

from tbtui.catalog import find_tasks
from tbtui.catalog.tasks import discover
from tbtui.config import RunConfig, defaults_for, to_json
from tbtui.config.values import require_no_errors
from tbtui.engines.config_checks import common_problems
from tbtui.engines.grpo.outcome_policy import OutcomePolicy, alarm_action, outcome_policy
from tbtui.engines.grpo.review_rules import ReviewRules, load_rules
from tbtui.engines.prices import expected_cost
from tbtui.engines.task_fitness import choose_for_tasks, in_containers, offer
from tbtui.findings import ALARMS, Rule
from tbtui.invocation import to_type
from tbtui.journal.reader import JournalReader
from tbtui.journal.review_rule import rule_line
from tbtui.journal.rundir import RunDirectory
from tbtui.policies.base import PolicyRefusedError
from tbtui.policies.registry import policy_preflight
from tbtui.rollout.environments.base import EnvironmentUnavailable
from tbtui.view.forecast import forecast_lines
from tbtui.view.reading import state_at_end
from tbtui.vocabulary import UNTRIED_SHARE

_NOT_HERE = "As it is, this machine can't start such a run"
_EXAMPLES = 3
"""Tasks named for each kind of what keeps them from running."""


def print_explanation(config: RunConfig, directory: RunDirectory | None = None) -> None:
    """Print how the run treats its tasks, outcomes, reviews and alarms, and what it will cost.

    `directory`: of a run that is to go on, by whose steps its cost is forecast.

    What this machine lacks (an engine that answers, memory for the model) is one more line.

    Raises:
        ConfigError: settings that contradict each other, or can't be.
        CatalogError, EnvironmentUnavailable: the tasks can't be read, or there is no such
            environment.
    """
    require_no_errors(common_problems(config))
    named = config.review_rules
    rules = ReviewRules() if named is None else load_rules(named)
    for line in _task_lines(config):
        typer.echo(line)
    for line in _default_lines(config):
        typer.echo(line)
    for line in _policy_lines(config):
        typer.echo(f"{line}\n")
    if (cost := expected_cost(config, None)) is not None:
        typer.echo(f"Cost: {cost}.\n")
    for line in (*_forecast_lines(directory), *_curriculum_lines(config)):
        typer.echo(line)
    for line in _lines(config, outcome_policy(config.on_outcome)):
        typer.echo(line)
    for line in _review_lines(config, rules):
        typer.echo(line)
    for line in _alarm_lines(config):
        typer.echo(line)


def _policy_lines(config: RunConfig) -> tuple[str, ...]:
    try:
        return policy_preflight(config)
    except PolicyRefusedError as problem:
        return (f"{_NOT_HERE}: {problem}.",)


def _forecast_lines(directory: RunDirectory | None) -> Iterator[str]:
    """What the rest of a run will take, by what was measured in it."""
    if directory is None:
        return
    with contextlib.closing(JournalReader(directory, lenient=True)) as reader:
        lines = forecast_lines(state_at_end(reader))
    if lines:
        yield "By what was measured in this run (95% intervals):"
        yield ""
        for line in lines:
            yield f"  {line}"
        yield ""


def _curriculum_lines(config: RunConfig) -> Iterator[str]:
    how = {
        "uniform": "Each training task is taken once an epoch, in an order that the seed gives",
        "learnability": "Tasks are drawn by their expected p(1-p), p being their pass rate",
        "thompson": "Of a p drawn for each task from its posterior, the largest p(1-p) are taken",
    }[config.task_sampling]
    floor = (
        ""
        if config.task_sampling == "uniform"
        else f"; {config.task_floor:.0%} uniformly, and of the others {UNTRIED_SHARE:.0%} are of"
        " untried tasks"
    )
    yield f"{how}{floor} (task_sampling)."
    if limits := config.limits:
        texts = (f"{unit} {limit:g}" for unit, limit in limits.items())
        yield f"The run ends with the step that spends its budget: {', '.join(texts)} (budget)."
    yield ""


def _task_lines(config: RunConfig) -> Iterator[str]:
    """Which tasks the environment can't serve; nothing where it serves all."""
    tasks = discover(find_tasks(config.tasks_dir)).require_tasks()
    paths = [task.path for task in tasks]
    try:
        _, fitness = choose_for_tasks(config, paths)
    except EnvironmentUnavailable as problem:
        if config.environment_type not in ("docker", "podman"):
            raise
        yield f"{_NOT_HERE}: {problem}."
        yield ""
        fitness = in_containers(paths, config.environment_type, allowed=config.task_credentials)
    if taken := fitness.taken():
        yield f"{taken} (task_credentials allows those that are keys)."
        yield ""
    summary = fitness.summary()
    if summary is None:
        return
    done = "they are left out" if config.unfit_tasks == "skip" else "they are tried all the same"
    yield f"{summary}; {done} (unfit_tasks){offer(fitness)}"
    yield ""
    shown: Counter[str] = Counter()
    for task, found in fitness.unusable.items():
        shown[found[0].kind] += 1
        if shown[found[0].kind] <= _EXAMPLES:
            yield f"  {task.name}: {found[0].text}"
    if any(n > _EXAMPLES for n in shown.values()):
        yield f"  ... (`{to_type('tasks', 'check', config.tasks_dir)}` lists all of them)"
    yield ""


def _default_lines(config: RunConfig) -> Iterator[str]:
    """Defaults in force that follow the model, its server or the environment."""
    values = to_json(config)
    defaults = {
        name: default
        for name, default in defaults_for(values).items()
        if name not in config.given and getattr(config, name) == default.value
    }
    if not defaults:
        return
    yield "Defaults that follow the model, its server or the environment:"
    yield ""
    for name, default in defaults.items():
        yield f"  {f'{name}={values[name]}':<24} {default.why}"
    yield ""


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
    yield (
        "A task that can't be built, or whose verifier can't work in an untouched sandbox either,"
        " is tried once;"
    )
    yield (
        f"more than {config.max_unusable:.0%} of the tasks tried being such end the run"
        " (max_unusable)."
    )
    yield _zeros(config)
    yield _beside(config)
    yield _programs(config)
    yield _deadline(config)
    if config.oversample:
        yield (
            f"Each training group starts {_times(config.oversample, 'extra trial')};"
            f" {config.group_size} fill it: {config.oversample_keep} (oversample_keep)."
        )


def _constant(config: RunConfig) -> str:
    equal = "A group whose rewards are all equal has nothing to teach"
    if config.screen_trials:
        rest = _times(config.group_size - config.screen_trials, "other")
        equal = (
            f"A group begins with {_times(config.screen_trials, 'trial')}; the {rest} follow only"
            f" if rewards differ (screen_trials). {equal}"
        )
    if config.replace_constant_groups:
        others = _times(config.replace_constant_groups, "other")
        return f"{equal}; a step starts up to {others} instead (replace_constant_groups)."
    if config.remove_constant_reward_groups:
        return f"{equal} and is left out (remove_constant_reward_groups)."
    return f"{equal}; its tokens count in the loss's normaliser (remove_constant_reward_groups)."


def _review_lines(config: RunConfig, rules: ReviewRules) -> Iterator[str]:
    yield ""
    if config.review == "off":
        yield "No step waits for a review before it is trained (review=off)."
        if rules.rules:
            yield (
                f"With review=suspects or review=always the first of these rules that matches a"
                f" trial would decide ({config.review_rules}):"
            )
            yield ""
            yield from _rule_lines(rules)
        return
    whose = {"suspects": "suspect trials", "always": "all trials"}[config.review]
    yield f"Before a step is trained a person reviews {whose} (review={config.review})."
    if config.review_timeout_sec is not None:
        then = {
            "accept": "it is trained as it stands",
            "exclude": "undecided suspects are excluded",
        }[config.at_review_timeout]
        yield f"After {config.review_timeout_sec:g} s without an answer {then} (at_review_timeout)."
    if not rules.rules:
        yield "No rule decides in a person's place (review_rules)."
        return
    yield f"The first of these rules that matches a trial decides ({config.review_rules}):"
    yield ""
    yield from _rule_lines(rules)


def _rule_lines(rules: ReviewRules) -> Iterator[str]:
    for rule in rules.rules:
        yield f"  {rule_line(rule)}"


def _alarm_lines(config: RunConfig) -> Iterator[str]:
    yield ""
    yield "What an alarm leads to (on_alarm.NAME=ACTION changes it; * changed):"
    yield ""
    for rule in ALARMS:
        changed = "*" if rule in config.on_alarm else " "
        yield f"{changed} {rule:<17} {alarm_action(rule, config.on_alarm):<7} {rule.alarm}"
    yield ""
    yield "  off    nothing"
    yield "  warn   it is shown; pause and halt also pause or end the run"
    if Rule.SAMPLER_MISMATCH not in config.on_alarm:
        yield ""
        yield f"  {Rule.SAMPLER_MISMATCH} pauses where published weights don't reach the sampler."


def _zeros(config: RunConfig) -> str:
    doubtful = "A 0 of a verifier that seems not to have worked is checked in a fresh sandbox"
    first = "the first 0 of a task against the task's own solution"
    match config.check_zeros:
        case "never":
            return "A 0 is a 0, whatever the verifier printed (check_zeros=never)."
        case "faults":
            return f"{doubtful} (check_zeros)."
        case "first":
            return f"{doubtful}, and {first} (check_zeros)."
        case "auto":
            return f"{doubtful}; of foreign tasks in the sandbox {first} too (check_zeros)."


def _beside(config: RunConfig) -> str:
    if config.kill_before_verifying == "never":
        return "What an agent leaves running is there when it is verified (kill_before_verifying)."
    where = " in a bundled task" if config.kill_before_verifying == "auto" else ""
    return (
        f"What an agent{where} leaves running is killed before it is verified"
        " (kill_before_verifying)."
    )


def _programs(config: RunConfig) -> str:
    if config.fixed_programs == "never":
        return "An agent may change programs that its verifier runs (fixed_programs)."
    where = "a bundled task" if config.fixed_programs == "auto" else "a task"
    return (
        f"An agent that changes programs below /usr in {where} gets no verdict there"
        " (fixed_programs)."
    )


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
