"""Demonstrations in the loop: kept as trials are given back, trained on once they are accepted."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import math
from typing import Any

import msgspec
import numpy as np
import pytest

from tbtui.algorithm.costs import Tokens
from tbtui.algorithm.segments import Call
from tbtui.chat import Message
from tbtui.engines.grpo.demonstrations import DemonstrationKeeper
from tbtui.engines.grpo.learning import LearningStep, ScoreJournal, recipe_of
from tbtui.engines.grpo.recorded import RecordedBatch
from tbtui.engines.grpo.rollouts import Rollout, TrialPlan
from tbtui.journal.commands import Typed
from tbtui.journal.demonstrations import Demonstration, Demonstrations
from tbtui.journal.events import (
    DemonstrationKept,
    DemonstrationsTrained,
    Noted,
    Outcome,
    PhaseSeconds,
    StepFinished,
    TrialFinished,
)
from tbtui.policies.base import Datum
from tbtui.rollout.messages import Demonstrated
from tbtui.sampling import MODEL_ITSELF

from .conftest import TASKS, Bench
from .fakes import RotePolicy
from .test_engine import by_index

TYPED = (Typed("text", "rm notes"), Typed("key", "Enter"))
ANSWER = '{"analysis": "a", "plan": "p", "commands": [{"keystrokes": "ls\\n", "duration": 0.5}]}'


def plan() -> TrialPlan:
    return TrialPlan(
        task=TASKS[0], group="s0001-x", index=1, step=1, purpose="train", sampling=MODEL_ITSELF,
        seed=7, group_draws=(0,),
    )  # fmt: skip


def shown(*messages: Message, trial: str = "s0001-x-1") -> Demonstrated:
    return Demonstrated(trial, 2, (*messages, Message("user", "and now?")), TYPED)


def keeper_of(bench: Bench, **settings: Any) -> Any:
    bench.engine(**settings)
    return bench.runner.demonstrations


async def test_in_the_small_agents_form_lines_are_a_block_and_single_keys_are_none(
    bench: Bench,
) -> None:
    bench.policy = RotePolicy()
    await kept(bench, shown(Message("user", "go")), agent="shell")
    (only,) = Demonstrations(bench.directory).all()
    assert only.text == "```bash\nrm notes\n```"
    whole = msgspec.structs.replace(only.answer, task_complete=True)
    assert only.reviewed("accepted", "bob", whole).text == "```bash\nrm notes\n```\nDONE"
    assert not bench.policy.requests  # its answers have no words to fill in
    pressed = dataclasses.replace(shown(trial="s0001-x-2"), typed=(Typed("key", "C-c"),))
    bench.runner.demonstrations.keep(plan(), pressed, (1,), "ada")
    assert len(Demonstrations(bench.directory).all()) == 1
    (noted,) = bench.events(Noted)
    assert noted.text == "s0001-x-2: no demonstration: agent=shell enters lines, and no single keys"


async def kept(bench: Bench, message: Demonstrated, **settings: Any) -> DemonstrationKeeper:
    keeper: DemonstrationKeeper = keeper_of(bench, **settings)
    keeper.keep(plan(), message, (1, 2, 3), "ada")
    await asyncio.gather(*keeper._filling)
    return keeper


def accept(bench: Bench) -> Demonstration:
    files = Demonstrations(bench.directory)
    (only,) = files.all()
    accepted = only.reviewed("accepted", "bob")
    files.write(accepted)
    return accepted


async def test_kept_in_the_agents_own_style(bench: Bench) -> None:
    bench.policy = RotePolicy(lambda _: json.dumps({"analysis": "I see.", "plan": "I go."}))
    keeper = await kept(bench, shown(Message("user", "go"), Message("assistant", ANSWER)))
    (only,) = Demonstrations(bench.directory).all()
    assert (only.status, only.actor, only.turn, only.prompt_ids) == ("pending", "ada", 2, (1, 2, 3))
    assert [(c.keystrokes, c.duration_sec) for c in only.answer.commands] == [("rm notes\n", 0.5)]
    # What the policy itself thinks there.
    assert (only.answer.analysis, only.answer.plan) == ("I see.", "I go.")
    assert only.compact
    (event,) = bench.events(DemonstrationKept)
    assert (event.demonstration, event.commands) == (only.id, 1)
    # A paid service has a price for being asked.
    spent = keeper._run.spending._costs.spent.tokens
    assert (spent.prompt, spent.calls) == (3, 1)
    assert spent.sampled > 0


async def test_what_the_policy_cannot_say_is_left_to_the_person(bench: Bench) -> None:
    await kept(bench, shown())
    (only,) = Demonstrations(bench.directory).all()
    assert (only.answer.analysis, only.answer.plan) == ("", "")
    assert only.answer.commands[0].duration_sec == 0.1


async def test_off_keeps_nothing(bench: Bench) -> None:
    await kept(bench, shown(), demos="off")
    assert not Demonstrations(bench.directory).all()
    assert not bench.events(DemonstrationKept)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("signal", [False, True])
async def test_an_accepted_one_is_part_of_each_step(
    bench: Bench, stream: bool, signal: bool
) -> None:
    """With the groups' own gradient and without any, before and after its division."""
    await kept(bench, shown())
    accepted = accept(bench)
    if signal:
        bench.script = by_index
    bench.policy = RotePolicy()
    await bench.engine(demos="train", demo_weight=0.5, max_steps=2, stream=stream).run()
    assert len(bench.policy.trained) == 2
    answer = bench.policy.renderer.spell(accepted.text)
    for data, optim in bench.policy.trained:
        wanted = (*accepted.prompt_ids, *answer)
        (shown_data,) = (each for each in data if tuple(each.tokens) == wanted)
        assert int(shown_data.mask.sum()) == len(answer)
        total = float(np.sum(shown_data.weights)) / optim.divide_by
        assert math.isclose(total, 0.5, rel_tol=1e-5)
        assert (len(data) > 1) == signal
    trained = bench.events(DemonstrationsTrained)
    assert [each.step for each in trained] == [1, 2]
    assert {each.demonstrations for each in trained} == {(accepted.id,)}
    (first, _) = bench.events(StepFinished)
    assert first.metrics["demos/count"] == 1


