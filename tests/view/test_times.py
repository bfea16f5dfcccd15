"""Where time went and how long it will take: from what was recorded, and no more precise."""

from __future__ import annotations

import msgspec
import pytest

from tbtui.journal.events import (
    AnyEvent,
    Entry,
    PhaseSeconds,
    ProcessMeasured,
    ResourcesMeasured,
    RunPhase,
    RunPhaseChanged,
    StepFinished,
    StepStarted,
    TrialPaused,
    TrialPhase,
    TrialPhaseChanged,
    TrialResumed,
    TrialRetried,
)
from tbtui.view.current import active_seconds
from tbtui.view.fold import Fold
from tbtui.view.state import Duration, RunState
from tbtui.view.times import (
    Outlook,
    breakdown,
    in_words,
    remaining_sec,
    step_times,
    step_wait,
    time_left,
)
from tests.events import trial_finished

from .story import entries, finished, folded, queued, started


def phase(trial: str, name: TrialPhase, detail: str = "") -> TrialPhaseChanged:
    return TrialPhaseChanged(trial=trial, phase=name, detail=detail)


LIFE: list[AnyEvent] = [
    queued("t1"),
    phase("t1", TrialPhase.SETUP, "sandbox"),
    phase("t1", TrialPhase.SETUP, "terminal"),
    phase("t1", TrialPhase.MODEL),
    phase("t1", TrialPhase.ACTING),
    TrialPaused(trial="t1", frozen=True),
    # Said by the worker while the trial stands still: the time is still the pause's.
    phase("t1", TrialPhase.MODEL),
    TrialResumed(trial="t1"),
]


def test_a_live_trials_time_is_told_from_its_changes_of_phase() -> None:
    state = folded(*LIFE)
    spent = {"queue": 1, "build": 1, "setup": 1, "sampling": 4, "commands": 1, "paused": 2}
    assert breakdown(state.trials["t1"], state.time + 3) == spent


def test_a_finished_trials_time_is_what_was_measured() -> None:
    measured = PhaseSeconds(queue=1, build=2, sampling=3, teardown=0.5)
    end = trial_finished("t1", 1.0, turns=2, seconds=measured)
    trial = folded(*LIFE, end).trials["t1"]
    assert breakdown(trial, 9999.0) == {"queue": 1, "build": 2, "sampling": 3, "teardown": 0.5}
    # A worker that died has measured nothing: then what was seen counts.
    lost = msgspec.structs.replace(end, seconds=PhaseSeconds())
    trial = folded(*LIFE, lost).trials["t1"]
    assert breakdown(trial, 9999.0)["paused"] == 2


def running(turn: int = 1, budget: float = 60.0) -> RunState:
    state = folded(queued("t1"), phase("t1", TrialPhase.ACTING))
    trial = state.trials["t1"]
    trial.turn, trial.budget_sec = turn, budget
    return state


def test_nothing_is_estimated_when_nothing_is_known() -> None:
    state = running()
    assert remaining_sec(state.trials["t1"], state, state.time) is None
    # Longer than everything that is known: nothing is known of how much longer.
    state.durations.append(Duration(3, 10.0))
    assert remaining_sec(state.trials["t1"], state, state.time + 11) is None


def test_an_estimate_comes_from_the_task_then_from_all_within_the_budget() -> None:
    state = running()
    trial, now = state.trials["t1"], state.time
    state.durations.extend([Duration(2, 10.0), Duration(2, 30.0)])
    assert remaining_sec(trial, state, now + 4) == 16.0
    # Those that ended sooner say nothing any more.
    assert remaining_sec(trial, state, now + 12) == 18.0
    state.task_durations["copy-01"] = state.durations.copy()
    state.task_durations["copy-01"].extend([Duration(4, 100.0), Duration(4, 90.0)])
    # Only trials with as many turns.
    trial.turn = 3
    trial.budget_sec = 1000.0
    assert remaining_sec(trial, state, now) == 95.0
    trial.budget_sec = 60.0
    assert remaining_sec(trial, state, now + 10) == 50.0


def test_only_trials_that_ended_by_themselves_say_how_long_trials_take() -> None:
    state = folded(
        *(queued("t1"), phase("t1", TrialPhase.ACTING), finished("t1", None)),
        *(queued("t2"), phase("t2", TrialPhase.ACTING), finished("t2", 1.0)),
    )
    assert list(state.durations) == [Duration(1, finished("t2", 1.0).seconds.active)]


