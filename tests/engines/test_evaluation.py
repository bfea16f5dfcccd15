"""What an evaluation reports, and that it leaves training alone."""

from __future__ import annotations

import dataclasses
import shutil
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from tbtui import launch
from tbtui.chat import Message
from tbtui.commands.evaluate import evaluate
from tbtui.config import ConfigError, RunConfig, to_toml
from tbtui.config.trust import remember
from tbtui.console.texts import eval_line
from tbtui.engines.grpo.checkpoint_state import TrainingProgress, fixed_settings
from tbtui.engines.grpo.checkpoints import CheckpointKeeper
from tbtui.engines.grpo.config_checks import grpo_problems
from tbtui.engines.grpo.metrics import summarize
from tbtui.engines.grpo.plan import plan_groups
from tbtui.engines.grpo.rollouts import Rollout
from tbtui.engines.request import request_run
from tbtui.journal.events import (
    EvalFinished,
    Outcome,
    PhaseSeconds,
    TrialFinished,
    TrialQueued,
    TurnSampled,
    decode,
    encode,
    fields_of,
)
from tbtui.journal.rundir import RunDirectory
from tbtui.journal.writer import JournalWriter
from tbtui.policies.local.client import LocalPolicy
from tbtui.rollout.messages import CompletionFailed, TrialDone, TrialSpec
from tbtui.sampling import SamplingParams
from tbtui.view.sentences import summary_line
from tbtui.vocabulary import Purpose

from .conftest import TASKS, Bench, task
from .fakes import FakePool, RotePolicy, facts


