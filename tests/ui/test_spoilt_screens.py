"""A run with rows that are not what was written: shown, with a word on what is missing."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tbtui.journal.rundir import RunDirectory
from tbtui.ui.application import TbtuiApp
from tbtui.ui.runs import ReplayedRun
from tbtui.ui.services import RecordedRun
from tests.events import entries_of, spoil
from tests.ui.opening import open_trial
from tests.ui.picture import settle
from tests.ui.styled_text import styled_text

pytestmark = pytest.mark.slow


@pytest.fixture
def copy(run_directory: RunDirectory, tmp_path: Path) -> RunDirectory:
    return RunDirectory(Path(shutil.copytree(run_directory.path, tmp_path / "copy")))


def first(run: RunDirectory, kind: str) -> int:
    return next(entry.seq for entry in entries_of(run) if entry.event.kind == kind)


@pytest.mark.parametrize("kind", ["run_started", "trial_queued", "step_started", "turn_sampled"])
async def test_a_live_run_is_shown_without_it(
    past_app: Callable[..., TbtuiApp], copy: RunDirectory, kind: str
) -> None:
    seq = first(copy, kind)
    spoil(copy, seq)
    app = past_app(copy)
    async with app.run_test(size=(160, 45), notifications=True) as pilot:
        await settle(app)
        assert f"row {seq} ({kind}) of " in styled_text(app)
        assert app.live_run.state.trials
        trial = await open_trial(pilot)
        assert app.live_run.state.trials[trial].label in styled_text(app)


async def test_a_recorded_one_can_be_gone_about_in(copy: RunDirectory) -> None:
    kinds = ("trial_queued", "eval_finished", "turn_observed")
    for seq in [first(copy, kind) for kind in kinds]:
        spoil(copy, seq)
    recorded = ReplayedRun(copy)
    app = TbtuiApp(RecordedRun(copy), recorded=recorded, live=False)
    async with app.run_test(size=(160, 45), notifications=True) as pilot:
        await settle(app)
        recorded.playback.go_to(recorded.playback.end)
        await settle(app)
        assert " and 2 others of" in styled_text(app)
        for key in ("less_than_sign",) * 3:
            before = recorded.playback.position
            await pilot.press(key)
            await settle(app)
            assert recorded.playback.position < before


async def test_tokens_that_are_spoilt_are_not_shown(
    past_app: Callable[..., TbtuiApp], copy: RunDirectory
) -> None:
    with closing(sqlite3.connect(copy.database)) as db, db:
        db.execute("UPDATE samples SET pieces = x'00', new_prompt_ids = x'00'")
    app = past_app(copy)
    async with app.run_test(size=(160, 45), notifications=True) as pilot:
        await settle(app)
        await open_trial(pilot)
        for key in ("t", "escape", "p"):
            await pilot.press(key)
            await settle(app)
        assert "(a model call's tokens) is corrupt" in styled_text(app)
