"""The shares of a step's gradient that the journal's view knows are those of the real loss."""

from __future__ import annotations

import random

import msgspec
import numpy as np
import pytest

from tbtui.algorithm.advantages import advantages
from tbtui.algorithm.segments import Call, merge
from tbtui.algorithm.step import Normalizer
from tbtui.algorithm.whatif import RecordedTrial, StepSettings, step_effect
from tbtui.journal.events import AnyEvent, StepStarted, TrialScore
from tbtui.view.review import gradient_share, group_share
from tests.events import group_scored

from .story import folded, queued, started

GROUPS = {"g1": (1.0, 0.0, 0.5, None, 1.0), "g2": (0.0, 0.0, 1.0), "g3": (1.0, 1.0)}


def trial(rng: random.Random, reward: float | None) -> RecordedTrial:
    """A few calls; some rewrite the history, and so begin a segment of their own."""
    calls: list[Call] = []
    history: tuple[int, ...] = (1, 2)
    for _ in range(rng.randrange(1, 4)):
        if rng.random() < 0.5:
            history = (9, rng.randrange(100, 200))
        completion = tuple(rng.randrange(3, 9) for _ in range(rng.randrange(1, 30)))
        logprobs = np.full(len(completion), -0.7, np.float32)
        calls.append(Call(history, completion, logprobs, 0, False))
        history = (*history, *completion, 2)
    return RecordedTrial(reward, tuple(calls), tuple(call.logprobs for call in calls))


@pytest.mark.parametrize("normalizer", ["token", "sequence", "trial", "sum"])
def test_shares_are_those_of_the_loss(normalizer: Normalizer) -> None:
    rng = random.Random(7)
    groups = {name: [trial(rng, reward) for reward in GROUPS[name]] for name in GROUPS}
    results = advantages(list(GROUPS.values()), "centred", 2)
    settings = StepSettings(normalizer=normalizer)
    effect = step_effect(list(groups.values()), results, settings)

    run = started()
    events: list[AnyEvent] = [
        msgspec.structs.replace(run, settings={**run.settings, "loss_normalizer": normalizer}),
        StepStarted(step=1, groups=dict.fromkeys(groups, "copy-01")),
    ]
    for name, members in groups.items():
        events += [queued(f"{name}-{n}", group=name) for n in range(len(members))]
    for (name, members), result in zip(groups.items(), results, strict=True):
        scores = {}
        for number, (member, advantage) in enumerate(zip(members, result.advantages, strict=True)):
            segments = merge(member.calls)
            scores[f"{name}-{number}"] = TrialScore(
                reward=member.reward,
                advantage=advantage,
                tokens=sum(each.action_tokens for each in segments),
                segments=sum(each.action_tokens > 0 for each in segments),
            )
        figures = {"disposition": result.disposition, "baseline": result.baseline}
        events.append(group_scored(name, scores, **figures))
    state = folded(*events)

    for (name, members), effects in zip(groups.items(), effect.groups, strict=True):
        for number in range(len(members)):
            shown = gradient_share(state.trials[f"{name}-{number}"], state)
            if members[number].reward is None:
                assert shown is None
            else:
                assert shown == pytest.approx(effects[number].share, abs=1e-5)
        whole = sum(each.share for each in effects)
        assert group_share(name, state) == pytest.approx(whole, abs=1e-5)
