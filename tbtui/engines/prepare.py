"""Prepares a run: reads its tasks, chooses its environment, and refuses what can't work."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from tbtui.catalog import find_tasks
from tbtui.catalog.load import Defect
from tbtui.catalog.quarantine import read_quarantine
from tbtui.catalog.split import Split, split_tasks
from tbtui.catalog.tasks import discover
from tbtui.config import ConfigError, RunConfig
from tbtui.engines.agent_checks import check_agent_of, require_reachable
from tbtui.engines.grpo.review_rules import load_rules
from tbtui.engines.probe_arms import agents_of, choose_tasks
from tbtui.engines.request import RunRequest
from tbtui.engines.resume import ResumeRequest
from tbtui.engines.task_fitness import Fitness, choose_for_tasks, offer
from tbtui.engines.trackers import check_trackers
from tbtui.errors import UserError
from tbtui.findings import Unusable
from tbtui.journal.rundir import RunDirectory
from tbtui.policies.registry import policy_preflight
from tbtui.resources import tasks_dir as bundled_tasks
from tbtui.rollout.environments.choose import SANDBOX_IMPORT_PATH, EnvironmentChoice

if TYPE_CHECKING:
    from tbtui.rollout.messages import CheckZeros


@dataclass(frozen=True, slots=True)
class PreparedRun:
    """A run that may start."""

    config: RunConfig
    tasks_dir: Path
    split: Split
    defects: tuple[Defect, ...]
    """Defects of the tasks that are left out."""
    environment: EnvironmentChoice
    directory: RunDirectory
    resumed: bool = False
    """It goes on from what the directory holds."""
    fitness: Fitness = field(default_factory=lambda: Fitness("", ()))
    """What the environment can serve of the chosen tasks."""
    preflight: tuple[str, ...] = ()
    """What the policy needs of this machine, for a person."""
    quarantine: Mapping[str, str] = field(default_factory=dict)
    """Chosen tasks that can't be trusted -> why."""

    @property
    def unusable(self) -> dict[str, Unusable]:
        """Chosen tasks that are left out: the environment can't serve them, or they are in
        quarantine -> why."""
        found = {
            name: Unusable("quarantine", f"quarantined: {why}")
            for name, why in self.quarantine.items()
        }
        if self.config.unfit_tasks == "skip":
            for task in (*self.split.train, *self.split.heldout):
                if known := self.fitness.unusable.get(task.path):
                    found[task.name] = known[0]
        return found

    @property
    def check_zeros(self) -> CheckZeros:
        """Which verdicts of 0 are checked against a fresh sandbox.

        The sandbox has the host's userland, not the image that a task names, so a task's own
        solution has to show that it can be scored there. The bundled tasks are written for it.
        """
        if self.config.check_zeros != "auto":
            return self.config.check_zeros
        sandbox = self.environment.import_path == SANDBOX_IMPORT_PATH
        return "faults" if self._bundled or not sandbox else "first"

    @property
    def kill_before_verifying(self) -> bool:
        """Whether what an agent has left running is killed before it is verified.

        None of the bundled tasks is verified by what runs.
        """
        setting = self.config.kill_before_verifying
        return self._bundled if setting == "auto" else setting == "always"

    @property
    def fixed_programs(self) -> bool:
        """Whether a verdict counts for nothing where the agent has changed programs below /usr."""
        setting = self.config.fixed_programs
        return self._bundled if setting == "auto" else setting == "always"

    @property
    def _bundled(self) -> bool:
        return self.tasks_dir.resolve().is_relative_to(bundled_tasks().resolve())


def prepare_run(request: RunRequest) -> PreparedRun:
    """Read the tasks and choose the environment.

    Raises `UserError`; nothing is left then, the run directory included.
    """
    try:
        return _prepared(request)
    except UserError:
        request.discard()
        raise


def _prepared(request: RunRequest) -> PreparedRun:
    config = request.config
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
        trains=config.step_limit != 0 or bool(config.probe),
    )
    if not request.directory.agent_examples.is_file():  # it goes on with those that it has
        for agent in agents_of(config):
            check_agent_of(config.replace(agent=agent))
    if config.probe:
        split = dataclasses.replace(split, train=choose_tasks(config, split.train), heldout=())
    if config.honeypots and config.step_limit != 0:
        from tbtui.engines.honeypots import make_honeypots  # imports NumPy

        place = request.directory.path / "honeypots"
        honeypots = make_honeypots(split.train, place, config.seed)
        split = dataclasses.replace(split, honeypots=honeypots)
    environment, fitness = choose_for_tasks(
        config, [task.path for task in (*split.train, *split.heldout)]
    )
    for agent in agents_of(config):
        require_reachable(config.replace(agent=agent), environment)
    prepared = PreparedRun(
        config,
        catalog.directory,
        split,
        catalog.defects,
        environment,
        request.directory,
        resumed=isinstance(request, ResumeRequest),
        fitness=fitness,
        preflight=policy_preflight(config),
        quarantine=_quarantine(config, catalog.directory, split),
    )
    used = split.train if config.step_limit != 0 or config.probe else split.heldout
    if used and len(prepared.unusable.keys() & {task.name for task in used}) == len(used):
        what = "to evaluate on" if used is split.heldout else "to train on"
        if (summary := fitness.summary()) is None:
            summary = next(iter(prepared.unusable.values())).text
        remedy = ""
        if not {task.path for task in used} <= fitness.refused:
            remedy = " (unfit_tasks=try, quarantine=ignore try them all the same)"
        raise ConfigError(f"no task {what} can be used: {summary}{offer(fitness)}{remedy}")
    return prepared


def _quarantine(config: RunConfig, directory: Path, split: Split) -> dict[str, str]:
    if config.quarantine == "ignore":
        return {}
    kept = read_quarantine(directory)
    chosen = [task.name for task in (*split.train, *split.heldout)]
    return {name: kept[name].reason for name in chosen if name in kept}
