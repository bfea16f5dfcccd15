"""Everything else about a run that can be refused before it starts: its tasks and its sandboxes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tbtui.catalog.load import Defect
from tbtui.catalog.places import find_tasks
from tbtui.catalog.split import Split, split_tasks
from tbtui.catalog.tasks import CatalogError, discover
from tbtui.config import ConfigError, RunConfig
from tbtui.engines.grpo.alarms import alarm_actions
from tbtui.engines.grpo.outcome_policy import outcome_policy
from tbtui.engines.grpo.review_rules import load_rules
from tbtui.engines.request import RunRequest
from tbtui.engines.resume import ResumeRequest
from tbtui.engines.trackers import check_trackers
from tbtui.journal.rundir import RunDirectory
from tbtui.rollout.environments.choose import (
    EnvironmentChoice,
    EnvironmentUnavailable,
    choose_environment,
)

BAD_INPUT = (CatalogError, ConfigError, EnvironmentUnavailable)
"""What `prepare_run` raises: each message is one line for whoever asked for the run."""


@dataclass(frozen=True, slots=True)
class PreparedRun:
    """A run that may start."""

    config: RunConfig
    tasks_dir: Path
    split: Split
    defects: tuple[Defect, ...]
    """Of tasks that are left out."""
    environment: EnvironmentChoice
    directory: RunDirectory
    resumed: bool = False
    """It goes on from what the directory holds."""


def prepare_run(request: RunRequest) -> PreparedRun:
    """Read the tasks and choose the environment.

    Raises one of `BAD_INPUT`; nothing is left then, the run directory included.
    """
    try:
        return _prepared(request)
    except BAD_INPUT:
        request.discard()
        raise


def _prepared(request: RunRequest) -> PreparedRun:
    config = request.config
    outcome_policy(config.on_outcome)
    alarm_actions(config.on_alarm)
    check_trackers(config)
    if config.review_rules is not None and config.step_limit != 0:
        load_rules(config.review_rules)
    catalog = discover(find_tasks(config.tasks_dir))
    split = split_tasks(
        catalog.require_tasks(),
        eval_split=config.eval_split,
        seed=config.seed,
        eval_tasks=config.eval_tasks,
        train_tasks=config.tasks,
        trains=config.step_limit != 0,
    )
    environment = choose_environment(config.environment_type, config.environment_kwargs)
    return PreparedRun(
        config,
        catalog.directory,
        split,
        catalog.defects,
        environment,
        request.directory,
        resumed=isinstance(request, ResumeRequest),
    )
