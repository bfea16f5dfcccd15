"""Trials that people typed in: what becomes of them in groups and evaluations; bad commands."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any

import pytest

from tbtui.engines.grpo.plan import task_order
from tbtui.journal.commands import Command, Typed, to_arguments
from tbtui.journal.events import (
    CommandDone,
    EvalFinished,
    GroupScored,
    HumanTyped,
    Outcome,
    TrialFinished,
    TrialGivenBack,
    TrialTakenOver,
)
from tbtui.rollout.messages import GivenBack, KeysTyped, PauseEntered, TakenOver, TrialSpec
from tbtui.vocabulary import CommandVerb

from .conftest import TASKS, Bench, until
from .fakes import FakePool, facts

FIRST = "s0001-" + next(task_order(TASKS[:6], 0)).name


@pytest.mark.parametrize("action", ["mask", "train"])
async def test_a_touched_trial_is_masked_unless_asked_for(bench: Bench, action: str) -> None:
    def script(pool: FakePool, spec: TrialSpec) -> object:
        touched = spec.trial.endswith("-1")
        return pool.end(
            spec, dataclasses.replace(facts(1.0 if touched else 0.0), human_touched=touched)
        )

    bench.script = script
    await bench.engine(group_size=3, on_outcome={"human_touched": action}).run()
    for group in bench.events(GroupScored):
        mine = group.trials[next(name for name in group.trials if name.endswith("-1"))]
        if action == "mask":
            assert (mine.reward, mine.advantage, group.baseline) == (None, None, 0.0)
        else:
            assert (mine.reward, group.baseline) == (1.0, pytest.approx(1 / 3))
    touched = [e for e in bench.events(TrialFinished) if e.outcome is Outcome.HUMAN_TOUCHED]
    assert {event.verdict for event in touched} == {1.0}


async def test_a_person_solves_nothing_of_an_evaluation(bench: Bench) -> None:
    touched = dataclasses.replace(facts(1.0), human_touched=True)
    bench.script = lambda pool, spec: pool.end(spec, touched)
    await bench.engine(max_steps=0).run()
    (evaluation,) = bench.events(EvalFinished)
    assert (evaluation.scored, evaluation.pass_rate) == (0, None)


async def test_a_trial_is_one_persons_at_a_time(bench: Bench) -> None:
    bench.script = lambda pool, spec: spec.trial.startswith("s") or pool.end(spec, facts())
    engine = bench.engine(eval_every=0)
    running = asyncio.create_task(engine.run())
    trial = f"{FIRST}-1"
    try:
        await until(lambda: trial in {spec.trial for spec in bench.pool.started})

        def asked(verb: CommandVerb, actor: str, **arguments: Any) -> CommandDone | None:
            command = Command(verb, trial, actor, arguments=arguments)
            engine.submit(command)
            done = [e for e in bench.events(CommandDone) if e.command == command.id]
            return done[0] if done else None

        keys = to_arguments([Typed("text", "ls")])
        refused = asked("give_back", "ada")
        assert refused is not None
        assert "nobody has taken" in refused.result
        assert asked("take_over", "ada") is None  # it waits for its turn's end
        for verb, actor, why in (
            ("type", "ada", "it waits for the end of its turn"),
            ("take_over", "bob", "ada types in"),
            ("type", "bob", "ada types in"),
            ("freeze", "bob", "ada types in"),
            ("resume", "bob", "ada types in"),
        ):
            refused = asked(verb, actor, **keys)
            assert refused is not None
            assert (refused.ok, why in refused.result) == (False, True)
        bench.runner.on_message(1, PauseEntered(trial))
        bench.runner.on_message(1, TakenOver(trial))
        assert asked("type", "ada", **keys) is None
        assert asked("type", "ada", **keys) is None
        first, last = bench.pool.typed
        bench.runner.on_message(1, KeysTyped(trial, first.command, first.parts))
        assert asked("give_back", "ada", stay=True) is None
        bench.runner.on_message(1, GivenBack(trial))
        # As where a trial is ended while a key is being sent.
        bench.runner.on_message(1, KeysTyped(trial, last.command, last.parts))
        assert [done.ok for done in bench.events(CommandDone)][-4:] == [True] * 4
        assert [event.actor for event in bench.events(TrialTakenOver)] == ["ada"]
        typed = [(event.actor, event.parts) for event in bench.events(HumanTyped)]
        assert typed == [("ada", (Typed("text", "ls"),))] * 2
        assert [event.actor for event in bench.events(TrialGivenBack)] == ["ada"]
        assert bench.pool.controls[-2:] == [(trial, "take_over"), (trial, "give_back")]
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
