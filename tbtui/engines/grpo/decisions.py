"""What people and rules decide of a batch's trials: left out, another reward, or right as it is."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection

from tbtui.engines.grpo.plan import TrialPlan
from tbtui.engines.grpo.recorded import RecordedBatch
from tbtui.engines.grpo.rollouts import Rollout
from tbtui.journal.commands import Command
from tbtui.journal.events import CommandDone, Outcome, TrialExcluded, TrialRelabelled
from tbtui.journal.verbs import Standing, refusal
from tbtui.journal.vocabulary import MAX_REWARD, TrialPhase, is_reward
from tbtui.journal.writer import JournalWriter


class Decisions:
    """Carried out and answered here; what was decided before an interruption is in force."""

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
        """Trials that somebody has decided upon."""
        return self._decided

    def reward(self, rollout: Rollout) -> float | None:
        """In force now."""
        if rollout.trial in self._excluded:
            return None
        return self._relabelled.get(rollout.trial, rollout.reward)

    def in_force(self, rollout: Rollout) -> Rollout:
        """The rollout with its reward in force."""
        return dataclasses.replace(rollout, reward=self.reward(rollout))

    def accept(self, trial: str, command: Command) -> None:
        self._decided.add(trial)
        self.answer(command, True, f"{trial} is accepted as it is")

    def exclude(self, plan: TrialPlan, command: Command) -> None:
        """Leave a trial out, over or not, or take that back."""
        trial, exclude = command.target, command.verb == "exclude"
        if why := refusal(command.verb, Standing(trial, held_out=plan.purpose == "eval")):
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
        """Another reward, or with none in the arguments the verdict's again."""
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
            command, True, f"{trial}: reward {back}{_shown(now)} (was {_shown(before)}){left_out}"
        )

    def _not_relabelled(self, rollout: Rollout, command: Command) -> str | None:
        """Why not; None: it may be."""
        trial, arguments = rollout.trial, command.arguments
        reward = arguments.get("reward")
        number = isinstance(reward, int | float) and not isinstance(reward, bool)
        stands = Standing(
            trial,
            TrialPhase.FINISHED,
            held_out=rollout.plan.purpose == "eval",
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


def _shown(reward: float | None) -> str:
    return "none" if reward is None else f"{reward:g}"
