"""Further groups of a training step: forks of its trials at a turn (`group_from=fork`).

They begin when all groups of the batch have ended, and are trained on with them. Their names derive
from the trunk's, their draws from their names: a step that is interrupted takes the same ones, and
what the journal has of them is not tried again. Where they are forked, and why the gradient is what
it should be, is in `algorithm/fork_groups.py`.
"""

from __future__ import annotations

import asyncio
import dataclasses
import random
from collections.abc import Callable, Sequence

from tbtui.algorithm.fork_groups import ForkPlace, Trunk, fork_places
from tbtui.algorithm.step import ScoredGroup
from tbtui.config import RunConfig
from tbtui.engines.grpo.failures import one_cause
from tbtui.engines.grpo.forks import TRAINED, ForkRequest, Forks
from tbtui.engines.grpo.metrics import useful_groups
from tbtui.engines.grpo.origins import ForkError
from tbtui.engines.grpo.outcome_policy import outcome_policy
from tbtui.engines.grpo.rollouts import Rollout, derive_seed
from tbtui.journal.database import JournalError
from tbtui.journal.events import Noted
from tbtui.journal.writer import JournalWriter


class ForkGroups:
    """Forks trials of a step, in groups of their own."""

    def __init__(
        self, forks: Forks, config: Callable[[], RunConfig], journal: JournalWriter
    ) -> None:
        """`config`: the settings in force now."""
        self._forks = forks
        self._config = config
        self._journal = journal

    async def sampled(
        self, step: int, groups: Sequence[Sequence[Rollout]]
    ) -> list[Sequence[Rollout]]:
        """The groups of forks that this step is trained on beside `groups`, tried to their end.

        Raises whatever ends the run.
        """
        config = self._config()
        if config.group_from != "fork":
            return []
        rng = random.Random(derive_seed(config.seed, TRAINED, step))
        # Groups come in the order in which they end, which may be another one after a resume.
        ordered = sorted(groups, key=lambda group: group[0].plan.group)
        trunks = [
            [_trunk(rollout) for rollout in sorted(group, key=lambda r: r.plan.index)]
            for group in ordered
        ]
        places = fork_places(trunks, config.fork_groups_per_step, rng)
        temperatures = {r.trial: r.plan.temperature for group in groups for r in group}
        with one_cause():
            async with asyncio.TaskGroup() as tasks:
                started = [
                    tasks.create_task(self._group(place, temperatures[place.trial]))
                    for place in places
                ]
        return [group for task in started if (group := task.result())]

    async def _group(self, place: ForkPlace, temperature: float) -> Sequence[Rollout]:
        config = self._config()
        request = ForkRequest(
            place.trial, place.turn, config.group_size, temperature, search=TRAINED
        )
        try:
            rollouts = await self._forks.group(request)
        except (ForkError, JournalError) as error:
            text = f"{place.trial} is not forked at turn {place.turn}: {error}"
            self._journal.append(Noted(level="warning", text=text))
            return ()
        actions = outcome_policy(config.on_outcome)
        return [
            # Forks are judged as evaluations are; what is trained on follows on_outcome.
            r if actions[r.outcome] == "train" else dataclasses.replace(r, reward=None)
            for r in rollouts
        ]


def fork_metrics(groups: Sequence[ScoredGroup[Rollout]]) -> dict[str, float]:
    """What became of a step's groups of forks; empty where there are none."""
    rewards = [r.reward for group in groups for r in group.rollouts if r.reward is not None]
    if not groups:
        return {}
    metrics = {
        "forks/groups": float(len(groups)),
        "forks/useful_groups": float(useful_groups(groups)),
    }
    return metrics | ({"forks/reward": sum(rewards) / len(rewards)} if rewards else {})


def _trunk(rollout: Rollout) -> Trunk:
    plain = not any(call.summary or call.abandoned for call in rollout.calls)
    forkable = plain and not rollout.excluded and rollout.turns == len(rollout.calls)
    return Trunk(rollout.trial, rollout.reward, rollout.turns if forkable else 1)
