"""A real step of real trials, reviewed on the screen and then trained."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from tbtui.journal.commands import Command
from tbtui.journal.events import GroupScored, ReviewChanged, ReviewClosed
from tbtui.ui.app import TbtuiApp
from tests.engines.real_run import RealRun
from tests.ui.opening import pane
from tests.ui.picture import PastHost, settle

pytestmark = pytest.mark.slow


class RealHost(PastHost):
    """Hands commands to the run as the app's own engine would get them."""

    def __init__(self, run: RealRun) -> None:
        super().__init__(run.directory)
        self._run = run

    def submit(self, command: Command) -> None:
        super().submit(command)
        self._run.submit(command)


async def shown(app: TbtuiApp, condition: Callable[[], object]) -> None:
    """Until the screen knows it."""
    async with asyncio.timeout(60):
        while not condition():
            await settle(app)
            await asyncio.sleep(0.05)
    await settle(app)


async def test_what_is_decided_on_the_screen_is_what_is_trained(tmp_path: Path) -> None:
    run = RealRun(tmp_path / "run", review="always")
    await run.begin()
    run.policy.go.set()
    app = TbtuiApp(RealHost(run), live=False)
    try:
        async with app.run_test(size=(160, 45), notifications=True) as pilot:
            await shown(app, lambda: app.live_run.state.reviews)
            state = app.live_run.state
            first, second, third = state.trials.values()
            assert "review waits · V" in pane(pilot, "status").text
            await pilot.press("V")
            await settle(app)
            assert "✗ ✗ ✗" in pane(pilot, "review-groups").text
            assert "no signal" in pane(pilot, "review-groups").text
            await pilot.press("L", "1", "tab", *"done", "enter")
            await shown(app, lambda: first.relabelled)
            await pilot.press("right", "e", "enter")
            await shown(app, lambda: second.excluded)
            assert "✓*✗⊘✗" in pane(pilot, "review-groups").text
            await pilot.press("right", "space")
            await shown(app, lambda: not state.reviews[1].undecided)
            await pilot.press("a")
            await shown(app, lambda: state.review_closed)
            end = await run.end()
    finally:
        await run.stop()
    assert end.status == "finished", end
    (scored,) = run.events(GroupScored)
    assert {name: score.reward for name, score in scored.trials.items()} == {
        first.trial: 1.0,
        second.trial: None,
        third.trial: 0.0,
    }
    assert scored.disposition == "trained"
    # What was on the screen last is what was trained, to the digit.
    (last,) = run.events(ReviewChanged)[-1].groups
    assert (last.baseline, last.trials) == (scored.baseline, scored.trials)
    (closed,) = run.events(ReviewClosed)
    assert closed.how == "accepted"
