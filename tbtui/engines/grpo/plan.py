"""Which trials a step consists of: seeded, and the same whatever happens while it runs."""

from __future__ import annotations

import dataclasses
import hashlib
import random
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass

from tbtui.catalog.tasks import TaskInfo
from tbtui.config import RunConfig
from tbtui.journal.events import Purpose


def derive_seed(*parts: object) -> int:
    """Derive a seed of 63 bits from every part and from nothing else."""
    text = "\x1f".join(str(part) for part in parts)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest()) >> 1


@dataclass(frozen=True, slots=True)
class TrialPlan:
    """One place in a group. A retry fills the same place again, as the next attempt."""

    task: TaskInfo
    group: str
    index: int
    """Within the group, from 1."""
    step: int
    purpose: Purpose
    temperature: float
    seed: int
    group_draws: tuple[object, ...]
    """What the seeds of the whole group derive from."""

    @property
    def key(self) -> tuple[str, int]:
        """The place: the same for all attempts at it."""
        return self.group, self.index

    @property
    def label(self) -> str:
        return f"{self.task.name}/{self.index}"

    def trial_id(self, attempt: int) -> str:
        retry = f"-retry{attempt - 1}" if attempt > 1 else ""
        return f"{self.group}-{self.index}{retry}"

    def again(self, attempt: int) -> TrialPlan:
        """The plan with other draws from this attempt on; they don't depend on earlier retries."""
        first = trial_plan(self, self.index)
        return dataclasses.replace(self, seed=derive_seed(first.seed, "again", attempt))


def trial_plan(sibling: TrialPlan, index: int) -> TrialPlan:
    """The place number `index` in the group of `sibling`, with draws of its own."""
    seed = derive_seed(*sibling.group_draws, index)
    return dataclasses.replace(sibling, index=index, seed=seed)


@dataclass(frozen=True, slots=True)
class GroupPlan:
    group: str
    task: TaskInfo
    trials: tuple[TrialPlan, ...]


def task_order(tasks: Sequence[TaskInfo], seed: int) -> Iterator[TaskInfo]:
    """Every task once an epoch, each epoch in an order of its own, for ever."""
    epoch = 0
    while True:
        order = sorted(tasks, key=lambda task: task.name)
        random.Random(derive_seed("order", seed, epoch)).shuffle(order)
        yield from order
        epoch += 1


def _group_name(name: str, number: int, taken: Set[str]) -> str:
    """A name that is not `taken`, and one part of a path: trials have directories of that name."""
    base = name.replace("/", "--")
    group = base if number == 1 else f"{base}-{number}"
    while group in taken:
        number += 1
        group = f"{base}-{number}"
    return group


def plan_groups(
    tasks: Sequence[TaskInfo],
    *,
    step: int,
    size: int,
    purpose: Purpose,
    temperature: float,
    seed: int,
) -> tuple[GroupPlan, ...]:
    """One group of `size` trials for each task.

    An evaluation draws with the same seeds at every step, so that two of them differ by the
    weights alone.
    """
    prefix = f"e{step:04d}" if purpose == "eval" else f"s{step:04d}"
    stream = "eval" if purpose == "eval" else step
    groups: list[GroupPlan] = []
    taken: set[str] = set()
    for place, task in enumerate(tasks, 1):
        # A small dataset may give the same task twice to one batch.
        repeat = sum(earlier.name == task.name for earlier in tasks[: place - 1])
        group = _group_name(f"{prefix}-{task.name}", repeat + 1, taken)
        taken.add(group)
        draws = (seed, stream, task.name, repeat)
        first = TrialPlan(task, group, 1, step, purpose, temperature, 0, draws)
        trials = tuple(trial_plan(first, index) for index in range(1, size + 1))
        groups.append(GroupPlan(group, task, trials))
    return tuple(groups)


def training_groups(
    tasks: Sequence[TaskInfo], step: int, config: RunConfig
) -> tuple[GroupPlan, ...]:
    """The groups of a training batch, one for each of its tasks, oversampling included."""
    return plan_groups(
        tasks,
        step=step,
        size=config.group_size + config.oversample,
        purpose="train",
        temperature=config.temperature,
        seed=config.seed,
    )


def evaluation_groups(
    tasks: Sequence[TaskInfo], step: int, config: RunConfig
) -> tuple[GroupPlan, ...]:
    """The groups of an evaluation after `step`; the seeds are the same at every step."""
    return plan_groups(
        tasks,
        step=step,
        size=config.eval_group_size,
        purpose="eval",
        temperature=config.eval_temperature,
        seed=config.seed,
    )
