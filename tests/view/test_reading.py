"""A far place in a journal is reached without reading all before it, and looks the same."""

from __future__ import annotations

import dataclasses
from itertools import islice
from pathlib import Path

import pytest

from tbtui.journal.events import (
    PhaseSeconds,
    ProcessMeasured,
    ResourcesMeasured,
    RunStarted,
    StepFinished,
    StepStarted,
    TaskRecord,
    TrialPaused,
    TrialPhase,
    TrialPhaseChanged,
    TurnStarted,
)
from tbtui.journal.reader import JournalReader
from tbtui.journal.rundir import RunDirectory
from tbtui.journal.writer import JournalWriter
from tbtui.view import reading as reading_module
from tbtui.view.fold import Fold
from tbtui.view.reading import Reading, Snapshots, state_at_end, state_by_kinds
from tbtui.view.state import RunState
from tests.events import policy_measured, run_started, trial_finished, trial_queued, turn_sampled

TRIALS = 700
"""More than a state keeps."""


@pytest.fixture(scope="module")
def long_run(tmp_path_factory: pytest.TempPathFactory) -> JournalReader:
    """Many short trials, one of them paused from early on to the end."""
    return _written(tmp_path_factory.mktemp("long") / "run", [100] * (TRIALS // 100))


def _written(path: Path, sizes: list[int]) -> JournalReader:
    """A run of steps of so many trials, the last of them not trained yet."""
    run = RunDirectory.create(path)
    time = iter(range(10**6))
    with JournalWriter(run, clock=lambda: float(next(time))) as writer:
        writer._db.execute("PRAGMA synchronous = OFF")
        task = TaskRecord(name="copy-01", kind="copy", split="train")
        writer.append(_started(task))
        numbers = iter(range(sum(sizes)))
        for step, size in enumerate(sizes, start=1):
            if step > 1:
                writer.append(StepFinished(step=step - 1, weights_version=step, metrics={}))
            writer.append(StepStarted(step=step, groups={f"g{step}": "copy-01"}))
            for number in islice(numbers, size):
                _play(writer, f"t{number}", step, paused=number == 5)
    return JournalReader(run)


def _started(task: TaskRecord) -> RunStarted:
    return run_started(run="long", tasks=(task,), settings={"max_steps": 7})


def _play(writer: JournalWriter, trial: str, step: int, *, paused: bool) -> None:
    writer.append(trial_queued(trial, group=f"g{step}", step=step))
    writer.append(TrialPhaseChanged(trial=trial, phase=TrialPhase.MODEL))
    writer.append(TurnStarted(trial=trial, turn=1))
    writer.append(
        turn_sampled(trial, text="said", completion_tokens=4, weights_version=step, seconds=1)
    )
    writer.append(policy_measured(activity="idle", completed=1, sampled_tokens=int(trial[1:]) * 4))
    process = ProcessMeasured(role="engine", pid=1, rss_mb=1.0, cpu=0.1)
    writer.append(ResourcesMeasured(processes=(process,), engine_lag_ms=1))
    if paused:
        writer.append(TrialPaused(trial=trial))
        return
    writer.append(trial_finished(trial, 1.0, seconds=PhaseSeconds(sampling=5.0)))


@pytest.fixture
def near(monkeypatch: pytest.MonkeyPatch) -> None:
    """A shortcut is taken for short ways, too."""
    monkeypatch.setattr(reading_module, "_FAR", 500)


def _all_read(reader: JournalReader, target: int) -> RunState:
    fold = Fold()
    fold.apply_all(reader.read(0, target))
    return fold.state


def _same(one: RunState, other: RunState) -> None:
    for each in dataclasses.fields(RunState):
        # How long trials took that have left the state is told in another way.
        if each.name not in ("task_durations", "durations"):
            assert getattr(one, each.name) == getattr(other, each.name), each.name


@pytest.mark.usefixtures("near")
def test_the_state_at_the_end_is_what_all_events_make_of_it(long_run: JournalReader) -> None:
    state = state_at_end(long_run)
    _same(state, _all_read(long_run, long_run.last_seq()))
    assert state.trials["t5"].hold.paused
    assert state.trials["t5"].last_text == "said"
    assert len(state.trials) == 501, "five whole groups of 100, and what is paused"


@pytest.mark.usefixtures("near")
def test_a_large_step_under_way_is_read_whole(tmp_path: Path) -> None:
    reader = _written(tmp_path / "run", [100, TRIALS])
    _same(state_at_end(reader), _all_read(reader, reader.last_seq()))
    assert reader.batches_begun(reader.last_seq()) > 100 * 6


def test_events_of_other_kinds_are_passed_over(long_run: JournalReader) -> None:
    state = state_by_kinds(long_run, ("run_started", "step_finished"))
    assert (state.run, state.step, list(state.tasks)) == ("long", 6, ["copy-01"])
    assert not state.trials


@pytest.mark.usefixtures("near")
def test_the_shortcut_passes_most_events_over(long_run: JournalReader) -> None:
    reading = Reading(long_run)
    target = long_run.last_seq()
    reading.begin(target)
    assert not reading.complete
    reading.bite(target)
    assert reading.fold.state.trials["t6"].started_at is None
    assert reading.fold.state.trials["t5"].started_at is not None
    while reading.fold.state.seq < target:
        reading.bite(target)
    assert reading.complete


def test_a_snapshot_goes_on_as_if_nothing_had_been(long_run: JournalReader) -> None:
    reading, snapshots = Reading(long_run), Snapshots(every=2000)
    target = long_run.last_seq()
    while reading.fold.state.seq < target:
        reading.bite(target)
        snapshots.keep(reading.fold)
    for place in (1, 2100, 2500, target):
        again = Reading(long_run, snapshots.before(place))
        assert again.fold.state.seq <= place
        while again.fold.state.seq < place:
            again.bite(place)
        _same(again.fold.state, _all_read(long_run, place))
    assert 0 < snapshots.before(2500).state.seq <= 2500


def test_snapshots_are_bounded(tmp_path: Path) -> None:
    snapshots = Snapshots(every=500)
    for seq in range(0, 1_000_000, 1000):
        snapshots.keep(Fold(RunState(seq=seq)))
    assert snapshots.before(999_000).state.seq > 900_000
    assert snapshots.before(500_000).state.seq > 400_000
    assert len(snapshots._seqs) <= 48
