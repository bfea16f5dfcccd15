"""A probe's plan: its arms, the tasks that it tries, and what is refused of it. Pure."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from tbtui.config import ConfigError, RunConfig, to_json
from tbtui.config.values import Problem, error, is_embedded
from tbtui.engines.agent_checks import agent_problems
from tbtui.journal.events import ProbeArm
from tbtui.rollout.agents import OWN_AGENTS

if TYPE_CHECKING:
    from tbtui.catalog.tasks import TaskInfo


def easier_agent(config: RunConfig) -> str:
    """The agent that is made for small models; empty: there is none, or the model, the embedded
    one, knows its own agent alone."""
    return _EASIER if _EASIER in OWN_AGENTS and not is_embedded(to_json(config)) else ""


def default_arms(config: RunConfig) -> tuple[str, ...]:
    """The arms where none are given, as the setting `probe` has them: the run as it would be, and
    what changes the fewest of its settings, a lower temperature and an easier agent.

    At .7 a model of 135 million parameters learned; models' makers recommend .6 to .8.
    """
    agents = dict.fromkeys(filter(None, (config.agent, easier_agent(config))))
    temperatures = dict.fromkeys((config.temperature, _LOWER_TEMPERATURE))
    return tuple(f"{agent}@{each:g}" for agent in agents for each in temperatures)


def arms_of(config: RunConfig) -> tuple[ProbeArm, ...]:
    """The arms of a probe; none of another run. Raises `ConfigError`."""
    return tuple(map(_arm, config.probe))


def agents_of(config: RunConfig) -> tuple[str, ...]:
    """The agents of a run's trials, its own first, each once. Raises `ConfigError`."""
    return tuple(dict.fromkeys((config.agent, *(arm.agent for arm in arms_of(config)))))


_EASIER = "shell"
_LOWER_TEMPERATURE = 0.7


def _arm(text: str) -> ProbeArm:
    agent, at, temperature = text.rpartition("@")
    try:
        value = float(temperature)
    except ValueError:
        value = math.nan
    if not (agent and at and math.isfinite(value)):
        raise ConfigError(f"probe={text}: write AGENT@TEMPERATURE, as in terminus-2@0.7")
    if value <= 0:
        raise ConfigError(
            f"probe={text}: the temperature should be above 0, or all trials of a task are alike"
        )
    return ProbeArm(agent=agent, temperature=value)


def probe_problems(config: RunConfig) -> Iterator[Problem]:
    """What is wrong with a probe, as far as it can be seen before its tasks are read."""
    try:
        arms = arms_of(config)
    except ConfigError as wrong:
        yield error(str(wrong))
        return
    if not arms:
        return
    if config.step_limit != 0:
        yield error("probe: a probe takes no training steps; leave it out, or give max_steps=0")
    for agent in dict.fromkeys(arm.agent for arm in arms if arm.agent != config.agent):
        if agent == "oracle":
            yield error("probe=oracle: it asks no model; name an agent that does")
        yield from (
            problem
            for problem in agent_problems(config.replace(agent=agent))
            if problem.level == "error"
        )


def choose_tasks(config: RunConfig, tasks: Sequence[TaskInfo]) -> tuple[TaskInfo, ...]:
    """`probe_tasks` of the training tasks, of as many kinds as there are, chosen by the seed.

    Raises:
        ConfigError: the budget is too small for a trial of each with every arm.
    """
    by_kind: dict[str, list[TaskInfo]] = {}
    for task in sorted(tasks, key=lambda task: _rank(config.seed, task.name)):
        by_kind.setdefault(task.kind or task.name, []).append(task)
    # The first of each kind, then the second of each, ...
    ranked = sorted(
        ((place, _rank(config.seed, kind), task) for kind, some in by_kind.items()
         for place, task in enumerate(some)),
        key=lambda each: each[:2],
    )  # fmt: skip
    chosen = tuple(task for _, _, task in ranked[: config.probe_tasks])
    limit, arms = config.limits.get("rollouts"), len(config.probe)
    if limit is not None and limit < arms * len(chosen):
        fewer = int(limit // arms)
        remedy = f", or probe_tasks={fewer}" if fewer else ""
        raise ConfigError(
            f"budget.rollouts={limit:g}: one trial of each of {len(chosen)} tasks in each of"
            f" {arms} arms takes {arms * len(chosen)}; give as many{remedy}"
        )
    return chosen


def _rank(seed: int, name: str) -> bytes:
    return hashlib.sha256(f"{seed}\0probe\0{name}".encode()).digest()
