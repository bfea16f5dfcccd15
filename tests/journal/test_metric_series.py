"""Every figure of a journal as a series, placed on each x axis."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import numpy as np
import pytest

from tbtui.journal.events import (
    AnyEvent,
    Estimate,
    EvalFinished,
    GpuMeasured,
    GpusMeasured,
    ProcessMeasured,
    ResourcesMeasured,
    RunPhase,
    RunPhaseChanged,
    StepFinished,
)
from tbtui.journal.metrics import X_AXES, XAxis, metric_names, read_profile, read_series
from tbtui.journal.rundir import RunDirectory
from tbtui.journal.writer import JournalWriter
from tests.events import (
    eval_finished,
    events_of,
    run_continued,
    run_started,
    sample_record,
    trial_finished,
    trial_queued,
    write_journal,
)


def step(number: int, **metrics: float) -> StepFinished:
    named = {name.replace("__", "/"): value for name, value in metrics.items()}
    return StepFinished(step=number, weights_version=number, metrics=named)


def evaluation(number: int, rate: float) -> EvalFinished:
    return eval_finished(
        number,
        rate,
        scored=4,
        by_kind={"copy": rate},
        pass_at={1: Estimate(value=rate, low=rate - 0.1, high=rate + 0.2)},
        by_task={"copy-07": 1.0},
    )


def measured(rss: float) -> ResourcesMeasured:
    processes = (
        ProcessMeasured(role="worker", pid=1, rss_mb=rss, cpu=0.5),
        ProcessMeasured(role="worker", pid=2, rss_mb=10.0, cpu=0.5),
    )
    return ResourcesMeasured(processes=processes, engine_lag_ms=rss)


def gpus(used: float) -> GpusMeasured:
    gpu = GpuMeasured(index=1, name="H100", utilisation=used)
    return GpusMeasured(host="node/1", gpus=(GpuMeasured(index=0, name="H100"), gpu))


EVENTS: list[tuple[float, AnyEvent]] = [
    (100.0, run_started()),
    (101.0, evaluation(0, 0.25)),
    (102.0, trial_queued("a")),
    (103.0, measured(50.0)),
    (104.0, trial_finished("a", reward=1.0)),
    (110.0, step(1, optim__loss=3.0, tokens__total__sampled=40.0)),
    (115.0, step(2, optim__loss=99.0, tokens__total__sampled=90.0)),
    # Dead for 1000 seconds, and step 2 is trained again.
    (1115.0, RunPhaseChanged(phase=RunPhase.STARTING, step=1)),
    (1116.0, run_continued(step=1)),
    (1117.0, gpus(0.75)),
    (1120.0, step(2, optim__loss=1.0, tokens__total__sampled=80.0)),
    (1121.0, evaluation(2, 0.5)),
    (1122.0, measured(60.0)),
]


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    return written(tmp_path / "r", EVENTS)


def written(path: Path, events: list[tuple[float, AnyEvent]]) -> RunDirectory:
    times = iter([time for time, _ in events])
    told = [event for _, event in events]
    return write_journal(RunDirectory.create(path), told, clock=lambda: next(times))


def xy(run: RunDirectory, metric: str, axis: XAxis = "step") -> list[tuple[float, float]]:
    return [(point.x, point.y) for point in read_series(run, metric, axis)]


def test_a_step_that_was_trained_again_has_its_latest_value(run: RunDirectory) -> None:
    assert xy(run, "optim/loss") == [(1, 3.0), (2, 1.0)]


def test_time_leaves_out_when_no_process_ran(run: RunDirectory) -> None:
    assert xy(run, "optim/loss", "time") == [(10, 3.0), (15, 99.0), (20, 1.0)]


def test_tokens_and_rollouts_are_those_so_far(run: RunDirectory) -> None:
    assert xy(run, "optim/loss", "tokens") == [(40, 3.0), (80, 1.0), (90, 99.0)]
    assert xy(run, "eval/pass_rate", "rollouts") == [(0, 0.25), (1, 0.5)]


def test_an_evaluation_has_its_interval(run: RunDirectory) -> None:
    first, last = read_series(run, "eval/pass_rate", "step")
    assert (first.x, first.y, first.low, first.high) == pytest.approx((0, 0.25, 0.15, 0.45))
    assert (last.x, last.high) == pytest.approx((2, 0.7))
    assert xy(run, "eval/kind/copy") == [(0, 0.25), (2, 0.5)]
    assert xy(run, "eval/pass@1") == [(0, 0.25), (2, 0.5)]


def test_processes_of_a_role_are_summed_and_gpus_are_apart(run: RunDirectory) -> None:
    assert xy(run, "resources/worker/rss_mb") == [(0, 60.0), (2, 70.0)]
    assert xy(run, "resources/engine_lag_ms") == [(0, 50.0), (2, 60.0)]
    assert xy(run, "gpu/node/1/1/utilisation") == [(1, 0.75)]
    assert xy(run, "gpu/node/1/0/utilisation") == []


def test_every_metric_that_is_listed_can_be_read(run: RunDirectory) -> None:
    names = metric_names(run)
    assert {"optim/loss", "eval/pass_rate", "eval/task/copy-07", "trials/queued"} <= set(names)
    for name in names:
        for axis in X_AXES:
            read_series(run, name, axis)
    assert read_series(run, 'a"b', "step") == ()


def test_a_corrupt_row_is_left_out(run: RunDirectory) -> None:
    with sqlite3.connect(run.database) as db:
        db.execute("UPDATE events SET body = '{' WHERE kind = 'step_finished' AND seq = 6")
    assert "optim/loss" in metric_names(run)
    assert xy(run, "optim/loss", "time") == [(15, 99.0), (20, 1.0)]


def test_a_metric_that_had_another_name_is_one_series(tmp_path: Path) -> None:
    steps: list[tuple[float, AnyEvent]] = [
        (float(number), step(number, optim__neg_logprob=number / 2)) for number in (1, 2)
    ]
    run = written(tmp_path / "old", steps)
    with sqlite3.connect(run.database) as db:
        db.execute(
            "UPDATE events SET body = replace(body, 'neg_logprob', 'surprise') WHERE seq = 1"
        )
    assert metric_names(run) == ("optim/neg_logprob",)
    for name in ("optim/neg_logprob", "optim/surprise"):
        assert xy(run, name) == [(1, 0.5), (2, 1.0)]
    read = events_of(run, StepFinished)
    assert [each.metrics for each in read] == [{"optim/neg_logprob": 0.5}, {"optim/neg_logprob": 1}]


def test_a_profile_is_the_mean_by_position_of_a_steps_answers(tmp_path: Path) -> None:
    directory = RunDirectory.create(tmp_path / "r")
    with JournalWriter(directory) as journal:
        journal.append(run_started())
        journal.append(trial_queued("a", step=3))
        journal.append(trial_queued("b", step=4))
        for trial, logprobs in (("a", (-1.0, -3.0)), ("a", (-2.0,)), ("b", (-9.0,))):
            journal.add_sample(
                sample_record(
                    trial,
                    completion_ids=(1,) * len(logprobs),
                    logprobs=np.asarray(logprobs, np.float32),
                    pieces=("x",) * len(logprobs),
                )
            )
    profile = read_profile(directory, 3)
    assert [(point.x, point.y) for point in profile.points] == [(1, 1.5), (2, 3.0)]
    assert profile.answers == 2
    assert profile.points[0].low < 1.5 < profile.points[0].high
