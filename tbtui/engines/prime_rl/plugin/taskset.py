"""Harbor task directories as a verifiers taskset. The reward is that of the trial's outcome."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import verifiers.v1 as vf
from pydantic import Field

from tbtui.catalog.load import TaskInfo
from tbtui.catalog.split import Split, split_tasks
from tbtui.catalog.tasks import Catalog, CatalogError, discover

INFO = "tbtui"
"""The key in a trace's `info` under which the harness leaves what became of the trial."""


class NoRewardError(RuntimeError):
    """The trial has no reward: verifiers records the error, and the rollout is dropped."""


class HarborTaskData(vf.TaskData):
    """One Harbor task, as it travels to the harness."""

    task_dir: str = ""
    split: Literal["train", "heldout"] = "train"
    agent_timeout_sec: float = 900.0
    """Active seconds that the task gives its agent."""


class HarborTasksetConfig(vf.TasksetConfig):
    tasks_dir: Path
    """A Harbor task, a directory of tasks, or a directory of such data sets."""
    tasks: list[str] = Field(default_factory=list)
    """Names of the tasks to use; empty: all of the split."""
    exclude: list[str] = Field(default_factory=list)
    """Names of tasks to leave out."""
    split: Literal["train", "heldout", "all"] = "all"
    """Which part. As tbtui divides: by `[metadata] split` where a data set has it, else
    `eval_split` of its tasks are held out, chosen by `seed`."""
    eval_split: float = Field(default=0.2, ge=0, lt=1)
    seed: int = 0


class HarborTask(vf.Task[HarborTaskData, vf.State, vf.TaskConfig]):
    """A task; its trial is judged before verifiers scores it."""

    @property
    def key(self) -> str:
        return str(self.data.name)

    @vf.reward
    async def outcome(self, trace: Any) -> float:
        """The reward that the trial's outcome has.

        Raises:
            NoRewardError: it has none, which is not the same as 0.
        """
        reward = trace.info.get(INFO, {}).get("reward")
        if reward is None:
            raise NoRewardError("the trial came to no verdict")
        return float(reward)

    @vf.metric
    async def agent_turns(self, trace: Any) -> float:
        return float(trace.info.get(INFO, {}).get("turns", 0))


class HarborTaskset(vf.Taskset[HarborTask, HarborTasksetConfig]):
    """The tasks under `tasks_dir` that the filters leave.

    Broken tasks are left out; that nothing is left raises `CatalogError`, in one line.
    """

    def load(self) -> Iterator[HarborTask]:
        config = self.config
        catalog = discover(config.tasks_dir)
        for task, split in _chosen(catalog, config):
            data = HarborTaskData(
                name=task.name,
                prompt=task.instruction,
                task_dir=str(task.path),
                split=split,
                agent_timeout_sec=task.agent_timeout_sec,
            )
            yield HarborTask(data, config.task)


def _chosen(
    catalog: Catalog, config: HarborTasksetConfig
) -> list[tuple[TaskInfo, Literal["train", "heldout"]]]:
    usable = catalog.require_tasks()
    wanted = _resolved(catalog, "tasks", config.tasks)
    excluded = _resolved(catalog, "exclude", config.exclude)
    heldout = _heldout(usable, config)
    chosen: list[tuple[TaskInfo, Literal["train", "heldout"]]] = []
    for task in usable:
        split: Literal["train", "heldout"] = "heldout" if task.name in heldout else "train"
        if (
            config.split in ("all", split)
            and (not config.tasks or task.name in wanted)
            and task.name not in excluded
        ):
            chosen.append((task, split))
    if not chosen:
        raise CatalogError(
            f"no task of {catalog.directory} is left by split={config.split}, "
            f"tasks={config.tasks} and exclude={config.exclude}"
        )
    return chosen


def _resolved(catalog: Catalog, field: str, given: Sequence[str]) -> frozenset[str]:
    """The catalog's names of the tasks that were given by name or by data set and name."""
    try:
        return frozenset(catalog.task(name).name for name in given)
    except CatalogError as error:
        raise CatalogError(f"{field}: {error}") from error


def _heldout(usable: tuple[TaskInfo, ...], config: HarborTasksetConfig) -> frozenset[str]:
    if config.split == "all":  # a division that leaves nothing to train on is no error then
        return frozenset(task.name for task in usable if task.split == "heldout")
    split: Split = split_tasks(usable, eval_split=config.eval_split, seed=config.seed)
    return frozenset(task.name for task in split.heldout)
