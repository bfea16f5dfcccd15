"""Watching a run directory of Prime-RL's: what its files become in our journal."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tbtui.engines.prime_rl.watch.recorder import Savepoint
from tbtui.engines.prime_rl.watch.run import PreparedWatch, WatchOptions, prepare_watch, watch
from tbtui.journal.events import (
    CheckpointSaved,
    EvalFinished,
    EvalStarted,
    GroupAdded,
    GroupScored,
    Noted,
    Outcome,
    PolicyMeasured,
    RunContinued,
    RunFinished,
    RunPhase,
    RunPhaseChanged,
    RunStarted,
    StepFinished,
    StepStarted,
    TrialFinished,
    TrialQueued,
    TurnObserved,
    TurnSampled,
)
from tests.events import policy_measured, server_status

from .recorded_run import BEGIN, RecordedRun
from .watching import Watching


@pytest.fixture
def run(tmp_path: Path) -> RecordedRun:
    return RecordedRun(tmp_path / "tb")


@pytest.fixture
def watching(run: RecordedRun, tmp_path: Path) -> Iterator[Watching]:
    watching = Watching(run, tmp_path / "journal")
    yield watching
    watching.stop()


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watching]:
    """What became of a whole run, of which nothing was touched."""
    where = tmp_path_factory.mktemp("whole")
    run = RecordedRun(where / "tb")
    run.whole()

    def look() -> dict[Path, tuple[int, float]]:
        return {path: (path.lstat().st_size, path.lstat().st_mtime) for path in run.path.rglob("*")}

    before = look()
    watching = Watching(run, where / "journal")
    watching.read()
    assert look() == before
    yield watching
    watching.stop()


def test_a_whole_run_becomes_a_run_of_ours(told: Watching) -> None:
    state = told.state()
    assert (state.run, state.policy, state.model_name) == ("tb", "prime-rl", "Qwen/Qwen3-4B")
    assert (state.max_steps, state.status, state.weights_version) == (2, "finished", 2)
    assert [step.step for step in state.steps] == [1, 2]
    assert all(step.finished_at is not None for step in state.steps)
    assert [len(step.groups) for step in state.steps] == [2, 2]
    assert state.rollouts == 10
    outcomes = Counter(trial.outcome for trial in state.trials.values())
    assert outcomes == {Outcome.SOLVED: 4, Outcome.FAILED: 4, Outcome.SANDBOX_LOST: 2}
    assert [saved.step for saved in told.of(CheckpointSaved)] == [2]


def test_a_steps_metrics_have_our_trainers_names(told: Watching) -> None:
    first = told.of(StepFinished)[0]
    ours = {
        "env/all/reward/total": 0.5,
        "env/all/pass_rate": 0.5,
        "env/all/total_episodes": 4,
        "env/all/unscored_episodes": 1,
        "env/all/turns_per_episode": 2,
        "env/all/by_group/frac_all_good": 0.5,
        "async/staleness_mean": 0.5,
        "async/staleness_max": 1,
        "optim/kl_sample_train_v2": 1.5e-5,
        "optim/grad_norm": 0.3,
        "optim/entropy": 0.4,
        "optim/loss": -0.1,
        "optim/lr": 1e-5,
        "tokens/sampled": 24,
        "time/total": 60,
        "time/training": 15,
        "time/sampling": 40,
    }
    assert {name: first.metrics[name] for name in ours} == pytest.approx(ours)
    assert first.weights_version == 1


def test_tokens_and_logprobs_are_exact(told: Watching) -> None:
    first, second = told.reader().samples("s1g1t0")
    assert first.prompt_ids == (1, 2, 10, 11, 3)
    assert first.completion_ids == (0, 1, 2)
    assert second.prompt_ids == (1, 2, 10, 11, 3, 0, 1, 2, 11, 11, 3)
    assert second.completion_ids == (100, 101, 102)
    np.testing.assert_array_equal(second.logprobs, np.array([-0.5, -0.5, -1.5], np.float32))
    assert (second.temperature, second.weights_version) == (0.7, 0)
    turn = told.of(TurnSampled)[1]
    assert (turn.text, turn.completion_tokens, turn.seconds) == ("command 2", 3, 4.0)
    assert (turn.min_logprob, turn.cached_tokens) == (-1.5, 2)
    assert told.of(TurnObserved)[0].observation == "screen 2"


def test_a_trials_times_are_those_of_the_rollout(told: Watching) -> None:
    entries = told.reader().read_trial("s1g1t0")
    assert [(entry.event.kind, entry.time - BEGIN) for entry in entries] == [
        ("trial_queued", 0),
        ("trial_phase_changed", 1),
        ("trial_phase_changed", 5),
        ("turn_started", 6),
        ("turn_sampled", 10),
        ("turn_observed", 16),
        ("turn_started", 16),
        ("turn_sampled", 20),
        ("trial_phase_changed", 20),
        ("trial_finished", 22),
    ]
    spent = told.of(TrialFinished)[0].seconds
    assert (spent.queue, spent.build, spent.setup, spent.sampling) == (1, 2, 2, 8)
    assert (spent.commands, spent.verifying) == (7, 2)


def test_groups_are_scored_with_prime_rls_advantages(told: Watching) -> None:
    scored = told.of(GroupScored)[0]
    assert (scored.step, scored.disposition, scored.baseline) == (1, "trained", 0.5)
    assert {name: (score.advantage, score.tokens) for name, score in scored.trials.items()} == {
        "s1g1t0": (0.5, 6),
        "s1g1t1": (-0.5, 6),
    }
    assert [added.replaces for added in told.of(GroupAdded)] == [""] * 4


@pytest.mark.parametrize(
    ("changes", "outcome", "reward"),
    [
        ({"reward": 0.25}, Outcome.FAILED, 0.25),
        ({"reward": 0.0, "stop": "max_turns"}, Outcome.AGENT_TIMEOUT, 0.0),
        ({"reward": 0.0, "stop": "context_length"}, Outcome.CONTEXT_OVERFLOW, 0.0),
        ({"reward": 0.0, "error": ("ProviderError", "503")}, Outcome.PROVIDER_ERROR, None),
        ({"reward": 0.0, "error": ("TaskError", "no tests")}, Outcome.VERIFIER_ERROR, None),
        ({"reward": 1.0, "error": ("HarnessError", "exit 1")}, Outcome.AGENT_ERROR, None),
        ({"reward": None}, Outcome.VERIFIER_ERROR, None),
        ({"traces": False, "error": ("EnvError", "no image")}, Outcome.SETUP_ERROR, None),
    ],
)
def test_a_failure_of_the_machinery_is_no_reward(
    run: RecordedRun,
    watching: Watching,
    changes: dict[str, Any],
    outcome: Outcome,
    reward: float | None,
) -> None:
    run.launch()
    run.arrived(run.episode("t", 1, **changes), 1)
    watching.read()

    (finished,) = watching.of(TrialFinished)
    assert (finished.outcome, finished.reward) == (outcome, reward)


def test_following_tells_the_same_as_reading_it_afterwards(told: Watching, tmp_path: Path) -> None:
    class Followed(RecordedRun):
        """Is read after each line that is written."""

        follow: Callable[[], object] = staticmethod(lambda: None)

        def raw(self, part: str, text: str) -> None:
            super().raw(part, text)
            self.follow()

        def arrived(self, episode: dict[str, object], step: int) -> None:
            super().arrived(episode, step)
            self.follow()

    followed = Followed(tmp_path / "followed" / "tb")
    live = Watching(followed, tmp_path / "live")
    followed.follow = live.watcher.poll
    followed.whole()
    live.read()
    live.stop()
    kinds = (TrialFinished, GroupScored, StepFinished, StepStarted, RunFinished)
    for kind in kinds:
        assert sorted(map(repr, live.of(kind))) == sorted(map(repr, told.of(kind)))
    texts = [sorted(turn.text for turn in each.of(TurnSampled)) for each in (live, told)]
    assert texts[0] == texts[1]
    assert isinstance([e for e in live.events() if isinstance(e, kinds)][-1], RunFinished)


@pytest.mark.parametrize("killed", [False, True])
def test_a_watcher_that_starts_again_goes_on(
    run: RecordedRun, watching: Watching, killed: bool
) -> None:
    run.launch()
    run.ready()
    episodes = [run.episode(f"t{n}", 1, reward=float(n)) for n in (0, 1)]
    run.arrived(episodes[0], 1)
    watching.read()
    watching.restart(killed=killed)
    run.arrived(episodes[1], 1)
    run.shipped(episodes, 1, 0.5)
    run.orchestrator_row(1)
    watching.read()
    watching.restart(killed=killed)
    run.trained(1)
    watching.read()

    assert len(watching.of(RunStarted)) == 1
    assert [queued.trial for queued in watching.of(TrialQueued)] == ["t0", "t1"]
    assert len(watching.of(TurnSampled)) == 4
    (scored,) = watching.of(GroupScored)
    (finished,) = watching.of(StepFinished)
    assert finished.metrics["env/all/pass_rate"] == 0.5
    assert finished.metrics["optim/grad_norm"] == 0.3
    assert finished.metrics["async/staleness_max"] == 1.0
    assert {score.tokens for score in scored.trials.values()} == {6}


def test_a_long_run_is_read_step_by_step(run: RecordedRun, watching: Watching) -> None:
    run.launch(max_steps=12)
    run.ready()
    for step in range(1, 13):
        episodes = [run.episode(f"s{step}t{n}", step, reward=float(n)) for n in (0, 1)]
        for episode in episodes:
            run.arrived(episode, step)
        run.shipped(episodes, step, 0.5)
        run.orchestrator_row(step)
        run.trained(step)
    watching.read()
    watching.restart()
    run.arrived(run.episode("late", 12), 12)
    run.finished()
    watching.read()

    assert len(watching.of(TrialFinished)) == 25
    order = [
        event.step for event in watching.events() if isinstance(event, StepStarted | StepFinished)
    ]
    assert sorted(order) == sorted([*range(1, 13)] * 2)
    assert len(watching.of(GroupScored)) == 12
    assert len(Savepoint.load(watching.into.path / "watch.json", run.path).positions) < 12


def test_a_line_that_is_cut_off_waits_for_its_end(run: RecordedRun, watching: Watching) -> None:
    run.launch()
    run.arrived(run.episode("first", 1), 1)
    (path,) = run.path.glob("rollouts/*/*/all/traces.jsonl")
    whole = path.read_bytes()
    path.write_bytes(whole[:200])
    watching.read()
    assert not watching.of(TrialQueued)
    watching.restart()
    with path.open("ab") as file:
        file.write(whole[200:])
    watching.read()
    assert [finished.trial for finished in watching.of(TrialFinished)] == ["first"]


def test_lines_that_are_no_records_are_told_of_once(run: RecordedRun, watching: Watching) -> None:
    run.launch()
    run.arrived(run.episode("good", 1), 1)
    (path,) = run.path.glob("rollouts/*/*/all/traces.jsonl")
    with path.open("ab") as file:
        file.write(b'{"no": "record"}\nnot json\n\xff\xfe\n')
    run.arrived(run.episode("also", 1), 1)
    watching.read()
    assert [finished.trial for finished in watching.of(TrialFinished)] == ["good", "also"]
    warnings = [note.text for note in watching.of(Noted) if "line of the rollouts" in note.text]
    assert len(warnings) == 1


def test_an_evaluation_is_told(run: RecordedRun, watching: Watching) -> None:
    run.launch()
    for name, reward in (("e0", 1.0), ("e1", 0.0), ("e2", None)):
        error = ("SandboxError", "gone") if reward is None else None
        episode = run.episode(name, 1, kind="eval", reward=reward, error=error, group=name)
        episode["env"]["name"] = "held"
        run.arrived(episode, 1)
    run.evaluated(1)
    watching.read()

    (told,) = watching.of(EvalFinished)
    assert (told.pass_at[1].value, told.by_task) == (0.5, {"copy-file": 0.5})
    assert (told.step, told.weights_version, told.pass_rate) == (1, 0, 0.5)
    assert (told.scored, told.unscored, told.by_kind) == (2, 1, {"held": 0.5})
    assert told.metrics == {"eval/pass@1": 0.5}
    assert not watching.of(StepStarted)


def test_an_evaluation_that_begins_is_told(run: RecordedRun, watching: Watching) -> None:
    run.launch()
    run.ready()
    run.log("orchestrator", "INFO", "Starting evals in held, other (12 total rollouts)")
    watching.read()
    watching.restart()
    watching.read()

    (begun,) = watching.of(EvalStarted)
    assert (begun.step, begun.trials, begun.tasks, begun.temperature) == (1, 12, 6, 0.5)
    assert watching.state().phase is RunPhase.EVALUATING


def stalls(watching: Watching) -> list[str]:
    return [n.text for n in watching.of(Noted) if n.text.startswith("no progress")]


def test_no_progress_is_told_with_where_to_look(run: RecordedRun, watching: Watching) -> None:
    run.launch()
    run.ready()
    watching.now = max(path.stat().st_mtime for path in run.path.rglob("*")) + 1
    watching.read()
    assert not stalls(watching)
    watching.now += 125
    watching.read()
    (first,) = stalls(watching)
    assert first.endswith(f" s: its parts' logs are {run.path}/logs/attempt_1")
    # The next time after twice as long.
    watching.now += 60
    watching.read()
    assert len(stalls(watching)) == 1
    watching.now += 100
    watching.read()
    assert len(stalls(watching)) == 2


def test_a_stall_is_told_with_what_the_server_says(run: RecordedRun, watching: Watching) -> None:
    run.launch()
    run.ready()
    server = server_status(kv_cache_use=0.97)
    queue = policy_measured(in_flight=16, running=4, server=server)
    watching.watcher.measured(queue)
    watching.now = max(path.stat().st_mtime for path in run.path.rglob("*")) + 200
    watching.read()
    words = "; the inference server has 4 running, 12 waiting, KV cache 97% full"
    assert stalls(watching)[0].endswith(words)
    assert watching.of(PolicyMeasured) == [queue]


def test_a_run_that_prime_rl_resumes_goes_on(run: RecordedRun, watching: Watching) -> None:
    run.launch()
    run.ready()
    episode = run.episode("a", 1)
    run.arrived(episode, 1)
    run.orchestrator_row(1)
    run.trained(1)
    run.arrived(run.episode("b", 2), 2)
    run.checkpoint(1)
    watching.read()

    run.clean_after(1)
    run.launch()
    watching.restart()
    watching.read()
    run.ready(resumed=1)
    run.arrived(run.episode("c", 2), 2)
    run.orchestrator_row(2)
    run.trained(2)
    run.finished()
    watching.read()

    (continued,) = watching.of(RunContinued)
    assert continued.step == 1
    assert str(continued.checkpoint).endswith("checkpoints/step_1")
    assert [step.step for step in watching.of(StepFinished)] == [1, 2]
    assert watching.state().status == "finished"


def test_phases_follow_the_pipeline(run: RecordedRun, watching: Watching) -> None:
    run.launch()
    watching.read()
    run.ready()
    watching.read()
    run.orchestrator_row(1)
    watching.read()
    assert [change.phase for change in watching.of(RunPhaseChanged)] == [
        RunPhase.STARTING,
        RunPhase.STARTING,
        RunPhase.SAMPLING,
        RunPhase.TRAINING,
    ]


def prepared(run: RecordedRun, into: Path, *, once: bool = False) -> PreparedWatch:
    return prepare_watch(run.path, into, WatchOptions(once=once))


async def test_following_ends_with_the_run(run: RecordedRun, tmp_path: Path) -> None:
    watched = asyncio.create_task(watch(prepared(run, tmp_path / "journal")))
    await asyncio.to_thread(run.whole)
    end = await watched
    assert (end.status, end.reason) == ("finished", "2 steps")


async def test_reading_once_leaves_an_unfinished_run_open(run: RecordedRun, tmp_path: Path) -> None:
    run.launch()
    run.ready()
    end = await watch(prepared(run, tmp_path / "journal", once=True))
    assert (end.status, end.reason) == ("finished", "read to the end of what is there")
    run.finished()
    end = await watch(prepared(run, tmp_path / "journal", once=True))
    assert end.reason == "0 steps"
    end = await watch(prepared(run, tmp_path / "journal", once=True))
    assert end.reason == "the run was over when it was watched last"
