"""Steps that overlap, runs that are resumed, alarms: what people see of them."""

from __future__ import annotations

from typing import Any

import msgspec

from tbtui.findings import Rule
from tbtui.journal.events import (
    AlarmRaised,
    AnyEvent,
    GroupAdded,
    Outcome,
    RunContinued,
    RunFinished,
    RunPhase,
    RunPhaseChanged,
    StepFinished,
    StepStarted,
    TrialFinished,
    TrialPhase,
    TrialPhaseChanged,
    WorkerStarted,
)
from tbtui.journal.figures import planned_steps
from tbtui.view.current import active_seconds, attempts, awaited, current_trials
from tbtui.view.times import Outlook, step_wait
from tests.events import group_scored, run_continued

from .story import finished, folded, queued, started


def sampled_ahead() -> list[AnyEvent]:
    """Step 1 has one trial left, step 2 is sampled meanwhile and has one done."""
    return [
        started(),
        StepStarted(step=1, groups={"g1": "copy-01"}),
        StepStarted(step=2, groups={"g2": "copy-01"}),
        RunPhaseChanged(phase=RunPhase.SAMPLING, step=0),
        *(queued(name, group="g1") for name in ("a1", "a2")),
        *(queued(name, group="g2", step=2) for name in ("b1", "b2")),
        *(TrialPhaseChanged(trial=n, phase=TrialPhase.ACTING) for n in ("b1", "b2", "a1", "a2")),
        finished("b1", 1.0),
        finished("a1", 0.0),
    ]


def test_trials_and_groups_are_counted_in_their_own_step() -> None:
    score = group_scored("g1", {}, disposition="constant", baseline=0.0)
    done = StepFinished(step=1, weights_version=1, metrics={"async/staleness_max": 1.0})
    state = folded(*sampled_ahead(), finished("a2", 0.0), score, done)
    first, second = state.steps
    assert (first.rewards, second.rewards) == ([0.0, 0.0], [1.0])
    assert (first.signals, second.signals) == ({"g1": 0.0}, {})
    assert first.finished_at is not None
    assert second.finished_at is None
    assert state.open_steps() == [second]
    assert state.latest_metric("async/staleness_max") == 1.0


def test_the_run_waits_for_the_step_that_is_trained_next() -> None:
    state = folded(*sampled_ahead())
    assert awaited(state) == (1, "train")
    # b2 runs longer, but nothing waits for it yet.
    assert [trial.trial for trial in Outlook(state, state.time + 5).holding_up] == ["a2", "b2"]
    wait = step_wait(Outlook(state, state.time + 5))
    assert wait is not None
    assert (wait.step, wait.live) == (1, True)


def test_an_evaluation_is_waited_for_while_the_next_steps_are_sampled() -> None:
    evaluating = RunPhaseChanged(phase=RunPhase.EVALUATING, step=0)
    state = folded(*sampled_ahead(), evaluating, queued("e1", "move-07", "e", 0))
    assert awaited(state) == (0, "eval")
    assert Outlook(state, state.time).holding_up[0].trial == "e1"


def test_every_step_under_way_stays_in_the_grid_whole() -> None:
    state = folded(*sampled_ahead())
    assert [trial.trial for trial in current_trials(state)] == ["a1", "a2", "b1", "b2"]
    trained = StepFinished(step=1, weights_version=1, metrics={})
    state = folded(*sampled_ahead(), finished("a2", 0.0), trained)
    assert [trial.trial for trial in current_trials(state)] == ["b1", "b2"]


def continued(**other: Any) -> RunContinued:
    fields: dict[str, Any] = {"replayed": (1,), "reused": 2, "requeued": ("a2", "b2")}
    return run_continued(**{"settings": {"max_steps": 5}} | fields | other)


def cut_off(trial: str) -> TrialFinished:
    event = finished(trial, None, Outcome.CANCELLED)
    return msgspec.structs.replace(event, seconds=type(event.seconds)())


def resumed() -> list[AnyEvent]:
    again = queued("a2-a2", group="g1")
    return [
        *sampled_ahead(),
        WorkerStarted(worker=0, pid=7),
        *(cut_off(name) for name in ("a2", "b2")),
        RunFinished(status="interrupted", reason="killed"),
        continued(),
        msgspec.structs.replace(again, attempt=2),
    ]


def test_a_resumed_run_goes_on() -> None:
    state = folded(*resumed())
    assert (state.status, state.finished_at) == (None, None)
    assert state.phase is RunPhase.STARTING
    assert state.workers == {}
    assert state.max_steps == 5
    assert "resumed from the start; 2 finished trials" in state.notes[-1].text
    assert "step 1" in state.notes[-1].text


def test_a_trial_that_was_cut_off_has_its_place_taken_by_the_next_attempt() -> None:
    state = folded(*resumed())
    shown = [trial.trial for trial in current_trials(state)]
    assert "a2-a2" in shown
    assert "a2" not in shown
    assert [each.trial for each in attempts(state.trials["a2-a2"], state)] == ["a2", "a2-a2"]
    assert state.tasks["copy-01"].live == 1
    # How long it was dead is nobody's working time.
    assert state.trials["a2"].spent == {}
    assert active_seconds(state.trials["a2"], state.time + 86_400) == 0


def test_an_added_group_belongs_to_its_step() -> None:
    added = GroupAdded(step=1, group="g9", task="copy-01", replaces="g1")
    state = folded(*sampled_ahead(), added, queued("c1", group="g9"))
    assert state.steps[0].groups == ["g1", "g9"]
    assert state.groups["g9"].replaces == "g1"
    assert state.groups["g9"].trials == ["c1"]


def test_alarms_are_kept_and_noted() -> None:
    alarm = AlarmRaised(
        alarm=Rule.NO_SIGNAL, step=7, text="nothing for 5 steps", numbers={}, action="pause"
    )
    state = folded(started(), alarm)
    assert (list(state.alarms), state.alarms_raised) == ([alarm], 1)
    assert state.notes[-1].level == "alarm"
    assert state.notes[-1].text == ("no signal at step 7: nothing for 5 steps; the run is paused")


def test_how_many_steps_there_will_be() -> None:
    assert planned_steps({"max_steps": 40}, 10) == 40
    assert planned_steps({"max_steps": None, "n_epochs": 2, "batch_size": 4}, 10) == 5
    assert planned_steps({"max_steps": 3, "n_epochs": 2, "batch_size": 4}, 10) == 3
    assert planned_steps({}, 10) == 0