async def test_nothing_is_trained_that_nobody_accepted(bench: Bench) -> None:
    await kept(bench, shown())
    bench.script = by_index
    bench.policy = RotePolicy()
    await bench.engine(demos="train").run()
    assert not bench.events(DemonstrationsTrained)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"tokenizer": "another"}, "another tokenizer"),
        ({"task": TASKS[6].name}, "is held out"),
        ({"prompt_ids": (1,) * 20_000}, "longer than the context"),
    ],
)
async def test_what_cannot_be_used_is_left_out_and_said_once(
    bench: Bench, changes: dict[str, Any], why: str
) -> None:
    await kept(bench, shown())
    Demonstrations(bench.directory).write(msgspec.structs.replace(accept(bench), **changes))
    bench.script = by_index
    await bench.engine(demos="train", max_steps=2).run()
    assert not bench.events(DemonstrationsTrained)
    assert len([e for e in bench.events(Noted) if why in e.text]) == 1


async def test_a_file_that_somebody_broke_keeps_no_other_from_training(bench: Bench) -> None:
    await kept(bench, shown())
    accept(bench)
    (file,) = Demonstrations(bench.directory).directory.glob("*.json")
    file.with_name("broken-t1.json").write_text("{")
    bench.script = by_index
    await bench.engine(demos="train").run()
    assert bench.events(DemonstrationsTrained)
    assert [e for e in bench.events(Noted) if "no demonstration" in e.text]


async def test_what_trains_is_counted_and_paid_for(bench: Bench) -> None:
    await kept(bench, shown())
    accepted = accept(bench)
    bench.policy = RotePolicy()
    config = bench.engine(demos="train").config
    step = LearningStep(
        recipe_of(config, bench.policy.info), bench.policy, 1e-3, 1, ScoreJournal(bench.journal, 1)
    )
    shown_data = (await keeper_of(bench, demos="train").of_step(1, RecordedBatch())).data
    await step.finish(shown_data)
    answer = bench.policy.renderer.spell(accepted.text)
    assert step.tokens().trained == len(accepted.prompt_ids) + len(answer)


async def test_a_step_that_is_trained_again_is_trained_on_the_same(bench: Bench) -> None:
    """Whatever was accepted, and however the settings were changed, since."""
    await kept(bench, shown())
    first = accept(bench)
    files = Demonstrations(bench.directory)
    files.write(msgspec.structs.replace(first, trial="s0002-y-1"))
    keeper = keeper_of(bench, demos="train", demo_weight=3.0)
    before = DemonstrationsTrained(step=1, demonstrations=(first.id,), loss=1.0, weight=0.5)
    again = await keeper.of_step(1, RecordedBatch(demonstrations=before, finished=True))
    assert (again.ids, again.weight) == ((first.id,), 0.5)
    assert len((await keeper.of_step(1, RecordedBatch())).ids) == 2
    assert not (await keeper.of_step(1, RecordedBatch(finished=True))).ids
    gone = keeper_of(bench, demos="off")
    assert (await gone.of_step(1, RecordedBatch(demonstrations=before))).ids == (first.id,)


