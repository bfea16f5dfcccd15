"""A run's curriculum: draws the tasks of batches, and takes what people say of tasks."""

from __future__ import annotations

import math
import random
from collections.abc import Collection, Sequence

from tbtui.algorithm.curriculum import MAX_FACTOR, NOTHING_SAID, Beta, Chooser, Draw, Say
from tbtui.engines.grpo.context import EngineContext
from tbtui.engines.grpo.rollouts import GroupPlan, derive_seed
from tbtui.errors import UserError
from tbtui.journal.commands import Command
from tbtui.journal.events import (
    DrawnTask,
    GroupScored,
    TaskBelief,
    TasksDrawn,
    TasksJudged,
    TasksWeighted,
)
from tbtui.journal.figures import task_shares
from tbtui.view.sentences import weight_words
from tbtui.vocabulary import category_of

_FADED = 0.1
"""Share by which a task's learnability has changed when it is journalled anew."""


class WeightError(UserError):
    """What is wanted of a task can't be; the message is one line for a person."""


class Curriculum:
    """Draws tasks from what the run's finished steps say of them; journals each draw.

    A draw depends on the seed, the step, the steps that had finished and what people had said by
    then: all of it is in the journal, so that a resumed run draws the same.
    """

    def __init__(self, run: EngineContext) -> None:
        self._run = run
        train = run.split.train
        self._kinds = {task.name: category_of(task.kind, task.category) for task in train}
        self._rates, self._said = run.start.rates, run.start.said
        self._rates.half_life = run.config.task_half_life
        self._journal = run.journal
        self._judged: dict[str, float] = {}
        """Task -> its learnability as it was journalled last."""
        self._expected: dict[int, float] = {}
        """Step -> how many of its groups are expected to have a signal."""

    @property
    def in_order(self) -> bool:
        """Whether tasks are taken in the seed's order: neither the settings nor a
        person weighs them."""
        nothing = all(say == NOTHING_SAID for say in self._said.values())
        return self._run.config.task_sampling == "uniform" and nothing

    def draw(self, step: int, tasks: Sequence[str], count: int, taken: Sequence[str]) -> list[Draw]:
        """Draw `count` of `tasks` for a batch that has those of `taken` already."""
        rng = random.Random(derive_seed("tasks", self._run.config.seed, step, len(taken)))
        return self._chooser().draw(sorted(tasks), count, rng, taken)

    def _chooser(self) -> Chooser:
        config = self._run.config
        return Chooser(config.task_sampling, config.task_floor, self._rates, self._said)

    def journal(
        self, step: int, tasks: Sequence[str], groups: Sequence[GroupPlan], drawn: Sequence[Draw]
    ) -> None:
        """Journal what was drawn of `tasks` for the groups, and why."""
        sampling = self._run.config.task_sampling
        floor = 0.0 if sampling == "uniform" else self._run.config.task_floor
        chooser = self._chooser()
        shares = task_shares(chooser.weights(tasks), floor, chooser.untried(tasks))
        drawn_tasks = {
            group.group: DrawnTask(
                task=draw.task,
                why=draw.why,
                share=shares.get(draw.task, 0.0),
                belief=self._belief(self._rates.of(draw.task)),
            )
            for group, draw in zip(groups, drawn, strict=True)
        }
        self._journal.append(TasksDrawn(step=step, sampling=sampling, groups=drawn_tasks))

    def _belief(self, rate: Beta) -> TaskBelief:
        low, high = rate.interval
        return TaskBelief(
            pass_rate=rate.mean,
            low=low,
            high=high,
            learnability=rate.learnability,
            no_signal=rate.no_signal(self._compared),
        )

    @property
    def _compared(self) -> int:
        """How many trials decide whether a group has a signal."""
        return self._run.config.screen_trials or self._run.config.group_size

    # What came of it

    def expect(self, step: int, groups: Sequence[GroupPlan]) -> None:
        """Take down how many of these groups, new to the step, should have a signal."""
        rates, size = self._rates, self._compared
        more = math.fsum(1 - rates.of(group.task.name).no_signal(size) for group in groups)
        self._expected[step] = self._expected.get(step, 0.0) + more

    def finish(self, step: int, groups: Sequence[GroupScored]) -> dict[str, float]:
        """Learn from a step that is trained; returns what was expected of it, as metrics."""
        for group in groups:
            self._rates.score(step, group.group, group.task, group.rewards)
        self._rates.finish(step)
        self._judge(step, {group.task for group in groups})
        return {"curriculum/useful_groups_expected": self._expected.pop(step, 0.0)}

    def _judge(self, step: int, trained: Collection[str]) -> None:
        judged = {}
        for task in self._kinds:
            rate = self._rates.of(task)
            before = self._judged.get(task)
            if task in trained or (
                self._rates.seen(task)
                and (before is None or abs(rate.learnability - before) > _FADED * before)
            ):
                judged[task] = self._belief(rate)
                self._judged[task] = rate.learnability
        unseen = self._belief(Beta())
        self._journal.append(TasksJudged(step=step, tasks=judged, unseen=unseen))

    # What people say

    def weigh(self, command: Command) -> str:
        """Weigh a task, or all of a kind, from the next batch on; returns what that means.

        Raises `WeightError`.
        """
        tasks = self._named(command.target)
        said = {name: _wanted(self._said.get(name, NOTHING_SAID), command) for name in tasks}
        if all(self._said.get(name, NOTHING_SAID) == say for name, say in said.items()):
            return "it is so already"
        after = self._said | said
        if all(after.get(name, NOTHING_SAID).muted for name in self._kinds):
            raise WeightError(f"{command.target}: it is the last one, and some task has to be left")
        self._said.update(said)
        for say in dict.fromkeys(said.values()):
            self._journal.append(
                TasksWeighted(
                    tasks=tuple(name for name in tasks if said[name] == say),
                    factor=say.factor,
                    pinned=say.pinned,
                    actor=command.actor,
                    reason=command.reason,
                )
            )
        each = dict.fromkeys(weight_words(say.factor, say.pinned) for say in said.values())
        words = ", ".join(each)
        return f"{command.target}: {words}, from the next batch on"

    def _named(self, target: str) -> list[str]:
        if target in self._kinds:
            return [target]
        if tasks := [name for name, kind in self._kinds.items() if kind == target]:
            return tasks
        raise WeightError(f"{target}: no task or kind of that name is trained on")


def _wanted(before: Say, command: Command) -> Say:
    """What the command asks for, beside what was said before."""
    match command.arguments:
        case {"weight": int() | float() as factor, **rest} if not rest:
            say = Say(float(factor), before.pinned)
        case {"times": int() | float() as times, **rest} if not rest:
            say = Say(min(MAX_FACTOR, before.factor * times), before.pinned)
        case {"pinned": bool() as pinned, **rest} if not rest:
            say = Say(before.factor, pinned)
        case {"muted": bool() as muted, **rest} if not rest:
            say = Say(0.0 if muted else before.factor or 1.0, before.pinned and not muted)
        case _:
            raise WeightError("say what its weight should be: weight, times, pinned or muted")
    if not 0 <= say.factor <= MAX_FACTOR:
        raise WeightError(f"weight {say.factor:g}: should be from 0 to {MAX_FACTOR:g}")
    return say
