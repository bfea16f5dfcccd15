"""The groups of a batch, each with its places, and which of these make it up."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Literal

from tbtui.engines.grpo.decisions import Decisions
from tbtui.engines.grpo.plan import GroupPlan, TrialPlan
from tbtui.engines.grpo.rollouts import Rollout


@dataclass(frozen=True, slots=True)
class BatchRules:
    """How a batch deals with lost members and with late ones. The defaults do nothing special."""

    group_size: int
    min_group: int = 1
    refill: bool = False
    keep: Literal["in_order", "first_finished"] = "in_order"
    """Which trials fill a group that has started more than `group_size`."""
    deadline_sec: float | None = None
    at_deadline: Literal["wait", "stop", "mask"] = "stop"
    replace_constant: int = 0
    """Most further groups that are started in place of constant ones."""
    stream: bool = False
    """Groups are handed over as they finish, and are then out of people's hands."""
    train_touched: bool = False
    """Trials that people typed in are trained on like any other."""


@dataclass(slots=True, eq=False)
class GroupPlace:
    plan: TrialPlan
    task: asyncio.Task[Rollout]
    surplus: bool = False
    """The group is full without it."""

    @property
    def rollout(self) -> Rollout | None:
        """None: not over, or cut off by the end of the run."""
        task = self.task
        over = task.done() and not task.cancelled() and task.exception() is None
        return task.result() if over else None


@dataclass(slots=True, eq=False)
class BatchGroup:
    plan: GroupPlan
    rules: BatchRules
    decisions: Decisions
    places: list[GroupPlace] = field(default_factory=list)
    refilled: bool = False
    replaced: bool = False
    handed_over: bool = False

    @property
    def name(self) -> str:
        return self.plan.group

    def running(self) -> list[GroupPlace]:
        return [place for place in self.places if not place.task.done()]

    def counts(self, place: GroupPlace) -> bool:
        rollout = place.rollout
        return (
            rollout is not None and not place.surplus and self.decisions.reward(rollout) is not None
        )

    def scored(self) -> list[GroupPlace]:
        return [place for place in self.places if self.counts(place)]

    def missing(self) -> int:
        """Members that it lacks, those that still run not counted among them."""
        return self.rules.group_size - len(self.scored()) - len(self.running())

    def fill(self) -> tuple[list[GroupPlace], bool]:
        """The places that make up the group by now, and whether that is all of it."""
        size = self.rules.group_size
        if len(self.places) <= size or self.refilled:
            return self.places, False
        if self.rules.keep == "first_finished":
            scored = self.scored()[:size]
            return scored, len(scored) == size
        # In order: a trial that takes long keeps its place, or the group would favour short ones.
        filled: list[GroupPlace] = []
        for place in self.places:
            if len(filled) == size:
                break
            if not place.surplus and (not place.task.done() or self.counts(place)):
                filled.append(place)
        return filled, len(filled) == size and all(place.task.done() for place in filled)

    def members(self) -> tuple[Rollout, ...]:
        """Those that are over, as their verdicts left them."""
        filled, full = self.fill()
        rollouts = [place.rollout for place in (filled if full else self.places)]
        return tuple(rollout for rollout in rollouts if rollout is not None)
