"""What a run is to do: its last step, each step's groups and learning rate, each evaluation."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator

from tbtui.algorithm.schedule import learning_rate, total_steps
from tbtui.catalog.split import Split
from tbtui.catalog.tasks import TaskInfo
from tbtui.config import RunConfig
from tbtui.engines.grpo.failures import UnusableTasks
from tbtui.engines.grpo.group import BatchRules
from tbtui.engines.grpo.plan import GroupPlan, evaluation_groups, task_order, training_groups
from tbtui.engines.grpo.recorded import RecordedBatch, StartingPoint


class BatchPlanner:
    """Takes the training tasks in the order that the seed gives them, each batch its share.

    Tasks that can't be used are passed over; a batch that was begun before an interruption has the
    tasks that it had then.
    """

    def __init__(
        self, config: RunConfig, split: Split, start: StartingPoint, unusable: UnusableTasks
    ) -> None:
        self._config = config
        self._split = split
        self._tasks = {task.name: task for task in (*split.train, *split.heldout)}
        self._unusable = unusable
        self._trainable = sum(task.name not in start.unfit for task in split.train)
        """How many tasks an epoch has. Those that turn out in trials don't shorten the run."""
        taken = Counter(start.tasks_taken)
        for batch in start.batches.values():
            taken.update(batch.groups.values())
        self._order = task_order(split.train, config.seed)
        # All that was taken before the interruption is at the front of the order; what lies
        # between was passed over, and a task that once was is never taken again.
        while taken.total():
            name = next(self._order).name
            if taken[name]:
                taken[name] -= 1

    @property
    def last_step(self) -> int:
        config = self._config
        return total_steps(config.step_limit, config.n_epochs, self._trainable, config.batch_size)

    def to_come(self, step: int) -> tuple[int, int]:
        """How many steps and evaluations there are after `step`."""
        last, every = self.last_step, self._config.eval_every
        if step >= last or not self._split.heldout:
            return last - step, 0
        regular = last // every - step // every if every else 0
        return last - step, regular + bool(not every or last % every)

    def learning_rate(self, step: int) -> float:
        """The rate of a step, by the schedule that ends with the run."""
        config = self._config
        return learning_rate(
            config.learning_rate, config.lr_schedule, step, self.last_step, config.warmup_steps
        )

    def _usable(self) -> Iterator[TaskInfo]:
        """The next tasks of the order.

        Raises:
            HaltError: none can be used any more.
        """
        while True:
            if all(task.name in self._unusable for task in self._split.train):
                raise self._unusable.none_left()
            task = next(self._order)
            if task.name not in self._unusable:
                yield task

    def change(self, config: RunConfig) -> None:
        """Use other settings for batches that begin from now on."""
        self._config = config

    def batch(self, step: int, recorded: RecordedBatch | None) -> list[GroupPlan]:
        if recorded is None:
            tasks = list(itertools.islice(self._usable(), self._config.batch_size))
        else:
            tasks = [self._tasks[name] for name in recorded.groups.values()]
        return list(training_groups(tasks, step, self._config))

    def spare(self, step: int, groups: list[GroupPlan]) -> Callable[[], GroupPlan]:
        """Plans the next group that joins the batch of `groups`."""
        tasks = [group.task for group in groups]

        def plan() -> GroupPlan:
            tasks.append(next(self._usable()))
            return training_groups(tasks, step, self._config)[-1]

        return plan

    def rules(self) -> BatchRules:
        config = self._config
        return BatchRules(
            group_size=config.group_size,
            min_group=config.min_group,
            refill=config.short_groups == "refill",
            keep=config.oversample_keep,
            deadline_sec=config.step_deadline_sec,
            at_deadline=config.at_deadline,
            replace_constant=config.replace_constant_groups,
            stream=config.stream,
            train_touched=config.on_outcome.get("human_touched") == "train",
        )

    def evaluation(self, step: int) -> tuple[GroupPlan, ...]:
        """The groups of the held-out tasks that can be used."""
        usable = [task for task in self._split.heldout if task.name not in self._unusable]
        return evaluation_groups(usable, step, self._config)
