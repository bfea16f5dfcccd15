"""That every token that was read, written or trained is counted once, whatever became of it."""

from __future__ import annotations

import asyncio
import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest

from tbtui.algorithm.costs import Costs, Spent, Tokens
from tbtui.config import parse_settings
from tbtui.console.lines import HumanLines
from tbtui.engines.prices import AS_OF, expected_cost, price_list
from tbtui.journal.commands import Command
from tbtui.journal.events import (
    CheckpointSaved,
    Entry,
    EvalFinished,
    Noted,
    StepFinished,
    TrialFinished,
    TrialRetried,
    TurnSampled,
)
from tbtui.policies.base import Sample, SampleRequest
from tbtui.rollout.messages import TrialSpec
from tests.events import entries_of
from tests.waiting import until

from .conftest import Bench
from .fakes import FakePool, RotePolicy, facts
from .test_engine import by_index
from .test_resume import uninterrupted

PRICES = {"prompt": 2.0, "sampled": 5.0, "trained": 3.0, "cached": 0.5}


class CachingPolicy(RotePolicy):
    """Has all of a prompt but its last ten tokens in its cache."""

    async def sample(self, request: SampleRequest) -> Sample:
        sample = await super().sample(request)
        return dataclasses.replace(sample, cached_tokens=max(0, len(request.prompt_ids) - 10))


def told(turns: list[TurnSampled], kind: str) -> tuple[int, int, int]:
    """Prompt, cached and sampled tokens of a kind of trials, by the journal."""
    mine = [turn for turn in turns if turn.trial.startswith(kind)]
    return (
        sum(turn.prompt_tokens for turn in mine),
        sum(turn.cached_tokens or 0 for turn in mine),
        sum(turn.completion_tokens for turn in mine),
    )


async def test_steps_and_evaluations_by_kind(bench: Bench) -> None:
    bench.policy, bench.script = CachingPolicy(), by_index
    await bench.engine(max_steps=1, kl_penalty_coef=0.1, importance_cap=2.0, prices=PRICES).run()
    turns = bench.events(TurnSampled)
    (step,) = (event.metrics for event in bench.events(StepFinished))
    before, after = (event.metrics for event in bench.events(EvalFinished))

    prompt, cached, sampled = told(turns, "s0001")
    assert cached > 0
    lengths = sum(len(datum.tokens) for data, _ in bench.policy.trained for datum in data)
    counts = {
        "tokens/prompt": prompt,
        "tokens/cached": cached,
        "tokens/sampled": sampled,
        "tokens/in_sequences": lengths,
        "tokens/scored": 2 * lengths,  # of the reference, and of the trainer
    }
    assert {name: step[name] for name in counts} == counts
    usd = 2 * (prompt - cached) + 0.5 * cached + 5 * sampled + 3 * lengths + 2 * 2 * lengths
    assert step["cost/step_usd"] == pytest.approx(usd / 1e6)

    for kind, metrics in (("e0000", before), ("e0001", after)):
        prompt, cached, sampled = told(turns, kind)
        assert metrics["tokens/eval/prompt"] == prompt
        assert metrics["tokens/eval/cached"] == cached
        usd = 2 * (prompt - cached) + 0.5 * cached + 5 * sampled
        assert metrics["cost/eval_usd"] == pytest.approx(usd / 1e6)
    assert after["cost/total_usd"] == pytest.approx(
        before["cost/eval_usd"] + step["cost/step_usd"] + after["cost/eval_usd"]
    )
    assert after["tokens/total/prompt"] == sum(turn.prompt_tokens for turn in turns)


async def test_attempts_that_were_given_up_are_billed_too(bench: Bench) -> None:
    def script(pool: FakePool, spec: TrialSpec) -> object:
        if spec.trial.endswith("-2"):
            return pool.end(spec, facts(None, "provider_error", "silence"))
        return by_index(pool, spec)

    bench.script, bench.heldout = script, 0
    await bench.engine(max_retries=2, oversample=1).run()
    assert bench.events(TrialRetried)
    (step,) = (event.metrics for event in bench.events(StepFinished))
    turns = bench.events(TurnSampled)
    assert step["tokens/prompt"] == sum(turn.prompt_tokens for turn in turns)
    assert step["tokens/total/sampled"] == sum(turn.completion_tokens for turn in turns)
    assert "tokens/cached" not in step


async def test_an_attempt_that_a_person_wanted_again_is_billed_twice(bench: Bench) -> None:
    gate = asyncio.Event()

    def script(pool: FakePool, spec: TrialSpec) -> object:
        if not spec.trial.endswith("-2"):
            return by_index(pool, spec)
        return pool.later(gate, lambda pool, spec: pool.end(spec, facts(0.0)), spec)

    bench.script, bench.heldout = script, 0
    async with bench.running() as engine:
        await until(lambda: bench.events(TrialFinished))
        over = bench.events(TrialFinished)[0].trial
        engine.queue.submit(Command("retry", over))
        await until(lambda: bench.events(TrialRetried))
        gate.set()
    (step,) = (event.metrics for event in bench.events(StepFinished))
    assert step["tokens/prompt"] == sum(turn.prompt_tokens for turn in bench.events(TurnSampled))


