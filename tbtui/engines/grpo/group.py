"""A group of a batch: its places, which of them make it up, and what was decided of its trials."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Literal

from tbtui.engines.grpo.recorded import RecordedBatch
from tbtui.engines.grpo.rollouts import GroupPlan, Rollout, TrialPlan
from tbtui.engines.trials.attempts import Place
from tbtui.journal.commands import Command
from tbtui.journal.events import CommandDone, Outcome, TrialExcluded, TrialRelabelled
from tbtui.journal.verbs import Standing, refusal
from tbtui.journal.writer import JournalWriter
from tbtui.view.sentences import reward_text
from tbtui.vocabulary import MAX_REWARD, TrialPhase, all_equal, is_reward


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
    screen: int = 0
    """Trials that a group begins with, if not with all: the others follow once rewards differ."""
    replace_constant: int = 0
    """Most further groups that are started in place of constant ones."""
    stream: bool = False
    """Groups are handed over as they finish, and are then out of people's hands."""
    train_touched: bool = False
    """Trials that people typed in are trained on like any other."""


@dataclass(slots=True, eq=False)
class GroupPlace(Place[TrialPlan]):
    """A place in a group, the task that runs its trial, and whether the group needs the result."""

    task: asyncio.Task[Rollout] = field(init=False)
    surplus: bool = False
    """Whether the group is full without it."""

    @property
    def rollout(self) -> Rollout | None:
        """The finished trial; None: not over, or cut off by the end of the run."""
        task = self.task
        over = task.done() and not task.cancelled() and task.exception() is None
        return task.result() if over else None


@dataclass(slots=True, eq=False)
class BatchGroup:
    plan: GroupPlan
    rules: BatchRules
    decisions: Decisions
    places: list[GroupPlace] = field(default_factory=list)
    held_back: list[TrialPlan] = field(default_factory=list)
    """Planned trials that start only if the rewards of its first ones differ."""
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
        """How many members the group lacks; those that still run are not missing."""
        return self.rules.group_size - len(self.scored()) - len(self.running())

    def begin(self) -> list[TrialPlan]:
        """The trials that start at once; the others are held back."""
        first = self.rules.screen or len(self.plan.trials)
        self.held_back = list(self.plan.trials[first:])
        return list(self.plan.trials[:first])

    def release(self, rewards: Collection[float]) -> list[TrialPlan]:
        """The trials that are held back no longer, given the rewards that it has by now.

        All follow once two rewards differ. Otherwise, when its trials are over, as many as it
        takes to have the rewards that its screen asks for: infrastructure may have lost some.
        """
        count = 0
        if not all_equal(rewards):
            count = len(self.held_back)
        elif not self.running():
            count = max(0, self.rules.screen - len(rewards))
        released, self.held_back = self.held_back[:count], self.held_back[count:]
        return released

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
        """The rollouts of members that are over, with the rewards of their verdicts."""
        filled, full = self.fill()
        rollouts = [place.rollout for place in (filled if full else self.places)]
        return tuple(rollout for rollout in rollouts if rollout is not None)


class Decisions:
    """What is decided of a batch's trials; carries such commands out and answers them.

    What was decided before an interruption is in force.
    """

    def __init__(
        self, journal: JournalWriter, recorded: RecordedBatch, *, train_touched: bool
    ) -> None:
        """`train_touched`: trials that people typed in may have a reward."""
        self._journal = journal
        self._train_touched = train_touched
        self._excluded = set(recorded.excluded)
        self._relabelled = dict(recorded.relabelled)
        self._decided = set(recorded.review.decided)

    @property
    def decided(self) -> Collection[str]:
        """The trials on which people or rules have decided."""
        return self._decided

    def reward(self, rollout: Rollout) -> float | None:
        """The reward in force now."""
        if rollout.trial in self._excluded:
            return None
        return self._relabelled.get(rollout.trial, rollout.reward)

    def in_force(self, rollout: Rollout) -> Rollout:
        """The rollout with its reward in force."""
        excluded = rollout.trial in self._excluded
        return dataclasses.replace(rollout, reward=self.reward(rollout), excluded=excluded)

    def accept(self, trial: str, command: Command) -> None:
        self._decided.add(trial)
        self.answer(command, True, f"{trial} is accepted as it is")

    def exclude(self, plan: TrialPlan, command: Command) -> None:
        """Leave a trial out, over or not, or take that back."""
        trial, exclude = command.target, command.verb == "exclude"
        if why := refusal(
            command.verb,
            Standing(
                trial,
                held_out=plan.purpose == "eval",
                fork=plan.purpose == "fork",
                probe=plan.purpose == "probe",
            ),
        ):
            self.answer(command, False, why)
            return
        self._decided.add(trial)
        if exclude == (trial in self._excluded):
            state = "left out already" if exclude else "not left out"
            self.answer(command, True, f"{trial} is {state}")
            return
        if exclude:
            self._excluded.add(trial)
        else:
            self._excluded.discard(trial)
        self._journal.append(TrialExcluded(trial=trial, excluded=exclude, reason=command.reason))
        what = "left out of training" if exclude else "part of training again"
        self.answer(command, True, f"{trial} is {what}")

    def relabel(self, rollout: Rollout, command: Command) -> None:
        """Give a trial another reward, or with None in the arguments its verdict's again."""
        trial, reward = rollout.trial, command.arguments.get("reward")
        if (why := self._not_relabelled(rollout, command)) is not None:
            self.answer(command, False, why)
            return
        before = self._relabelled.get(trial, rollout.reward)
        self._decided.add(trial)
        now = rollout.reward
        if reward is not None:
            now = self._relabelled[trial] = float(reward)
        elif self._relabelled.pop(trial, None) is None:
            self.answer(command, True, f"{trial} has its verdict's reward")
            return
        self._journal.append(
            TrialRelabelled(
                trial=trial,
                reward=now,
                before=before,
                reason=command.reason,
                taken_back=reward is None,
            )
        )
        back = "again " if reward is None else ""
        left_out = "; it is still left out of training" if trial in self._excluded else ""
        self.answer(
            command,
            True,
            f"{trial}: reward {back}{reward_text(now)} (was {reward_text(before)}){left_out}",
        )

    def _not_relabelled(self, rollout: Rollout, command: Command) -> str | None:
        """Why a trial can't be relabelled; None: it can."""
        trial, arguments = rollout.trial, command.arguments
        reward = arguments.get("reward")
        number = isinstance(reward, int | float) and not isinstance(reward, bool)
        stands = Standing(
            trial,
            TrialPhase.FINISHED,
            held_out=rollout.plan.purpose == "eval",
            fork=rollout.plan.purpose == "fork",
            probe=rollout.plan.purpose == "probe",
            has_tokens=reward is None or any(call.completion_ids for call in rollout.calls),
        )
        if why := refusal("relabel", stands):
            return why
        if "reward" not in arguments or not (reward is None or number):
            return f"{trial}: say which reward: a number, or null for the verdict's"
        if reward is None:
            return None
        if not is_reward(reward):
            return f"{trial}: a reward is a finite number within ±{MAX_REWARD:,.0f}, not {reward}"
        if not command.reason.strip():
            return f"{trial}: another reward needs a reason"
        if rollout.outcome is Outcome.HUMAN_TOUCHED and not self._train_touched:
            return (
                f"a person typed in {trial}: it is trained on only with"
                " on_outcome.human_touched=train"
            )
        return None

    def answer(self, command: Command, ok: bool, result: str) -> None:
        self._journal.append(CommandDone(command=command.id, ok=ok, result=result))
