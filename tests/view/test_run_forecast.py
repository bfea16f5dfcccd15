"""How long a run will still take."""

from __future__ import annotations

import pytest

from tbtui.view.state import Activity, RunState, StepView, Stretch
from tbtui.view.times import run_remaining_sec


def run_of(*stretches: tuple[Activity, int, float], finished: int, of: int = 10) -> RunState:
    """Stretches one after another: activity, step, seconds; the last one goes on."""
    state = RunState(step=finished, settings={"max_steps": of})
    at = 0.0
    for activity, step, seconds in stretches:
        state.timeline.append(Stretch(activity, step, at, at + seconds))
        at += seconds
    state.timeline[-1].until = None
    for step in range(1, finished + 2):
        state.steps.append(StepView(step, 0.0, finished_at=1.0 if step <= finished else None))
    return state


def test_before_the_first_step_has_finished_nothing_is_known() -> None:
    state = run_of(("sampling", 1, 9.0), finished=0)
    assert run_remaining_sec(state, 9.0) is None


def test_steps_to_come_take_as_long_as_the_latest_ones() -> None:
    state = run_of(
        ("starting", 0, 30.0), ("evaluating", 0, 20.0),
        ("sampling", 1, 8.0), ("training", 1, 2.0),
        ("sampling", 2, 9.0), ("training", 2, 1.0),
        ("sampling", 3, 4.0),
        finished=2,
    )  # fmt: skip
    # 8 steps of 10 s, 4 s of the third one are over.
    assert run_remaining_sec(state, 74.0) == pytest.approx(76.0)
    # A step that takes longer than the others is expected to end, not to have ended.
    assert run_remaining_sec(state, 74.0 + 60.0) == pytest.approx(70.0)


def test_rest_is_no_work_and_evaluations_are_shared_out() -> None:
    state = run_of(
        ("sampling", 1, 10.0), ("paused", 1, 500.0),
        ("sampling", 2, 10.0), ("evaluating", 2, 8.0),
        ("sampling", 3, 0.0),
        finished=2,
    )  # fmt: skip
    assert run_remaining_sec(state, 528.0) == pytest.approx(8 * (10.0 + 4.0))


def test_one_slow_step_does_not_decide() -> None:
    state = run_of(
        ("sampling", 1, 100.0),
        ("sampling", 2, 10.0),
        ("sampling", 3, 10.0),
        ("sampling", 4, 0.0),
        finished=3,
    )
    assert run_remaining_sec(state, 120.0) == pytest.approx(70.0)


@pytest.mark.parametrize("change", [{"paused": True}, {"status": "finished"}, {"settings": {}}])
def test_a_run_that_rests_or_has_no_end_has_no_forecast(change: dict[str, object]) -> None:
    state = run_of(("sampling", 1, 10.0), ("sampling", 2, 0.0), finished=1)
    assert run_remaining_sec(state, 10.0) is not None
    for name, value in change.items():
        setattr(state, name, value)
    assert run_remaining_sec(state, 10.0) is None