@pytest.mark.parametrize("save_every", [1, 0])
async def test_a_resumed_run_has_counted_everything(tmp_path: Path, save_every: int) -> None:
    settings: dict[str, Any] = {
        "max_steps": 2,
        "prices": PRICES,
        "save_every": save_every,
        "eval_every": 1,
    }
    whole, _ = await uninterrupted(tmp_path, **settings)
    last = whole.events(EvalFinished)[-1].metrics
    assert last["tokens/total/prompt"] == sum(t.prompt_tokens for t in whole.events(TurnSampled))
    for cut in range(10, whole.length(), 23):
        copy = whole.cut(tmp_path / f"cut-{cut}", cut)
        await copy.resume()
        metrics = copy.events(EvalFinished)[-1].metrics
        # What was under way is sampled again, which is paid twice.
        turns = copy.events(TurnSampled)
        assert metrics["tokens/total/prompt"] == sum(t.prompt_tokens for t in turns), cut
        assert metrics["tokens/total/trained"] >= last["tokens/total/trained"]
        assert metrics["cost/total_usd"] >= last["cost/total_usd"] - 1e-12


async def test_what_an_evaluation_costs_counts_before_the_first_step(bench: Bench) -> None:
    bench.script = by_index
    summary = await bench.engine(max_steps=9, prices=PRICES, max_cost=1e-9).run()
    assert "stopped after" in summary and "max_cost is" in summary
    assert len(bench.events(EvalFinished)) == 1
    assert not bench.events(StepFinished)


async def test_the_step_that_reaches_the_limit_is_saved(bench: Bench) -> None:
    bench.script, bench.heldout = by_index, 0
    engine = bench.engine(
        max_steps=9, prices=PRICES, max_cost=1e-9, save_every=0, max_steps_off_policy=1
    )
    summary = await engine.run()
    assert len(bench.events(StepFinished)) == 1
    assert summary.startswith("1 step")
    assert "stopped after" in summary
    assert [event.step for event in bench.events(CheckpointSaved)] == [1]


async def test_the_first_step_says_how_fast_the_run_is(bench: Bench) -> None:
    bench.script = by_index
    await bench.engine(max_steps=3, eval_every=2).run()
    steps = bench.events(StepFinished)
    for step in steps:
        metrics = step.metrics
        expected = metrics["tokens/sampled"] / metrics["time/sampling"]
        assert metrics["perf/sampling_tokens_per_sec"] == pytest.approx(expected)
        assert metrics["perf/training_tokens_per_sec"] > 0
    lines = HumanLines()
    said = [line for entry in entries_of(bench.directory) for line in lines.lines(entry)]
    (speed,) = [line for line in said if "speed: " in line]
    text = re.sub(r"^info +", "", speed)
    assert re.fullmatch(r"speed: [\d,]+ tokens/s sampling, [\d,]+ training", text), speed
    # Journals of earlier versions say it in a note besides.
    assert not list(lines.lines(Entry(10**6, 0.0, Noted(level="info", text=text))))


def test_prices_are_public_ones_where_they_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TINKER_BASE_URL", raising=False)
    qwen = ["policy=tinker", "model_name=Qwen/Qwen3-8B", "context_limit=32768"]
    found = price_list(parse_settings(qwen))
    assert (found.prices["prompt"], found.prices["sampled"], found.prices["trained"]) == (
        0.195,
        0.60,
        0.44,
    )
    assert AS_OF in found.source
    line = expected_cost(parse_settings(qwen), None)
    assert line is not None and line.startswith("at most $7.63 a step, $305.")
    # Another model, another server, prices of one's own.
    other = expected_cost(parse_settings(["policy=tinker", "model_name=a/b"]), None)
    assert other is not None and "its cost is unknown" in other
    assert not price_list(parse_settings([*qwen, "tinker_base_url=http://a"])).prices
    monkeypatch.setenv("TINKER_BASE_URL", "http://a")
    assert not price_list(parse_settings(qwen)).prices
    own = [*qwen, "prices.prompt=1", "prices.sampled=1", "prices.trained=1"]
    assert price_list(parse_settings(own)).prices["trained"] == 1
    assert expected_cost(parse_settings([]), 1024) is None


def test_storage_counts_where_it_has_a_price() -> None:
    costs = Costs(Spent(), {**PRICES, "storage": 0.1})
    costs.stored(2_000_000_000, 720 * 3600)
    assert costs.spent.usd == costs.spent.storage_usd == pytest.approx(0.2)
    metrics = costs.evaluation(Tokens())
    assert metrics["cost/total/storage_usd"] == pytest.approx(0.2)
    assert Spent.after(metrics).storage_usd == pytest.approx(0.2)
    free = Costs(Spent(), PRICES)
    free.stored(2_000_000_000, 3600)
    assert free.spent.usd == 0