@pytest.mark.parametrize("jump", [3600.0, -3600.0])
def test_a_clock_that_was_set_is_nobodys_work(jump: float) -> None:
    process = ProcessMeasured(role="engine", pid=1, rss_mb=1.0, cpu=0.0)
    measured = ResourcesMeasured(processes=(process,), engine_lag_ms=0.0)
    resumed = TrialResumed(trial="stands")
    events: list[AnyEvent] = [
        *(started(), RunPhaseChanged(phase=RunPhase.SAMPLING, step=0), measured),
        *(queued("works"), queued("stands"), queued("waits")),
        *(phase("works", TrialPhase.ACTING), phase("stands", TrialPhase.ACTING)),
        *(TrialPaused(trial="stands", frozen=True), measured),
        *(resumed, phase("works", TrialPhase.MODEL)),
    ]

    def seconds(jumps: float) -> object:
        fold = Fold()
        for entry in entries(events):
            # The jump takes the place of the second before the event.
            time = entry.time + (jumps - 1) * (entry.seq > events.index(resumed))
            fold.apply(Entry(entry.seq, time, entry.event))
        state, now = fold.state, fold.state.time + 3
        trials = [
            (trial.trial, breakdown(trial, now).get("commands"), active_seconds(trial, now))
            for trial in state.trials.values()
        ]
        return trials, [(each.step, each.total) for each in step_times(state.timeline, now, 9)]

    assert seconds(jump) == seconds(0.0)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        *((0.3, "~1s"), (4.4, "~4s"), (9.6, "~0:10"), (12, "~0:10"), (38, "~0:40")),
        *((119, "~2:00"), (500, "~8:30"), (1234, "~21:00"), (3600, "~1:00h"), (7500, "~2:05h")),
    ],
)
def test_estimates_are_round(seconds: float, text: str) -> None:
    assert time_left(seconds) == text


def test_who_is_expected_last_is_waited_for() -> None:
    state = folded(
        *(queued("a"), phase("a", TrialPhase.ACTING)),
        *(queued("b"), phase("b", TrialPhase.ACTING)),
        *(queued("c"), phase("c", TrialPhase.ACTING), TrialPaused(trial="c")),
        queued("d"),
    )
    # Nothing is known: the oldest.
    assert [t.trial for t in Outlook(state, state.time).holding_up] == ["a", "b", "d"]
    # Of those that are estimated the youngest ends last.
    state.durations.append(Duration(9, 50.0))
    assert [t.trial for t in Outlook(state, state.time).holding_up] == ["b", "a", "d"]
    # One that has outlasted all that is known comes first.
    state.trials["a"].started_at = state.time - 55
    assert [t.trial for t in Outlook(state, state.time).holding_up] == ["a", "b", "d"]


def test_a_step_waits_for_its_last_trial_and_that_ones_earlier_attempts() -> None:
    step: list[AnyEvent] = [
        started(),
        StepStarted(step=1, groups={"g": "copy-01"}),
        RunPhaseChanged(phase=RunPhase.SAMPLING, step=0),
        queued("t1"),
        phase("t1", TrialPhase.SETUP, "sandbox"),
        phase("t1", TrialPhase.SETUP, "sandbox"),
        msgspec.structs.replace(finished("t1", None), seconds=PhaseSeconds(build=2)),
        TrialRetried(trial="t1", successor="t1b", reason="sandbox_lost"),
        queued("t1b"),
        phase("t1b", TrialPhase.MODEL),
    ]
    state = folded(*step)
    wait = step_wait(Outlook(state, state.time + 5))
    assert wait is not None
    assert (wait.step, wait.live) == (1, True)
    assert wait.seconds == {"queue": 1, "build": 2, "sampling": 5}
    assert in_words(wait) == "sampling 62%, build 25%"
    over = StepFinished(
        step=1, weights_version=1, metrics={"time/wait/sampling": 3.0, "time/wait/queue": 1.0}
    )
    wait = step_wait(Outlook(folded(*step, finished("t1b", 1.0), over), 0.0))
    assert wait is not None
    assert not wait.live
    assert wait.shares == {"queue": 0.25, "sampling": 0.75}
