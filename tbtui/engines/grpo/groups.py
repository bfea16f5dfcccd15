"""The groups of one batch while their trials run: who fills a group, and when it is complete."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from tbtui.algorithm.costs import Tokens
from tbtui.engines.grpo.failures import one_cause
from tbtui.engines.grpo.plan import GroupPlan, TrialPlan, derive_seed, trial_plan
from tbtui.engines.grpo.recorded import RecordedBatch
from tbtui.engines.grpo.rollouts import Rollout
from tbtui.engines.grpo.trials import TrialRunner
from tbtui.journal.commands import Command
from tbtui.journal.events import (
    CommandDone,
    DeadlinePassed,
    GroupAdded,
    GroupRefilled,
    Noted,
    TrialExcluded,
    TrialRetried,
)
from tbtui.journal.writer import JournalWriter

_TICK_SEC = 0.2


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


@dataclass(slots=True, eq=False)
class _Place:
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
class _Group:
    plan: GroupPlan
    places: list[_Place] = field(default_factory=list)
    refilled: bool = False
    replaced: bool = False
    handed_over: bool = False

    def running(self) -> list[_Place]:
        return [place for place in self.places if not place.task.done()]


class Batch:
    """Runs every trial of every group, at once as far as the runner allows."""

    def __init__(
        self,
        groups: Sequence[GroupPlan],
        rules: BatchRules,
        runner: TrialRunner[Any],
        journal: JournalWriter,
        *,
        recorded: RecordedBatch | None = None,
        spare: Callable[[], GroupPlan] | None = None,
    ) -> None:
        """
        Args:
            groups: in the order in which they are trained on.
            recorded: what had become of the batch before the run was interrupted.
            spare: plans the next group that may take the place of a constant one.
        """
        self._groups = [_Group(plan) for plan in groups]
        self._rules = rules
        self._runner = runner
        self._journal = journal
        self._recorded = recorded or RecordedBatch(())
        self._spare = spare
        self._added = len(self._recorded.replaced)
        self._changed = asyncio.Event()
        self._tasks = asyncio.TaskGroup()
        self._handed_over: asyncio.Queue[tuple[Rollout, ...] | None] = asyncio.Queue()
        self._late = False
        """The deadline has passed: nothing new is started."""
        self._excluded = set(self._recorded.excluded)
        self.begun = asyncio.Event()
        """Its trials can be steered, those included that were over before the interruption."""

    @property
    def waits_for_trials(self) -> bool:
        return not self.begun.is_set() or any(group.running() for group in self._groups)

    def tokens(self) -> Tokens:
        """What the sampler read and wrote for it, for trials that nobody needed included."""
        places = [place for group in self._groups for place in group.places]
        return sum((p.rollout.tokens for p in places if p.rollout), start=Tokens())

    async def run(self) -> list[tuple[Rollout, ...]]:
        """The rollouts of each group, in order, once all groups are complete.

        Raises:
            HaltError, and whatever else ends the run: the other trials are cancelled.
        """
        with one_cause():
            async with self._tasks:
                await self._run()
        finished = [tuple(self._members(group)) for group in self._groups]
        for group, rollouts in zip(self._groups, finished, strict=True):
            if not group.handed_over:
                self._hand_over(group, rollouts)
        self._handed_over.put_nowait(None)
        return finished

    async def next_group(self) -> tuple[Rollout, ...] | None:
        """A group's rollouts while `run` is under way: as they finish, or all at its end.

        None: that was the last one.
        """
        return await self._handed_over.get()

    def _hand_over(self, group: _Group, rollouts: tuple[Rollout, ...]) -> None:
        group.handed_over = True
        self._handed_over.put_nowait(rollouts)

    async def _run(self) -> None:
        for group in self._groups:
            for plan in group.plan.trials:
                self._start(group, plan)
            self._restore(group)
        # Those that were over get their outcome from the journal, each in a task of its own.
        await asyncio.sleep(0)
        self.begun.set()
        deadline = self._tasks.create_task(self._deadline())
        self._changed.set()  # everything may have been recorded
        while True:
            await self._changed.wait()
            self._changed.clear()
            for group in list(self._groups):
                self._advance(group)
            if not any(group.running() for group in self._groups):
                break
        deadline.cancel()

    def _restore(self, group: _Group) -> None:
        """What an interrupted run had done for the group beyond starting it."""
        name = group.plan.group
        group.replaced = name in self._recorded.replaced
        group.refilled = name in self._recorded.refilled
        planned = len(group.plan.trials)
        further = sorted(i for g, i in self._recorded.places if g == name and i > planned)
        for index in further:
            self._start(group, trial_plan(group.plan.trials[0], index))

    def _start(self, group: _Group, plan: TrialPlan, after: Rollout | None = None) -> None:
        """Run the trial: anew `after` its outcome, or from where an interrupted run had left it."""
        if after is None:
            task = self._tasks.create_task(self._first_or_next(plan))
        else:
            again = self._runner.run(plan, after.attempt + 1, after.tokens)
            task = self._tasks.create_task(again)
        task.add_done_callback(lambda _: self._changed.set())
        group.places.append(_Place(plan, task))

    async def _first_or_next(self, plan: TrialPlan) -> Rollout:
        known = self._recorded.places.get(plan.key)
        if known is None or not known.attempts:
            return await self._runner.run(plan)
        if known.rollout is not None:
            return known.rollout
        if known.seed is not None:
            plan = dataclasses.replace(plan, seed=known.seed)
        attempt = known.attempts + 1
        self._journal.append(
            TrialRetried(
                trial=plan.trial_id(known.attempts),
                successor=plan.trial_id(attempt),
                reason="the run was resumed",
            )
        )
        return await self._runner.run(plan, attempt, known.tokens)

    def _advance(self, group: _Group) -> None:
        """Send away who is not needed any more, and replace who is missing."""
        members, full = self._fill(group)
        if full:
            for place in group.running():
                if place not in members and not place.surplus:
                    place.surplus = True
                    self._runner.steering.withdraw(place.plan, "not needed: the group is full")
        elif not group.running() and not self._late:
            missing = self._rules.group_size - len(self._scored(group))
            short = len(self._scored(group)) < self._rules.min_group
            if short and self._rules.refill and not group.refilled:
                self._refill(group, missing)
            elif not short:
                self._replace_if_constant(group)
        if self._rules.stream and not group.running() and not group.handed_over:
            self._hand_over(group, tuple(self._members(group)))

    def _fill(self, group: _Group) -> tuple[list[_Place], bool]:
        """The places that make up the group by now, and whether that is all of it."""
        size = self._rules.group_size
        if len(group.places) <= size or group.refilled:
            return group.places, False
        if self._rules.keep == "first_finished":
            scored = [place for place in group.places if self._counts(place)][:size]
            return scored, len(scored) == size
        # In order: a trial that takes long keeps its place, or the group would favour short ones.
        filled: list[_Place] = []
        for place in group.places:
            if len(filled) == size:
                break
            if not place.surplus and (not place.task.done() or self._counts(place)):
                filled.append(place)
        return filled, len(filled) == size and all(place.task.done() for place in filled)

    def _counts(self, place: _Place) -> bool:
        rollout = place.rollout
        return (
            rollout is not None
            and not place.surplus
            and rollout.reward is not None
            and rollout.trial not in self._excluded
        )

    def _scored(self, group: _Group) -> list[_Place]:
        return [place for place in group.places if self._counts(place)]

    def _refill(self, group: _Group, missing: int) -> None:
        group.refilled = True
        last = group.places[-1].plan
        plans = [trial_plan(last, last.index + 1 + extra) for extra in range(missing)]
        for plan in plans:
            self._start(group, plan)
        self._journal.append(
            GroupRefilled(
                step=last.step,
                group=group.plan.group,
                trials=tuple(plan.trial_id(1) for plan in plans),
            )
        )

    def _replace_if_constant(self, group: _Group) -> None:
        """Dynamic sampling (Yu et al. 2025, DAPO, arXiv 2503.14476, section 3.2), with a bound."""
        rewards = {p.rollout.reward for p in self._scored(group) if p.rollout}
        spent = self._added >= self._rules.replace_constant
        if spent or group.replaced or self._spare is None or len(rewards) != 1:
            return
        group.replaced = True
        self._added += 1
        fresh = _Group(self._spare())
        self._groups.append(fresh)
        self._journal.append(
            GroupAdded(
                step=fresh.plan.trials[0].step,
                group=fresh.plan.group,
                task=fresh.plan.task.name,
                replaces=group.plan.group,
            )
        )
        for plan in fresh.plan.trials:
            self._start(fresh, plan)

    def _members(self, group: _Group) -> Iterable[Rollout]:
        members, full = self._fill(group)
        for place in members if full else group.places:
            rollout = place.task.result()
            excluded = rollout.trial in self._excluded
            yield dataclasses.replace(rollout, reward=None) if excluded else rollout

    # Stragglers

    async def _deadline(self) -> None:
        """Seconds in which the run is paused don't count."""
        left = self._rules.deadline_sec
        if left is None:
            return
        while left > 0:
            await asyncio.sleep(min(left, _TICK_SEC))
            if self._runner.steering.open:
                left -= _TICK_SEC
        late = [place for group in self._groups for place in group.running()]
        if not late:
            return
        step, trials = late[0].plan.step, tuple(self._runner.steering.live(p.plan) for p in late)
        if self._rules.at_deadline == "wait":
            text = f"step {step}: past its deadline, waiting for {', '.join(trials)}"
            self._journal.append(Noted(level="warning", text=text))
            return
        self._late = True
        action = self._rules.at_deadline
        self._journal.append(DeadlinePassed(step=step, action=action, trials=trials))
        for place in late:
            if action == "stop":
                self._runner.steering.expire(place.plan, "the step's deadline passed")
            else:
                self._runner.steering.withdraw(place.plan, "left out: the step's deadline passed")

    # What people ask

    def control(self, command: Command) -> bool:
        """Exclude, include, or retry a trial that is over. False: that is not this batch's."""
        found = self._find(command.target)
        if found is None:
            return False
        group, place = found
        if group.handed_over:
            self._done(command, False, f"the group of {command.target} is being trained on already")
        elif command.verb == "retry":
            self._retry(group, place, command)
        else:
            self._exclude(place, command)
        return True

    def _find(self, trial: str) -> tuple[_Group, _Place] | None:
        for group in self._groups:
            for place in group.places:
                rollout = place.rollout
                name = rollout.trial if rollout else self._runner.steering.live(place.plan)
                if name == trial:
                    return group, place
        return None

    def _retry(self, group: _Group, place: _Place, command: Command) -> None:
        rollout = place.rollout
        if rollout is None:
            self._runner.steering.control(command)
        elif self._late or place.surplus:
            why = "the step's deadline passed" if self._late else "its group is full without it"
            self._done(command, False, f"{rollout.trial} is not tried again: {why}")
        else:
            attempt = rollout.attempt + 1
            plan = dataclasses.replace(
                place.plan, seed=derive_seed(place.plan.seed, "again", attempt)
            )
            successor = plan.trial_id(attempt)
            reason = f"asked by {command.actor}" + (f": {command.reason}" * bool(command.reason))
            self._journal.append(
                TrialRetried(trial=rollout.trial, successor=successor, reason=reason)
            )
            self._start(group, plan, rollout)
            group.places[group.places.index(place)] = group.places.pop()
            self._done(command, True, f"{rollout.trial} goes on as {successor}")

    def _exclude(self, place: _Place, command: Command) -> None:
        trial, exclude = command.target, command.verb == "exclude"
        if place.plan.purpose == "eval":
            self._done(command, False, f"{trial} is held out: it is never trained on")
            return
        if exclude == (trial in self._excluded):
            state = "left out already" if exclude else "not left out"
            self._done(command, True, f"{trial} is {state}")
            return
        if exclude:
            self._excluded.add(trial)
        else:
            self._excluded.discard(trial)
        self._journal.append(TrialExcluded(trial=trial, excluded=exclude, reason=command.reason))
        what = "left out of training" if exclude else "part of training again"
        self._done(command, True, f"{trial} is {what}")

    def _done(self, command: Command, ok: bool, result: str) -> None:
        self._journal.append(CommandDone(command=command.id, ok=ok, result=result))
