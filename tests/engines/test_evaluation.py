"""What an evaluation reports, and that it leaves training alone."""

from __future__ import annotations

import zlib
from pathlib import Path

import pytest

from tbtui.engines.grpo.evaluation import summarize
from tbtui.engines.grpo.plan import plan_groups
from tbtui.engines.grpo.rollouts import Rollout
from tbtui.journal.events import (
    EvalFinished,
    Outcome,
    PhaseSeconds,
    TrialFinished,
    TrialQueued,
    TurnSampled,
)
from tbtui.journal.rundir import RunDirectory
from tbtui.journal.writer import JournalWriter
from tbtui.policies.local.client import LocalPolicy
from tbtui.rollout.messages import CompletionFailed, TrialDone, TrialSpec

from .conftest import TASKS, Bench, task
from .fakes import FakePool, facts


def rollouts(rewards: dict[str, list[float | None]]) -> list[Rollout]:
    groups = plan_groups(
        [task(name) for name in rewards],
        step=4,
        size=max(map(len, rewards.values())),
        purpose="eval",
        temperature=0.7,
        seed=0,
    )
    return [
        Rollout(
            plan=plan,
            trial=plan.trial_id(1),
            attempt=1,
            outcome=Outcome.FAILED if reward is not None else Outcome.SANDBOX_LOST,
            reason="",
            reward=reward,
            calls=(),
            turns=1,
            seconds=1.0,
            spent=PhaseSeconds(),
        )
        for group in groups
        for plan, reward in zip(group.trials, rewards[group.task.name], strict=False)
    ]


def test_an_evaluation_by_task_kind_and_k() -> None:
    event = summarize(
        rollouts(
            {
                "copy-1": [1.0, 0.0, 0.0, 0.5],
                "copy-2": [1.0, 1.0, 1.0, 1.0],
                "move-1": [0.0, None, 0.0, 0.0],
                "move-2": [None, None, None, None],
            }
        ),
        step=4,
        weights_version=3,
        temperature=0.7,
    )
    assert (event.step, event.weights_version, event.temperature) == (4, 3, 0.7)
    assert event.by_task == {"copy-1": 0.25, "copy-2": 1.0, "move-1": 0.0}
    assert event.by_kind == {"copy": 0.625, "move": 0.0}
    assert event.pass_rate == pytest.approx((0.25 + 1.0 + 0.0) / 3)
    assert (event.scored, event.unscored, event.unscored_tasks) == (11, 5, 1)
    assert event.mean_reward == pytest.approx(5.5 / 11)
    # A task with three scored trials has no pass@4.
    assert list(event.pass_at) == [1, 2, 3]
    assert event.pass_at[1].value == event.pass_rate
    assert event.pass_at[2].value == pytest.approx((0.5 + 1.0 + 0.0) / 3)
    assert event.pass_at[3].value == pytest.approx((0.75 + 1.0 + 0.0) / 3)
    for estimate in event.pass_at.values():
        assert 0 <= estimate.low <= estimate.value <= estimate.high <= 1
    assert EvalFinished.model_validate_json(event.model_dump_json()) == event


def test_without_a_scored_trial_there_is_no_rate() -> None:
    event = summarize(rollouts({"copy-1": [None]}), 0, 0, 1.0)
    assert (event.pass_rate, event.mean_reward, event.pass_at) == (None, None, {})
    assert (event.by_task, event.by_kind, event.unscored_tasks) == ({}, {}, 1)


def test_evaluations_of_a_run_draw_from_the_same_streams() -> None:
    def seeds(step: int, purpose: str, seed: int = 5) -> list[int]:
        groups = plan_groups(
            TASKS,
            step=step,
            size=2,
            purpose=purpose,  # type: ignore[arg-type]
            temperature=1.0,
            seed=seed,
        )
        return [plan.seed for group in groups for plan in group.trials]

    assert seeds(0, "eval") == seeds(20, "eval")
    assert not set(seeds(0, "eval")) & set(seeds(20, "train"))
    assert seeds(0, "eval") != seeds(0, "eval", seed=6)


# Training state


def graded(pool: FakePool, spec: TrialSpec) -> object:
    """One turn, whose verdict depends on nothing but what the policy wrote."""

    async def play() -> None:
        answer = await pool.ask(spec, 1, (("user", f"Do {spec.task_dir.name}."),))
        assert not isinstance(answer, CompletionFailed)
        verdict = float(zlib.crc32(answer.text.encode()) % 2)
        pool.runner.on_message(1, TrialDone(spec.trial, facts(verdict)))

    pool._spawn(play())
    return True


async def train(where: Path, heldout: int, **settings: object) -> dict[str, list[object]]:
    """Rewards, tokens and weights versions of every training trial."""
    directory = RunDirectory.create(where)
    policy = LocalPolicy(threads=1)
    await policy.start()
    try:
        with JournalWriter(directory) as journal:
            bench = Bench(directory, journal, policy, graded)  # type: ignore[arg-type]
            bench.heldout = heldout
            await bench.engine(max_steps=3, max_tokens=12, seed=3, **settings).run()
            training = [e.trial for e in bench.events(TrialQueued) if e.purpose == "train"]
            assert len(bench.events(EvalFinished)) == (4 if heldout else 0)
            told: dict[str, list[object]] = {trial: [] for trial in training}
            for sampled in bench.events(TurnSampled):
                if sampled.trial in told:
                    told[sampled.trial] += [sampled.text, sampled.mean_logprob]
            for ended in bench.events(TrialFinished):
                if ended.trial in told:
                    told[ended.trial].append(ended.reward)
            return told
    finally:
        await policy.close()


async def test_training_is_the_same_with_and_without_evaluations(tmp_path: Path) -> None:
    with_them = await train(tmp_path / "with", 2, eval_every=1, eval_group_size=3)
    without = await train(tmp_path / "without", 0)
    assert len(with_them) == 3 * 2 * 2
    assert with_them == without
    rewards = {told[-1] for told in without.values()}
    assert rewards == {0.0, 1.0}  # there was something to learn
