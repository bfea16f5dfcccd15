"""Gives the turns of some of a step's trials credit of their own (`advantage=turn_value`).

The values of a trial's turns are measured by forks, as the weights are that sampled the batch. What
they are, and why the gradient stays unbiased, is in `algorithm/turn_value.py`. Trials that are not
valued have their group's advantage for all turns: the gradient has the same expectation, and more
variance.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Sequence

from tbtui.algorithm.evaluation import PASS_REWARD
from tbtui.algorithm.turn_value import turn_advantages
from tbtui.config import RunConfig
from tbtui.engines.grpo.failures import one_cause
from tbtui.engines.grpo.forks import CREDIT, ForkRequest, Forks
from tbtui.engines.grpo.origins import Course, ForkError
from tbtui.engines.grpo.rollouts import Rollout, derive_seed
from tbtui.journal.database import JournalError
from tbtui.journal.events import Noted
from tbtui.journal.writer import JournalWriter


class TurnCredit:
    """Values the turns of trials, as many as a step's share of forks allows."""

    def __init__(
        self, forks: Forks, config: Callable[[], RunConfig], journal: JournalWriter
    ) -> None:
        """`config`: the settings in force now."""
        self._forks = forks
        self._config = config
        self._journal = journal
        self._left = self._groups = self._trials = self._used = 0

    def begin(self, groups: int) -> None:
        """A step of so many groups begins."""
        self._left, self._groups = self._config().value_rollouts_per_step, groups
        self._trials = self._used = 0

    async def valued(self, rollouts: Sequence[Rollout]) -> Sequence[Rollout]:
        """The rollouts of a group, some with an advantage for each call.

        Raises whatever ends the run.
        """
        if self._config().advantage_method != "turn_value":
            return rollouts
        share = self._left // max(1, self._groups)
        self._groups -= 1
        chosen = self._chosen(rollouts, share)
        if not chosen:
            return rollouts
        self._left -= sum(map(self._cost, chosen))
        with one_cause():
            async with asyncio.TaskGroup() as group:
                tasks = {
                    each.trial: group.create_task(self._of(each, _others(each, rollouts)))
                    for each in chosen
                }
        return [tasks[r.trial].result() if r.trial in tasks else r for r in rollouts]

    def metrics(self) -> dict[str, float]:
        """Trials and forks of the step under way."""
        if self._config().advantage_method != "turn_value":
            return {}
        return {"value/trials": float(self._trials), "value/forks": float(self._used)}

    def _cost(self, rollout: Rollout) -> int:
        """Forks that its turns take from the second on: in the first its siblings began too."""
        return (rollout.turns - 1) * self._config().value_rollouts_per_turn

    def _chosen(self, rollouts: Sequence[Rollout], share: int) -> list[Rollout]:
        """Trials drawn by the seed until the share is used up: never by what they did themselves,
        neither their reward nor their length."""
        seed, chosen = self._config().seed, []
        for each in sorted(rollouts, key=lambda r: derive_seed(seed, CREDIT, r.plan.key)):
            if share > 0 and _can_be_valued(each):
                share -= self._cost(each)
                chosen.append(each)
        return chosen

    async def _of(self, rollout: Rollout, first: float | None) -> Rollout:
        """The rollout with its turns' advantages; `first`: V(1)."""
        if first is None or rollout.reward is None:
            return rollout
        config, turns = self._config(), rollout.turns
        request = ForkRequest(
            rollout.trial, 0, config.value_rollouts_per_turn, rollout.plan.temperature,
            search=CREDIT,
        )  # fmt: skip
        try:
            values = await self._forks.credit(request, Course(turns, rollout.reward >= PASS_REWARD))
        except (ForkError, JournalError) as error:
            text = f"the turns of {rollout.trial} have no values: {error}"
            self._journal.append(Noted(level="warning", text=text))
            return rollout
        self._used += self._cost(rollout)
        if len(values) < turns - 1:
            return rollout  # a turn whose forks could not be scored
        self._trials += 1
        ordered = [first, *(values[turn] for turn in range(2, turns + 1))]
        return dataclasses.replace(
            rollout, call_advantages=turn_advantages(ordered, rollout.reward)
        )


def _can_be_valued(rollout: Rollout) -> bool:
    """Whether each of its calls is a turn, of which there are several, and it has a reward."""
    plain = not any(call.summary or call.abandoned for call in rollout.calls)
    return rollout.reward is not None and plain and 1 < rollout.turns == len(rollout.calls)


def _others(rollout: Rollout, group: Sequence[Rollout]) -> float | None:
    """The mean reward of a trial's siblings that have one: V(1); None: there are none."""
    rewards = [r.reward for r in group if r.reward is not None and r.trial != rollout.trial]
    return sum(rewards) / len(rewards) if rewards else None
