"""Trials that our plugin tells of live and Prime-RL's traces complete: one in the journal each."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tbtui.engines.prime_rl.plugin.files import FOLDER, ServerProcess
from tbtui.engines.prime_rl.watch.recorder import TraceRecorder
from tbtui.journal.database import JournalError
from tbtui.journal.events import (
    AnyEvent,
    GroupScored,
    Noted,
    Outcome,
    StepStarted,
    TrialFinished,
    TrialPhase,
    TrialQueued,
    TrialTraced,
    TurnSampled,
)
from tbtui.view.transcript import Transcript

from .hosted_run import HostedRun
from .recorded_run import RecordedRun
from .watching import Watching

pytestmark = pytest.mark.slow

TRACE = "0123456789abcdef0123456789abcdef"


@pytest.fixture
def run(tmp_path: Path) -> RecordedRun:
    run = RecordedRun(tmp_path / "tb")
    run.launch()
    run.ready()
    return run


@pytest.fixture
def trials_dir(tmp_path: Path) -> Path:
    return tmp_path / "trials_dir"


@pytest.fixture
def watching(run: RecordedRun, tmp_path: Path, trials_dir: Path) -> Iterator[Watching]:
    watching = Watching(run, tmp_path / "journal", trials_dir=trials_dir)
    yield watching
    watching.stop()


@pytest.fixture
def trial(trials_dir: Path) -> HostedRun:
    return HostedRun(trials_dir, TRACE)


def judged(watching: Watching, trial: HostedRun) -> None:
    """The journal has the trial once, with all that either side knows."""
    (queued,) = watching.of(TrialQueued)
    assert (queued.trial, queued.label) == (trial.name, "copy-file/1")
    assert [turn.turn for turn in watching.of(TurnSampled)] == [1, 2]
    (finished,) = watching.of(TrialFinished)
    assert (finished.outcome, finished.reason) == (Outcome.SOLVED, "as told")
    (traced,) = watching.of(TrialTraced)
    assert (traced.group, traced.step, traced.weights_version) == ("g1", 3, 2)
    samples = watching.reader().samples(trial.name)
    assert [sample.completion_ids for sample in samples] == [(0, 1, 2), (100, 101, 102)]
    view = watching.state().trials[trial.name]
    assert (view.group, view.step, view.reward, view.turn) == ("g1", 3, 1.0, 2)
    assert (view.completion_tokens, len(view.samples)) == (6, 2)
    assert view.mean_logprob == pytest.approx(-2.5 / 3)
    transcript = Transcript()
    transcript.apply(watching.reader().read_trial(trial.name))
    assert [turn.sample for turn in transcript.turns] == view.samples
    assert [turn.observation for turn in transcript.turns] == ["screen", "screen"]


def came_back(run: RecordedRun) -> None:
    run.arrived(run.episode(TRACE, 3, version=2), 3)


def test_it_is_live_before_there_is_a_trace(watching: Watching, trial: HostedRun) -> None:
    bits = trial.bits()
    next(bits)
    watching.read()
    view = watching.state().trials[trial.name]
    assert (view.phase, view.group, view.step) == (TrialPhase.QUEUED, "", 1)
    assert [started.step for started in watching.of(StepStarted)] == [1]
    next(bits)
    next(bits)
    watching.read()
    view = watching.state().trials[trial.name]
    assert (view.turn, view.last_text, view.mean_logprob) == (1, "command 1", None)


def test_read_afterwards_it_is_the_same(
    run: RecordedRun, watching: Watching, trial: HostedRun
) -> None:
    trial.whole()
    came_back(run)
    watching.read()
    judged(watching, trial)


@pytest.mark.parametrize("again", ["goes on", "is restarted", "is killed"])
def test_its_trace_completes_it(
    run: RecordedRun, watching: Watching, trial: HostedRun, again: str
) -> None:
    """Whatever becomes of the watcher, at any moment."""

    def read() -> None:
        watching.read()
        if again != "goes on":
            watching.restart(killed=again == "is killed")

    for _ in trial.bits():
        read()
    read()
    read()
    came_back(run)
    read()
    watching.read()
    judged(watching, trial)


@pytest.mark.parametrize("restarted", [False, True])
def test_its_group_is_scored(
    run: RecordedRun, watching: Watching, trials_dir: Path, restarted: bool
) -> None:
    episodes = []
    for member, trace in enumerate(("a" * 32, "b" * 32)):
        hosted = HostedRun(trials_dir, trace)
        hosted.whole()
        episodes.append(run.episode(trace, 1, reward=1.0 - member))
        run.arrived(episodes[-1], 1)
    watching.read()
    if restarted:
        watching.restart()
    run.shipped(episodes, 1, 0.5)
    run.orchestrator_row(1)
    run.trained(1)
    watching.read()
    (scored,) = watching.of(GroupScored)
    assert {name: (s.advantage, s.tokens) for name, s in scored.trials.items()} == {
        f"copy-file__{'a' * 12}": (0.5, 6),
        f"copy-file__{'b' * 12}": (-0.5, 6),
    }


def test_a_trial_without_a_trace_is_complete(watching: Watching, trials_dir: Path) -> None:
    dropped = HostedRun(trials_dir, TRACE)
    dropped.queued()
    dropped.turn(1)
    dropped.finished(None, Outcome.SANDBOX_LOST)
    watching.read()
    watching.restart()
    watching.read()
    (finished,) = watching.of(TrialFinished)
    assert (finished.outcome, finished.reward) == (Outcome.SANDBOX_LOST, None)
    assert not watching.of(TrialTraced)
    assert not watching.state().live_trials()


def test_what_prime_rl_leaves_out_is_told(
    run: RecordedRun, watching: Watching, trial: HostedRun
) -> None:
    trial.whole()
    run.arrived(run.episode(TRACE, 3, error=("EnvError", "hook failed")), 3)
    watching.read()
    (note,) = [note.text for note in watching.of(Noted) if "leaves it out" in note.text]
    assert note == f"{trial.name}: Prime-RL leaves it out: EnvError: hook failed"


def test_tokens_of_other_text_are_no_tokens_of_a_turn(
    run: RecordedRun, watching: Watching, trials_dir: Path
) -> None:
    odd = HostedRun(trials_dir, TRACE)
    odd.queued()
    odd.turn(1)
    odd.turn(2, "what the trace doesn't say")
    odd.finished()
    came_back(run)
    watching.read()
    (traced,) = watching.of(TrialTraced)
    assert [call.turn for call in traced.calls] == [1]
    assert any("its tokens don't fit its turn 2" in note.text for note in watching.of(Noted))


def test_summaries_are_told_apart(run: RecordedRun, watching: Watching, trials_dir: Path) -> None:
    hosted = HostedRun(trials_dir, TRACE)
    hosted.queued()
    hosted.turn(1, "command 1")
    hosted.turn(1, "command 2", "summary")
    hosted.finished()
    came_back(run)
    watching.read()
    (traced,) = watching.of(TrialTraced)
    assert [(call.turn, call.purpose) for call in traced.calls] == [(1, "turn"), (1, "summary")]
    samples = watching.reader().samples(hosted.name)
    assert [sample.summary for sample in samples] == [False, True]


def test_several_servers_and_one_that_dies(watching: Watching, trials_dir: Path) -> None:
    here, there = HostedRun(trials_dir, "a" * 32), HostedRun(trials_dir, "b" * 32)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as server:
        started = psutil.Process(server.pid).create_time()
        other = dataclasses.replace(ServerProcess.this(), pid=server.pid, started=started)
        here.queued()
        there.queued()
        path = trials_dir / FOLDER / f"{there.name}.jsonl"
        line = json.loads(path.read_text()) | {"server": dataclasses.asdict(other)}
        path.write_text(json.dumps(line) + "\n")
        watching.read()
        assert len(watching.state().live_trials()) == 2
        server.kill()
    watching.now += 10
    watching.read()
    (finished,) = watching.of(TrialFinished)
    assert (finished.trial, finished.outcome) == (there.name, Outcome.SANDBOX_LOST)
    assert finished.reason == f"its environment server (process {other.pid}) ended"
    assert [view.trial for view in watching.state().live_trials()] == [here.name]


def test_other_harnesses_trials_stand_beside_it(
    run: RecordedRun, watching: Watching, trial: HostedRun
) -> None:
    trial.whole()
    came_back(run)
    run.arrived(run.episode("another", 3), 3)
    watching.read()
    assert {finished.trial for finished in watching.of(TrialFinished)} == {trial.name, "another"}
    assert [len(watching.reader().samples(name)) for name in (trial.name, "another")] == [2, 2]


def test_the_end_of_the_run_is_the_end_of_its_trials(
    run: RecordedRun, watching: Watching, trial: HostedRun
) -> None:
    trial.queued()
    watching.read()
    run.finished()
    watching.read()
    (finished,) = watching.of(TrialFinished)
    assert (finished.outcome, finished.reason) == (Outcome.CANCELLED, "the run is over")
    assert watching.state().status == "finished"


def test_a_line_that_is_none_is_left_out(
    watching: Watching, trial: HostedRun, trials_dir: Path
) -> None:
    trial.queued()
    path = trials_dir / FOLDER / f"{trial.name}.jsonl"
    with path.open("ab") as file:
        file.write(b'nonsense\n{"time": 1, "event": {"kind": "turn_waltzed"}}\n\xff\n')
    trial.turn(1)
    watching.read()
    watching.restart()
    trial.turn(2)
    watching.read()
    assert [turn.turn for turn in watching.of(TurnSampled)] == [1, 2]
    told = {note.text for note in watching.of(Noted) if "log is no event" in note.text}
    assert told == {f"a line of {trial.name}'s log is no event of tbtui's; it is left out"}


def test_a_trace_is_journalled_whole_or_not_at_all(
    run: RecordedRun,
    watching: Watching,
    trial: HostedRun,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    trial.whole()
    came_back(run)
    record = TraceRecorder.record

    def full(self: TraceRecorder, event: AnyEvent, at: float | None = None) -> None:
        if isinstance(event, TrialTraced):
            raise JournalError("the disk is full")
        record(self, event, at)

    with monkeypatch.context() as patch:
        patch.setattr(TraceRecorder, "record", full)
        with pytest.raises(JournalError):
            watching.read()
    assert watching.reader().samples(trial.name) == []
    watching.restart(killed=True)
    watching.read()
    judged(watching, trial)


def test_a_trial_is_counted_to_the_step_that_it_came_back_for(
    run: RecordedRun, watching: Watching, trial: HostedRun
) -> None:
    trial.whole()
    watching.read()
    assert [len(step.rewards) for step in watching.state().steps] == [1]
    other = run.episode("other", 1, reward=0.0)
    run.arrived(other, 1)
    episode = run.episode(TRACE, 2)
    run.arrived(episode, 2)
    for step in (1, 2):
        run.shipped([other] if step == 1 else [episode], step, 0.5)
        run.orchestrator_row(step)
        run.trained(step)
    watching.read()
    steps = watching.state().steps
    assert [(step.step, step.rewards) for step in steps] == [(1, [0.0]), (2, [1.0])]
    first, second = (line for line in watching.lines() if line.startswith("step"))
    assert " failed 1 " in first
    assert "solved" not in first
    assert " solved 1 " in second
