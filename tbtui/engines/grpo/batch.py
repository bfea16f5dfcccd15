"""A batch while its trials run: starts them, completes its groups, and hands these to training."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Coroutine, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from tbtui.algorithm.costs import Tokens
from tbtui.algorithm.step import shaped_reward
from tbtui.engines.events_of import issued
from tbtui.engines.grpo.context import EngineContext
from tbtui.engines.grpo.failures import one_cause
from tbtui.engines.grpo.group import BatchGroup, BatchRules, Decisions, GroupPlace
from tbtui.engines.grpo.pausing import unpaused
from tbtui.engines.grpo.plan import SpareGroups
from tbtui.engines.grpo.recorded import RecordedBatch
from tbtui.engines.grpo.review import Review
from tbtui.engines.grpo.rollouts import GroupPlan, Rollout, TrialPlan, trial_plan
from tbtui.engines.grpo.trials import TrialRunner
from tbtui.journal.commands import Command
from tbtui.journal.events import (
    DeadlinePassed,
    GroupAdded,
    GroupRefilled,
    Noted,
    Outcome,
    TrialRetried,
)
from tbtui.journal.verbs import Standing, refusal
from tbtui.vocabulary import all_equal


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """What a batch is to do."""

    groups: Sequence[GroupPlan]
    """In the order in which they are trained on."""
    rules: BatchRules
    recorded: RecordedBatch | None = None
    """What had become of the batch before the run was interrupted."""
    spare: SpareGroups | None = None
    """Groups that may take the place of constant ones."""
    review: Review | None = None
    """What it has to pass before its groups are handed over."""


class Batch:
    """Runs every trial of every group, at once as far as the runner allows."""

    def __init__(self, run: EngineContext, runner: TrialRunner[Any], plan: BatchPlan) -> None:
        self._rules = rules = plan.rules
        self._recipe = run.recipe
        self._runner = runner
        self._journal = run.journal
        self._recorded = plan.recorded or RecordedBatch()
        self.decisions = Decisions(run.journal, self._recorded, train_touched=rules.train_touched)
        self.groups = [BatchGroup(group, rules, self.decisions) for group in plan.groups]
        self._spare = plan.spare
        self._review = review = plan.review
        self._added = 0
        """Groups in place of constant ones."""
        self._changed = asyncio.Event()
        self._tasks = asyncio.TaskGroup()
        self._handed_over: asyncio.Queue[tuple[Rollout, ...] | None] = asyncio.Queue()
        self._its_turn = review is None or bool(self._recorded.scored)
        """Its groups are asked for, or were: until then they can be steered, complete or not."""
        self._late = False
        """The deadline has passed: nothing new is started."""
        self.begun = asyncio.Event()
        """Its trials can be steered, those included that were over before the interruption."""

    @property
    def waits(self) -> bool:
        """Whether the batch waits for its trials or its review, and is not about to be trained."""
        return not self.begun.is_set() or self.running or self.reviewing

    @property
    def running(self) -> bool:
        """Whether some trials of the batch still run."""
        return any(group.running() for group in self.groups)

    @property
    def under_review(self) -> bool:
        """Whether its review has begun and is not closed."""
        return self._reviewed and not self._closed

    @property
    def reviewing(self) -> bool:
        """Whether its review waits for a person."""
        return self._review is not None and self._review.waits

    def tokens(self) -> Tokens:
        """What the sampler read and wrote for it, trials that were not needed included."""
        places = [place for group in self.groups for place in group.places]
        return sum((p.rollout.tokens for p in places if p.rollout), start=Tokens())

    @property
    def rollouts(self) -> int:
        """Trials that have come to an end by themselves, those included that were not needed."""
        places = [place for group in self.groups for place in group.places]
        ended = [place.rollout for place in places if place.rollout is not None]
        return sum(rollout.outcome is not Outcome.CANCELLED for rollout in ended)

    async def run(self) -> list[tuple[Rollout, ...]]:
        """The rollouts of each group, in order, once all groups are complete; of a batch that has
        a review, once they are asked for.

        Raises:
            HaltError, and whatever else ends the run: the other trials are cancelled.
        """
        with one_cause():
            async with self._tasks:
                await self._run()
        finished = [self._in_force(group) for group in self.groups]
        for group, rollouts in zip(self.groups, finished, strict=True):
            if not group.handed_over:
                self._hand_over(group, rollouts)
        self._handed_over.put_nowait(None)
        return finished

    async def next_group(self) -> tuple[Rollout, ...] | None:
        """A group's rollouts while `run` is under way: as they finish, or all at its end.

        None: that was the last one.
        """
        self._its_turn = True
        self.go_on()
        return await self._handed_over.get()

    def _hand_over(self, group: BatchGroup, rollouts: tuple[Rollout, ...]) -> None:
        group.handed_over = True
        self._handed_over.put_nowait(rollouts)

    def _in_force(self, group: BatchGroup) -> tuple[Rollout, ...]:
        """The members of a group that is complete, with the rewards that were decided upon."""
        return tuple(self.decisions.in_force(rollout) for rollout in group.members())

    async def _run(self) -> None:
        for group in self.groups:
            for plan in group.begin():
                self._start(group, plan)
            self._restore(group)
        # Those that were over get their outcome from the journal, each in a task of its own.
        await asyncio.sleep(0)
        self.begun.set()
        # A step that is trained again takes the same gradients in the same order.
        by_name = {group.name: group for group in self.groups}
        for name in self._recorded.scored:
            self._advance(by_name[name])
        deadline = self._tasks.create_task(self._deadline())
        self._changed.set()  # everything may have been recorded
        while True:
            await self._changed.wait()
            self._changed.clear()
            for group in list(self.groups):
                self._advance(group)
            if self.running:
                continue
            # From here on people decide how long it takes.
            deadline.cancel()
            if self._passed_review() and self._its_turn:
                break

    def _passed_review(self) -> bool:
        """Whether the groups may be trained on, now that all trials are over."""
        if self._review is None:
            return True
        self._late = False
        self._review.look(self)
        return self._review.passed

    def _restore(self, group: BatchGroup) -> None:
        """Restore what an interrupted run had done for the group beyond starting it."""
        name = group.plan.group
        group.replaced = name in self._recorded.replaced
        self._added += group.replaced and not self._unusable(group)
        group.refilled = name in self._recorded.refilled
        begun = len(group.places)
        further = sorted(i for g, i in self._recorded.places if g == name and i > begun)
        for index in further:
            self._start(group, trial_plan(group.plan.trials[0], index))
        left = [plan for plan in group.held_back if plan.index not in further]
        group.held_back = [] if group.refilled else left

    def _start(self, group: BatchGroup, plan: TrialPlan, after: Rollout | None = None) -> None:
        """Run the trial: anew `after` its outcome, or from where an interrupted run had left it."""
        place = GroupPlace(plan)
        if after is None:
            work = self._first_or_next(place)
        else:
            work = self._runner.run(place, after.attempt + 1, after.tokens)
        place.task = self._tasks.create_task(work)
        place.task.add_done_callback(lambda _: self._changed.set())
        group.places.append(place)

    async def _first_or_next(self, place: GroupPlace) -> Rollout:
        plan = place.plan
        known = self._recorded.places.get(plan.key)
        if known is None or not known.attempts:
            return await self._runner.run(place)
        if (rollout := known.rollout) is not None:
            return rollout
        if known.seed is not None:
            place.plan = plan = dataclasses.replace(plan, seed=known.seed)
        attempt = known.number + 1
        self._journal.append(
            TrialRetried(
                trial=plan.trial_id(known.number),
                successor=plan.trial_id(attempt),
                reason="the run was resumed",
            )
        )
        return await self._runner.run(place, attempt, known.tokens)

    def _advance(self, group: BatchGroup) -> None:
        """Withdraw trials that are not needed any more, and replace those that are missing."""
        if self._unusable(group):
            self._give_up(group)
            return
        if group.held_back and not self._late and not self._reviewed:
            for plan in group.release(self._rewards(group)):
                self._start(group, plan)
        members, full = group.fill()
        if full:
            for place in group.running():
                if place not in members and not place.surplus:
                    place.surplus = True
                    self._runner.steering.withdraw(place, "not needed: the group is full")
        elif not group.running() and not self._late and not self._reviewed:
            short = len(group.scored()) < self._rules.min_group
            if short and self._rules.refill and not group.refilled:
                self._refill(group, group.missing())
            elif not short:
                self._replace_if_constant(group)
        if self._rules.stream and not group.running() and not group.handed_over:
            self._hand_over(group, self._in_force(group))

    def _unusable(self, group: BatchGroup) -> bool:
        return group.plan.task.name in self._runner.unusable

    def _give_up(self, group: BatchGroup) -> None:
        """End the trials of a group whose task can't be used, and take another task."""
        task = group.plan.task.name
        for place in group.running():
            if not place.surplus:
                place.surplus = True
                why = f"its task can't be used here: {self._runner.unusable.reason(task)}"
                self._runner.steering.withdraw(place, why)
        if not group.replaced and self._spare is not None and not (self._late or self._reviewed):
            self._replace(group, self._spare)
        if self._rules.stream and not group.running() and not group.handed_over:
            self._hand_over(group, self._in_force(group))

    @property
    def _reviewed(self) -> bool:
        """Whether its review has begun: people or rules decide of its trials, or have."""
        return self._review is not None and self._review.progress.begun

    @property
    def _closed(self) -> bool:
        """Whether its review is closed: it is trained as it is."""
        return self._review is not None and self._review.progress.closed

    def _refill(self, group: BatchGroup, missing: int) -> None:
        group.refilled, group.held_back = True, []
        last = group.places[-1].plan
        # Those that were held back keep their numbers, whether they ever start or not.
        number = max(last.index, len(group.plan.trials))
        plans = [trial_plan(last, number + 1 + extra) for extra in range(missing)]
        for plan in plans:
            self._start(group, plan)
        self._journal.append(
            GroupRefilled(
                step=last.step,
                group=group.plan.group,
                trials=tuple(plan.trial_id(1) for plan in plans),
            )
        )

    def _replace_if_constant(self, group: BatchGroup) -> None:
        """Dynamic sampling (Yu et al. 2025, DAPO, arXiv 2503.14476, section 3.2), with a bound."""
        spent = self._added >= self._rules.replace_constant
        rewards = self._rewards(group)
        constant = bool(rewards) and all_equal(rewards)
        if spent or group.replaced or self._spare is None or not constant:
            return
        self._added += 1
        self._replace(group, self._spare)

    def _rewards(self, group: BatchGroup) -> list[float]:
        """Rewards of its trials that have one, as training sees them by now."""
        members = [self.decisions.in_force(p.rollout) for p in group.scored() if p.rollout]
        rewards = (shaped_reward(rollout, self._recipe) for rollout in members)
        return [reward for reward in rewards if reward is not None]

    def _replace(self, group: BatchGroup, spare: SpareGroups) -> None:
        group.replaced = True
        fresh = BatchGroup(spare.next(), self._rules, self.decisions)
        self.groups.append(fresh)
        self._journal.append(
            GroupAdded(
                step=fresh.plan.trials[0].step,
                group=fresh.plan.group,
                task=fresh.plan.task.name,
                replaces=group.plan.group,
            )
        )
        for plan in fresh.begin():
            self._start(fresh, plan)

    # Stragglers

    async def _deadline(self) -> None:
        if self._rules.deadline_sec is None:
            return
        await unpaused(self._rules.deadline_sec, lambda: self._runner.steering.open)
        late = [place for group in self.groups for place in group.running()]
        if not late:
            return
        step, trials = late[0].plan.step, tuple(place.trial for place in late)
        if self._rules.at_deadline == "wait":
            text = f"step {step}: past its deadline, waiting for {', '.join(trials)}"
            self._journal.append(Noted(level="warning", text=text))
            return
        self._late = True
        action = self._rules.at_deadline
        self._journal.append(DeadlinePassed(step=step, action=action, trials=trials))
        for place in late:
            if action == "stop":
                self._runner.steering.expire(place, "the step's deadline passed")
            else:
                self._runner.steering.withdraw(place, "left out: the step's deadline passed")

    # What people and rules ask

    def ask(self, command: Command) -> None:
        """Journal a command and carry it out."""
        self._journal.append(issued(command))
        self.control(command)

    def control(self, command: Command) -> bool:
        """Exclude, include, relabel, accept or retry a trial, or refill a group. False: that is
        not this batch's."""
        if command.verb == "refill":
            group = next((each for each in self.groups if each.name == command.target), None)
            place = None
        else:
            group, place = self._find(command.target)
        if group is None:
            return False
        if group.handed_over:
            of = "" if place is None else "the group of "
            self._refuse(command, f"{of}{command.target} is being trained on already")
        elif self._closed:
            self._refuse(command, f"{command.target}: the review of step {self.step} is closed")
        elif place is None:
            self._refill_asked(group, command)
        elif command.verb == "retry":
            self._retry(group, place, command)
        elif command.verb in ("exclude", "include"):
            self.decisions.exclude(place.plan, command)
        else:
            self._decide(place, command)
        if self._review is not None:
            self._review.changed(self)
        return True

    def accept(self, command: Command) -> None:
        """Let what is under review be trained as it is."""
        if self._review is not None and self._review.waits:
            self._review.accept(self, command)
        else:
            self._refuse(command, f"step {self.step}: fresh trials are under way")

    def _find(self, trial: str) -> tuple[BatchGroup | None, GroupPlace | None]:
        for group in self.groups:
            for place in group.places:
                rollout = place.rollout
                if trial == (rollout.trial if rollout else place.trial):
                    return group, place
        return None, None

    def _decide(self, place: GroupPlace, command: Command) -> None:
        """Relabel or accept a trial that is over."""
        trial, rollout = command.target, place.rollout
        if rollout is None:
            self._refuse(command, refusal(command.verb, Standing(trial)))
        elif place.surplus:
            self._refuse(command, f"{trial} has no part in its group, which is full without it")
        elif command.verb == "relabel":
            self.decisions.relabel(rollout, command)
        elif not self._reviewed:
            self._refuse(command, f"step {self.step} is not under review")
        else:
            self.decisions.accept(trial, command)

    def _refill_asked(self, group: BatchGroup, command: Command) -> None:
        missing = group.missing()
        if missing <= 0:
            self._refuse(command, f"{group.name}: no member is missing")
        elif self._late:
            self._refuse(command, f"{group.name} is not refilled: the step's deadline passed")
        else:
            self._refill(group, missing)
            fresh = f"{missing} fresh trial{'s' if missing > 1 else ''}"
            self.decisions.answer(command, True, f"{group.name} gets {fresh}")

    def _retry(self, group: BatchGroup, place: GroupPlace, command: Command) -> None:
        rollout = place.rollout
        if rollout is None:
            self._runner.steering.control(command)
        elif self._late or place.surplus:
            why = "the step's deadline passed" if self._late else "its group is full without it"
            self._refuse(command, f"{rollout.trial} is not tried again: {why}")
        else:
            attempt = rollout.attempt + 1
            plan = place.plan.again(attempt)
            successor = plan.trial_id(attempt)
            reason = f"asked by {command.actor}" + (f": {command.reason}" * bool(command.reason))
            self._journal.append(
                TrialRetried(trial=rollout.trial, successor=successor, reason=reason)
            )
            self._start(group, plan, rollout)
            group.places[group.places.index(place)] = group.places.pop()
            self.decisions.answer(command, True, f"{rollout.trial} goes on as {successor}")

    def _refuse(self, command: Command, why: str) -> None:
        self.decisions.answer(command, False, why)

    # What its review needs

    @property
    def step(self) -> int:
        return self.groups[0].plan.trials[0].step

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start a task beside the trials; it ends with them at the latest."""
        return self._tasks.create_task(work)

    def go_on(self) -> None:
        """Wake the loop that checks groups and review."""
        self._changed.set()


@dataclass(slots=True)
class OpenBatches:
    """The batches whose trials can be steered."""

    evaluating: Batch | None = None
    """Held-out tasks, or forks of a run that does nothing else."""
    sampling: dict[int, Batch] = field(default_factory=dict)
    """Those whose trials run or wait to be trained on, by step."""
    forks: list[Batch] = field(default_factory=list)
    """Those that run beside the others."""

    def __iter__(self) -> Iterator[Batch]:
        evaluating = [self.evaluating] if self.evaluating else []
        return iter([*evaluating, *self.sampling.values(), *self.forks])
