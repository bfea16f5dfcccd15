"""What a run is to do: its last step, each step's groups and learning rate, each evaluation.

All of it is seeded, and the same whatever happens while it runs.
"""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter
from collections.abc import Iterator, Sequence, Set

from tbtui.algorithm.curriculum import Draw
from tbtui.catalog.tasks import TaskInfo
from tbtui.config import RunConfig
from tbtui.engines.grpo.context import EngineContext
from tbtui.engines.grpo.curriculum import Curriculum
from tbtui.engines.grpo.failures import UnusableTasks
from tbtui.engines.grpo.group import BatchRules
from tbtui.engines.grpo.recorded import RecordedBatch
from tbtui.engines.grpo.rollouts import GroupPlan, TrialPlan, derive_seed, trial_plan
from tbtui.engines.honeypots import places as honeypot_places
from tbtui.journal.events import Purpose
from tbtui.journal.figures import total_steps
from tbtui.policies import sampling_of
from tbtui.sampling import SamplingParams
from tbtui.vocabulary import Schedule


def learning_rate(
    base: float, schedule: Schedule, step: int, steps: int, warmup_steps: int = 0
) -> float:
    """The rate of step `step` (from 1) of `steps`.

    In the first `warmup_steps` the rate rises in equal parts and stays below `base`, which the
    step after them is the first to have. From there it stays (`constant`), falls in equal parts
    (`linear`) or along half a cosine (`cosine`; Loshchilov and Hutter 2017, arXiv 1608.03983,
    equation 5), so that the last step still learns a little: AdamW moves by the rate however
    small the gradient is, and a nearly solved batch's gradient is noise.
    """
    if step <= warmup_steps:
        return base * step / (warmup_steps + 1)
    falling = max(1, steps - warmup_steps)
    done = min(step - warmup_steps - 1, falling - 1) / falling
    match schedule:
        case "constant":
            return base
        case "linear":
            return base * (1 - done)
        case "cosine":
            return base * (1 + math.cos(math.pi * done)) / 2


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
    sampling: SamplingParams,
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
        first = TrialPlan(task, group, 1, step, purpose, sampling, 0, draws)
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
        sampling=sampling_of(config, config.temperature),
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
        sampling=sampling_of(config, config.eval_temperature),
        seed=config.seed,
    )


class SpareGroups:
    """Plans the groups that join a batch in the place of others."""

    def __init__(self, planner: BatchPlanner, step: int, groups: Sequence[GroupPlan]) -> None:
        """`groups`: those of the batch so far."""
        self._planner = planner
        self._step = step
        self._tasks = [group.task for group in groups]

    def next(self) -> GroupPlan:
        (group,) = self._planner.more(self._step, self._tasks, 1)
        self._tasks.append(group.task)
        return group


class BatchPlanner:
    """Takes the training tasks in the order that the seed gives them, each batch its share, or by
    their weights.

    Tasks that can't be used are passed over; a batch that was begun before an interruption has the
    tasks that it had then.
    """

    def __init__(
        self,
        run: EngineContext,
        unusable: UnusableTasks,
        curriculum: Curriculum,
    ) -> None:
        split, start = run.split, run.start
        self._run = run
        self.curriculum = curriculum
        self._split = split
        known = (*split.train, *split.heldout, *split.honeypots)
        self._tasks = {task.name: task for task in known}
        self._unusable = unusable
        self._trainable = sum(task.name not in start.left_out for task in split.train)
        """How many tasks an epoch has. Those that turn out in trials don't shorten the run."""
        taken = Counter(start.tasks_taken)
        for batch in start.batches.values():
            groups = batch.groups
            taken.update(groups[name] for name in groups if name not in start.drawn)
        for honeypot in split.honeypots:  # these are not in the order
            del taken[honeypot.name]
        self._order = task_order(split.train, run.config.seed)
        # All that was taken before the interruption is at the front of the order; what lies
        # between was passed over, and a task that once was is never taken again.
        while taken.total():
            name = next(self._order).name
            if taken[name]:
                taken[name] -= 1

    @property
    def last_step(self) -> int:
        return self.last_step_with(self._run.config)

    def last_step_with(self, config: RunConfig) -> int:
        """The last step, if these were the settings."""
        return total_steps(config.step_limit, config.n_epochs, self._trainable, config.batch_size)

    def learning_rate(self, step: int) -> float:
        """The rate of a step, by the schedule that ends with the run."""
        config = self._run.config
        return learning_rate(
            config.learning_rate, config.lr_schedule, step, self.last_step, config.warmup_steps
        )

    def _usable(self) -> Iterator[TaskInfo]:
        """The next tasks of the order.

        Raises:
            HaltError: none can be used any more.
        """
        while True:
            self._require_some()
            task = next(self._order)
            if task.name not in self._unusable:
                yield task

    def _require_some(self) -> list[str]:
        """Names of the tasks that can be used; raises `HaltError` where there are none."""
        names = [task.name for task in self._split.train if task.name not in self._unusable]
        if not names:
            raise self._unusable.none_left()
        return names

    def batch(self, step: int, recorded: RecordedBatch | None) -> list[GroupPlan]:
        if recorded is None:
            baits = self._baits(step)
            groups = self.more(step, [], self._run.config.batch_size - len(baits))
            tasks = [*(group.task for group in groups), *baits]
            return groups + list(training_groups(tasks, step, self._run.config)[len(groups) :])
        tasks = [self._tasks[name] for name in recorded.groups.values()]
        groups = list(training_groups(tasks, step, self._run.config))
        self.curriculum.expect(step, [group for group in groups if not group.task.impossible])
        return groups

    def _baits(self, step: int) -> list[TaskInfo]:
        """The impossible tasks of a batch."""
        config = self._run.config
        usable = [task for task in self._split.honeypots if task.name not in self._unusable]
        places = honeypot_places(
            usable, config.honeypots, step=step, groups=config.batch_size, seed=config.seed
        )
        return list(places.values())

    def more(self, step: int, tasks: Sequence[TaskInfo], count: int) -> list[GroupPlan]:
        """Groups that join those of `tasks` in a batch, in the seed's order or by their weights."""
        names: list[str] = []
        drawn: list[Draw] = []
        if self.curriculum.in_order:
            more = list(itertools.islice(self._usable(), count))
        else:
            taken = [task.name for task in tasks]
            names = self._require_some()
            drawn = self.curriculum.draw(step, names, count, taken)
            more = [self._tasks[draw.task] for draw in drawn]
        groups = list(training_groups([*tasks, *more], step, self._run.config)[len(tasks) :])
        self.curriculum.expect(step, groups)
        if drawn:
            self.curriculum.journal(step, names, groups, drawn)
        return groups

    def rules(self) -> BatchRules:
        config = self._run.config
        return BatchRules(
            group_size=config.group_size,
            min_group=config.min_group,
            refill=config.short_groups == "refill",
            keep=config.oversample_keep,
            deadline_sec=config.step_deadline_sec,
            at_deadline=config.at_deadline,
            screen=config.screen_trials,
            replace_constant=config.replace_constant_groups,
            stream=config.stream,
            train_touched=config.on_outcome.get("human_touched") == "train",
        )

    def evaluation(self, step: int) -> tuple[GroupPlan, ...]:
        """The groups of the held-out tasks that can be used."""
        usable = [task for task in self._split.heldout if task.name not in self._unusable]
        return evaluation_groups(usable, step, self._run.config)