async def test_words_that_never_come_hold_nothing_up(bench: Bench) -> None:
    bench.policy.thinking = asyncio.Event()
    keeper = keeper_of(bench)
    keeper.keep(plan(), shown(), (1,), "ada")
    await asyncio.sleep(0)
    await asyncio.wait_for(keeper.close(), 5)
    assert len(Demonstrations(bench.directory).all()) == 1


def rollout(index: int, verdict: float, handed_back: tuple[bool, ...], **changes: Any) -> Rollout:
    """A rollout of calls that don't extend each other; each prompt begins with its index."""
    calls = tuple(
        Call(
            prompt_ids=(index, number, 9),
            completion_ids=(10 + number,) * 2,
            logprobs=np.full(2, -1.0, np.float32),
            handed_back=back,
        )
        for number, back in enumerate(handed_back)
    )
    fields: dict[str, Any] = {
        "plan": dataclasses.replace(plan(), index=index),
        "trial": f"s0001-x-{index}",
        "attempt": 1,
        "outcome": Outcome.HUMAN_TOUCHED if any(handed_back) else Outcome.FAILED,
        "reason": "",
        "reward": None if any(handed_back) else verdict,
        "verdict": verdict,
        "earned": verdict,
        "calls": calls,
        "turns": len(calls),
        "seconds": 1.0,
        "spent": PhaseSeconds(),
    }
    return Rollout(**{**fields, **changes})


async def learned(bench: Bench, *rollouts: Rollout, train: bool = True) -> list[Datum]:
    config = bench.engine(train_after_handback=train).config
    policy = RotePolicy()
    step = LearningStep(
        recipe_of(config, policy.info), policy, 1e-3, 1, ScoreJournal(bench.journal, 1)
    )
    await step.add(rollouts)
    await step.finish()
    return [datum for data, _ in policy.trained for datum in data]


@pytest.mark.parametrize(
    ("others", "advantage"), [((), 0.5), ((0.0,), 1.0), ((1.0,), 0.0), ((1.0, 0.0), 0.5)]
)
async def test_what_comes_after_a_person_is_measured_by_itself(
    bench: Bench, others: tuple[float, ...], advantage: float
) -> None:
    """Against the others that were given back, and none of the group's."""
    own = rollout(1, 1.0, (False, True, True))
    more = [rollout(5 + n, verdict, (True,)) for n, verdict in enumerate(others)]
    alone = [rollout(2, 0.0, (False,)), rollout(3, 0.0, (False,))]
    data = await learned(bench, own, *more, *alone)
    mine = [datum for datum in data if datum.tokens[0] == 1]
    assert len(mine) == (2 if advantage else 0)  # the calls after it, and not the one before
    for datum in mine:
        assert datum.tokens[1] in (1, 2)
        assert datum.advantages[datum.mask] == pytest.approx(advantage)


async def test_an_unclean_end_earns_no_more_there_than_elsewhere(bench: Bench) -> None:
    """Out of turns after it was given back: the verifier passes it, and it has earned nothing."""
    place, end = rollout(1, 1.0, (True,)), TrialFinished(
        trial="t", outcome=Outcome.HUMAN_TOUCHED, reason="", verdict=1.0, earned=0.0, reward=None,
        turns=1, seconds=PhaseSeconds(),
    )  # fmt: skip
    own = Rollout.of(place.plan, 1, end, place.calls, (), PhaseSeconds(), Tokens())
    (datum,) = await learned(bench, own)
    assert datum.advantages[datum.mask] == pytest.approx(-0.5)


async def test_left_out_unless_asked_for_and_where_somebody_excluded_it(bench: Bench) -> None:
    own = rollout(1, 1.0, (True,))
    alone = [rollout(2, 0.0, (False,)), rollout(3, 0.0, (False,))]
    assert not await learned(bench, own, *alone, train=False)
    assert not await learned(bench, dataclasses.replace(own, excluded=True), *alone)
    assert not await learned(bench, dataclasses.replace(own, verdict=None), *alone)
