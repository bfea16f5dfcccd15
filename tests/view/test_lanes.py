"""What the sampler and the trainer did, over time."""

from __future__ import annotations

import pytest

from tbtui.journal.events import (
    AnyEvent,
    RunPhase,
    RunPhaseChanged,
    TrialPhase,
    TrialPhaseChanged,
)
from tbtui.view.fold import Fold
from tbtui.view.lanes import lanes
from tbtui.vocabulary import PUBLISHING
from tests.events import run_continued

from .story import entries, queued, started

EVENTS: list[AnyEvent] = [
    started(),
    RunPhaseChanged(phase=RunPhase.SAMPLING, step=0),
    queued("t1"),
    TrialPhaseChanged(trial="t1", phase=TrialPhase.MODEL),
    TrialPhaseChanged(trial="t1", phase=TrialPhase.ACTING),
    RunPhaseChanged(phase=RunPhase.TRAINING, step=0),
    RunPhaseChanged(phase=RunPhase.TRAINING, step=0, detail=PUBLISHING),
    RunPhaseChanged(phase=RunPhase.SAMPLING, step=1),
]


def test_idle_is_what_no_work_takes_and_publishing_is_not_training() -> None:
    fold = Fold()
    fold.apply_all(entries(EVENTS))
    # Sampling begins at 1002; 2 s more without an event.
    sampler, trainer = lanes(fold.state.lanes, 1002.0, 1010.0, 8)
    assert sampler.shares == pytest.approx({"sampling": 1 / 8})
    assert trainer.shares == pytest.approx({"training": 1 / 8, "publishing": 1 / 8})
    assert (sampler.idle, trainer.idle) == pytest.approx((7 / 8, 6 / 8))
    assert [cell and cell.work for cell in trainer.cells] == [
        *[None] * 4, "training", "publishing", None, None
    ]  # fmt: skip


def test_the_time_between_two_processes_is_in_no_lane() -> None:
    fold = Fold()
    fold.apply_all(entries([*EVENTS[:4], run_continued()]))
    assert lanes(fold.state.lanes, 1004.0, 1020.0, 4) == ()
