"""A probe in the app: its arms in place of the curves, round by round, and its verdict."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tbtui.journal.events import (
    AnyEvent,
    ArmMeasured,
    Estimate,
    ProbeArm,
    ProbeMeasured,
    ProbeStarted,
    RunFinished,
    RunPhase,
    RunPhaseChanged,
    TaskRecord,
)
from tbtui.journal.rundir import RunDirectory
from tests.events import run_started, trial_finished, trial_queued
from tests.ui.opening import pane, press, replaying, window, write_on
from tests.ui.styled_text import styled_text

ARMS = (
    ProbeArm(agent="terminus-2", temperature=1.0),
    ProbeArm(agent="terminus-2", temperature=0.7),
)


def measured(rounds: int, signal: float, stopped: str = "") -> ProbeMeasured:
    figures: dict[str, Any] = {
        **{"trials": rounds, "scored": rounds, "broken": 0, "answers": 10, "readable": 9, "cut": 1},
        **{"overflowed": 0, "tokens": 500, "signal_size": rounds, "trial_sec": 3.0},
        "pass_at": {1: Estimate(value=0.5, low=0.1, high=0.9)},
        **{"signal": Estimate(value=signal, low=0.1, high=0.9), "step_sec": 60.0},
    }
    arms = tuple(
        ArmMeasured(agent=arm.agent, temperature=arm.temperature, **figures) for arm in ARMS
    )
    return ProbeMeasured(
        rounds=rounds,
        arms=arms,
        spent={"hours": 0.01, "rollouts": 2.0 * rounds},
        tokens_per_sec=50.0,
        memory_mb=512.0,
        stopped=stopped,
    )


def a_probe(*, over: bool) -> list[AnyEvent]:
    """The first of two rounds of one task is over, or both are."""
    settings = {"probe": ["terminus-2@1", "terminus-2@0.7"], "max_steps": 0, "group_size": 8}
    told: list[AnyEvent] = [
        run_started(settings=settings, tasks=(TaskRecord(name="copy-01", split="train"),)),
        RunPhaseChanged(phase=RunPhase.EVALUATING, step=0),
        ProbeStarted(
            arms=ARMS,
            tasks=("copy-01",),
            trials=2,
            budget={"rollouts": 4.0},
            typed=("model_name=starter",),
        ),
    ]
    for number in (1, 2) if over else (1,):
        for arm in (1, 2):
            index = 2 * (arm - 1) + number
            trial, label = f"p{arm}-copy-01-{index}", f"copy-01/{index}"
            told.append(
                trial_queued(
                    trial, label=label, task="copy-01", group=f"p{arm}-copy-01", step=1,
                    purpose="probe",
                )
            )  # fmt: skip
            told.append(trial_finished(trial, reward=float(number == 1)))
        told.append(measured(number, 1.0, "all trials are over" if number == 2 else ""))
    if over:
        told.append(RunFinished(status="finished", reason="go"))
    return told


@pytest.mark.parametrize("over", [False, True], ids=["under way", "over"])
@pytest.mark.parametrize("size", [(80, 24), (160, 45)], ids=["small", "large"])
async def test_the_arms_fill_in_and_end_in_a_verdict(
    tmp_path: Path, over: bool, size: tuple[int, int]
) -> None:
    run = RunDirectory.create(tmp_path / "run")
    write_on(run, 0.0, *a_probe(over=over))
    app, _ = replaying(run)
    async with window(app, size) as pilot:
        await press(pilot, "dollar_sign", "4")
        shown = pane(pilot, "curve").text
        assert "terminus-2@1" in shown and "terminus-2@0.7" in shown
        assert "rollouts of 4 rollouts" in shown
        if over:
            assert "go: 100% of groups of 2 have a signal" in shown
            assert "tbtui run model_name=starter" in shown
        else:
            assert shown.count("1/2") == 2
            assert "verdict" not in shown and "tbtui run" not in shown


@pytest.mark.parametrize("size", [(80, 24), (160, 45)], ids=["small", "large"])
async def test_nothing_of_training_or_held_out_tasks_is_said(
    tmp_path: Path, size: tuple[int, int]
) -> None:
    run = RunDirectory.create(tmp_path / "run")
    write_on(run, 0.0, *a_probe(over=False))
    app, _ = replaying(run)
    async with window(app, size) as pilot:
        await press(pilot, "dollar_sign")
        shown = styled_text(app)
        assert "probe, round 2 of 2" in shown
        assert "held-out tasks" not in shown and "after the first" not in shown
        if size == (80, 24):
            assert "as asked   p1 terminus-2@1  .50 pass@1 1.0 signal 90% read" in shown
            assert "best other p2 terminus-2@0.7" in shown
