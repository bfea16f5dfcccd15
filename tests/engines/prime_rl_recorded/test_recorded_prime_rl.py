"""A run that Prime-RL's own orchestrator wrote, read into a journal of ours.

`run.tar.xz` is what `python -m tests.by_hand.prime_rl_cpu --record FILE` packed: prime-rl 559b447
and verifiers a60a606 with our plugin, vLLM 0.26 on the CPU, and a stand-in trainer.
"""

from __future__ import annotations

import asyncio
import json
import tarfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tbtui.engines.prime_rl.watch.run import WatchOptions, prepare_watch, watch
from tbtui.journal.commands import RunEnd
from tbtui.journal.events import (
    AnyEvent,
    CheckpointSaved,
    EvalFinished,
    GroupScored,
    Noted,
    StepFinished,
    TrialFinished,
    TrialQueued,
)
from tbtui.journal.reader import JournalReader
from tbtui.journal.rundir import RunDirectory
from tbtui.policies.base import Datum
from tbtui.policies.local.client import LocalPolicy
from tbtui.view.fold import Fold
from tbtui.view.state import RunState

ARCHIVE = Path(__file__).parent / "run.tar.xz"
STEPS = 4
GROUPS, GROUP_SIZE = 2, 4


class Recorded:
    """The files, and what our journal says of them."""

    def __init__(self, directory: Path) -> None:
        with tarfile.open(ARCHIVE) as archive:
            archive.extractall(directory, filter="data")
        self.trials_dir = directory / "run"
        self.source = self.trials_dir / "prime_rl" / "cpu"
        options = WatchOptions(once=True, trials_dir=self.trials_dir)
        prepared = prepare_watch(self.source, directory / "journal", options)
        self.end: RunEnd = asyncio.run(watch(prepared))
        self.reader = JournalReader(RunDirectory(directory / "journal"))
        self.entries = self.reader.read(0, limit=100_000)

    def of[T: AnyEvent](self, kind: type[T]) -> list[T]:
        return [entry.event for entry in self.entries if isinstance(entry.event, kind)]

    def state(self) -> RunState:
        fold = Fold()
        fold.apply_all(self.entries)
        return fold.state

    def traces(self, step: int, kind: str, subset: str) -> list[dict[str, Any]]:
        """Prime-RL's own records."""
        path = self.source / "rollouts" / f"step_{step}" / kind / subset / "traces.jsonl"
        episodes = [json.loads(line) for line in path.read_text().splitlines()]
        return [trace for episode in episodes for trace in episode["traces"]]

    def rows(self) -> list[dict[str, Any]]:
        lines = (self.source / "metrics.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recorded]:
    run = Recorded(tmp_path_factory.mktemp("recorded"))
    yield run
    run.reader.close()


def name_of(trace: dict[str, Any]) -> str:
    return str(trace["info"]["tbtui"]["trial"])


def test_the_run_is_all_there(recorded: Recorded) -> None:
    assert (recorded.end.status, recorded.end.reason) == ("finished", f"{STEPS} steps")
    state = recorded.state()
    assert (state.run, state.policy, state.max_steps) == ("cpu", "prime-rl", STEPS)
    assert [step.step for step in state.steps] == list(range(1, STEPS + 1))
    assert state.weights_version == STEPS
    assert [saved.step for saved in recorded.of(CheckpointSaved)] == [2, STEPS]


def test_each_rollout_is_one_trial_with_its_own_reward(recorded: Recorded) -> None:
    expected = {
        name_of(trace): trace["info"]["tbtui"]["reward"]
        for step in range(1, STEPS + 2)
        for kind in ("train", "eval")
        if (recorded.source / "rollouts" / f"step_{step}" / kind / "all").exists()
        for trace in recorded.traces(step, kind, "all")
        if trace["ok"]
    }
    finished = Counter(event.trial for event in recorded.of(TrialFinished))
    assert set(finished.values()) == {1}
    rewards = {event.trial: event.reward for event in recorded.of(TrialFinished)}
    assert {name: rewards[name] for name in expected} == expected
    assert len({event.trial for event in recorded.of(TrialQueued)}) == len(finished)


def test_what_was_trained_on_is_scored_as_prime_rl_did(recorded: Recorded) -> None:
    scored = {(event.step, event.group): event for event in recorded.of(GroupScored)}
    told = {name: score for event in scored.values() for name, score in event.trials.items()}
    trained = 0
    for step in range(1, STEPS + 1):
        assert sum(1 for of, _ in scored if of == step) >= 1
        for trace in recorded.traces(step, "train", "effective"):
            score = told[name_of(trace)]
            assert score.reward == trace["info"]["tbtui"]["reward"]
            assert score.advantage == pytest.approx(advantage_of(trace))
            trained += 1
    assert trained == STEPS * GROUPS * GROUP_SIZE


def advantage_of(trace: dict[str, Any]) -> float:
    """The advantage of all its tokens: Prime-RL gives each sampled token the same."""
    (advantage,) = {each for node in trace["nodes"] for each in node.get("advantages") or ()}
    return float(advantage)


def test_tokens_are_those_of_the_trace(recorded: Recorded) -> None:
    for step in range(1, STEPS + 1):
        for trace in recorded.traces(step, "train", "effective"):
            drawn = [node for node in trace["nodes"] if node.get("sampled")]
            samples = recorded.reader.samples(name_of(trace))
            assert len(samples) == len(drawn)
            for sample, node in zip(samples, drawn, strict=True):
                ids = [id for id, own in zip(node["token_ids"], node["mask"], strict=True) if own]
                assert sample.completion_ids == tuple(ids)
                logprobs = np.array(node["logprobs"][-len(ids) :], np.float32)
                np.testing.assert_allclose(sample.logprobs, logprobs, atol=1e-6)


def test_steps_have_prime_rls_numbers(recorded: Recorded) -> None:
    rows: dict[int, dict[str, Any]] = {}
    for row in recorded.rows():
        rows.setdefault(row["step"], {}).update(row)
    for finished in recorded.of(StepFinished):
        row, metrics = rows[finished.step], finished.metrics
        assert metrics["optim/kl_sample_train_v2"] == row["mismatch_kl/all/mean"]
        assert metrics["optim/loss"] == row["loss/mean"]
        assert metrics["async/staleness_max"] <= 2
    assert [event.weights_version for event in recorded.of(StepFinished)] == [1, 2, 3, 4]


def test_the_evaluations_are_told(recorded: Recorded) -> None:
    assert recorded.of(EvalFinished)
    for event in recorded.of(EvalFinished):
        assert event.scored + event.unscored == 2


async def test_vllm_drew_from_the_model_that_the_embedded_policy_is(recorded: Recorded) -> None:
    """The rollouts of the first weights: log-probabilities of vLLM against our own."""
    local = LocalPolicy()
    await local.start()
    try:
        samples = [
            sample
            for trace in recorded.traces(1, "train", "effective")
            for sample in recorded.reader.samples(name_of(trace))
        ]
        data = []
        for sample in samples:
            tokens = np.array(sample.prompt_ids + sample.completion_ids, np.int32)
            nothing = np.zeros(len(tokens), np.float32)
            mask = np.arange(len(tokens)) >= len(sample.prompt_ids)
            data.append(Datum(tokens, mask, nothing, nothing, nothing))
        ours = await local.score(data, "trained")
    finally:
        await local.close()
    assert {sample.weights_version for sample in samples} == {0}
    for sample, own in zip(samples, ours, strict=True):
        np.testing.assert_allclose(sample.logprobs, own, atol=1e-3)


def test_nothing_was_unknown_to_the_watcher(recorded: Recorded) -> None:
    assert [note.text for note in recorded.of(Noted) if note.level != "info"] == []