def rollouts(rewards: dict[str, list[float | None]]) -> list[Rollout]:
    groups = plan_groups(
        [task(name) for name in rewards],
        step=4,
        size=max(map(len, rewards.values())),
        purpose="eval",
        sampling=SamplingParams(0.7),
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
    assert event.trials_by_kind == {"copy": 8, "move": 3}
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
    assert decode("eval_finished", encode(event)) == event


def test_harbors_rate_is_said_where_an_end_that_was_not_clean_passed() -> None:
    tried = rollouts({"copy-1": [1.0, 0.0], "copy-2": [0.0, 0.0]})
    clean = [dataclasses.replace(each, verdict=each.reward) for each in tried]
    event = summarize(clean, 0, 0, 1.0)
    assert (event.pass_rate, event.harbor_pass_rate) == (0.25, 0.25)
    assert "Harbor" not in eval_line(event)
    late = dataclasses.replace(clean[-1], outcome=Outcome.AGENT_TIMEOUT, verdict=1.0)
    event = summarize([*clean[:-1], late], 0, 0, 1.0)
    assert (event.pass_rate, event.harbor_pass_rate) == (0.25, 0.5)
    said = "; 0.50 as Harbor counts, by verdicts alone"
    assert said in eval_line(event)
    assert summary_line(0, event, event) == f"held-out pass rate 0.25{said}"
    assert fields_of(event)["harbor_pass_rate"] == 0.5
    alone = summarize([late], 0, 0, 1.0)
    assert "one trial, reward 0; 1.00 as Harbor counts" in eval_line(alone)


def test_an_evaluation_by_data_set_where_there_are_several() -> None:
    tried = rollouts({"copy-1": [1.0, 0.0], "copy-2": [1.0, 1.0], "move-1": [0.0, 0.0]})
    assert summarize(tried, 0, 0, 1.0).by_dataset == {}

    def moved(rollout: Rollout) -> Rollout:
        plan = rollout.plan
        other = dataclasses.replace(plan.task, dataset="other")
        return dataclasses.replace(rollout, plan=dataclasses.replace(plan, task=other))

    tried = [moved(each) if each.plan.task.name == "copy-2" else each for each in tried]
    event = summarize(tried, 0, 0, 1.0)
    assert event.by_dataset == {"other": 1.0, tried[0].plan.task.dataset: 0.25}


def test_without_a_scored_trial_there_is_no_rate() -> None:
    event = summarize(rollouts({"copy-1": [None]}), 0, 0, 1.0)
    assert (event.pass_rate, event.mean_reward, event.pass_at) == (None, None, {})
    assert (event.by_task, event.by_kind, event.unscored_tasks) == ({}, {}, 1)


def test_evaluations_of_a_run_draw_from_the_same_streams() -> None:
    def seeds(step: int, purpose: Purpose, seed: int = 5) -> list[int]:
        groups = plan_groups(
            TASKS,
            step=step,
            size=2,
            purpose=purpose,
            sampling=SamplingParams(),
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
        answer = await pool.ask(spec, 1, (Message("user", f"Do {spec.task_dir.name}."),))
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
            await bench.engine(max_steps=2, max_tokens=12, seed=3, **settings).run()
            training = [e.trial for e in bench.events(TrialQueued) if e.purpose == "train"]
            assert len(bench.events(EvalFinished)) == (3 if heldout else 0)
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
    assert len(with_them) == 2 * 2 * 2
    assert with_them.keys() == without.keys()
    for trial, told in with_them.items():
        # Which requests meet in one batch of the policy's is chance, and shows in the last digit of
        # a float32.
        same = [pytest.approx(e, abs=1e-5) if isinstance(e, float) else e for e in without[trial]]
        assert told == same
    rewards = {told[-1] for told in without.values()}
    assert rewards == {0.0, 1.0}  # there was something to learn


# Which weights


class Asked(Exception):
    """Stands for the run that an evaluation is."""

    def __init__(self, config: RunConfig) -> None:
        self.config = config


@pytest.fixture
def evaluated(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., RunConfig]:
    """The settings of the run that `tbtui eval` starts."""

    def launched(config: RunConfig, view: launch.View) -> int:
        raise Asked(config)

    monkeypatch.setattr(launch, "launch", launched)

    def evaluated(*arguments: str) -> RunConfig:
        with pytest.raises(Asked) as asked:
            evaluate([*arguments, f"logs_dir={tmp_path}"], use_latest=False, view="lines")
        return asked.value.config

    return evaluated


async def served_checkpoint(directory: RunDirectory) -> Path:
    """The checkpoint of a run that trained a model behind a server."""
    config = RunConfig(
        policy="tinker",
        model_name="Qwen/Qwen3-8B",
        tinker_base_url="http://127.0.0.1:9",
        lora_rank=8,
        wandb_project="w",
    )
    directory.config.write_text(to_toml(config))
    remember(config, directory.path)
    policy = RotePolicy()
    policy.info = dataclasses.replace(policy.info, name="tinker", model_name="Qwen/Qwen3-8B")
    with JournalWriter(directory) as journal:
        keeper = CheckpointKeeper(journal, policy, 1, fixed_settings(config))
        progress = TrainingProgress(step=3, weights_version=3)
        await keeper.save(progress)
        await keeper.evaluated(progress, 0.5)
    return directory.checkpoints / "step-000003"


async def test_a_checkpoint_on_a_server_is_evaluated_there(
    tmp_path: Path, evaluated: Callable[..., RunConfig]
) -> None:
    path = await served_checkpoint(RunDirectory.create(tmp_path / "r"))
    elsewhere = tmp_path / "copy"
    shutil.copytree(path, elsewhere)
    for target, checkpoint in (("r", path), (str(path), path), (str(elsewhere), elsewhere)):
        config = evaluated(target, "eval_group_size=2")
        assert (config.policy, config.model_name) == ("tinker", "Qwen/Qwen3-8B")
        assert (config.tinker_base_url, config.lora_rank) == ("http://127.0.0.1:9", 8)
        assert config.checkpoint == str(checkpoint)
        assert (config.step_limit, config.eval_group_size) == (0, 2)
        assert config.wandb_project is None
        assert not [p for p in grpo_problems(config) if p.level == "error"]
    # What is given wins.
    assert evaluated(str(elsewhere), "tinker_base_url=http://b").tinker_base_url == "http://b"

    on_server = evaluated("tinker://run/weights/a", "model_name=Qwen/Qwen3-8B")
    assert (on_server.policy, on_server.checkpoint) == ("tinker", "tinker://run/weights/a")
    assert not grpo_problems(on_server)


def test_what_is_on_a_server_needs_its_policy(tmp_path: Path) -> None:
    config = RunConfig(checkpoint="tinker://run/weights/a", logs_dir=tmp_path)
    with pytest.raises(ConfigError, match="on a Tinker server; give policy=tinker"):
        request_run(config)


async def test_an_evaluation_only_samples(bench: Bench) -> None:
    await bench.engine(max_steps=0).run()
    assert bench.events(EvalFinished)
    assert not bench.policy.calls
    assert bench.policy.published == 0
