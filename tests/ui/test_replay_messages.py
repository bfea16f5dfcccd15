"""What moving a replay's clock says stands beside the clock."""

from __future__ import annotations

from tbtui.journal.rundir import RunDirectory
from tbtui.ui.application import TbtuiApp
from tbtui.ui.runs import ReplayedRun
from tbtui.ui.services import RecordedRun
from tests.ui.opening import pane
from tests.ui.picture import settle


async def test_moving_by_milestones_leaves_no_box_on_the_screen(
    run_directory: RunDirectory,
) -> None:
    recorded = ReplayedRun(run_directory)
    app = TbtuiApp(RecordedRun(run_directory), recorded=recorded, live=False)
    async with app.run_test(size=(160, 45), notifications=True) as pilot:
        await settle(app)
        await pilot.press("greater_than_sign")
        await settle(app)
        first = pane(pilot, "transport").text
        assert " sandbox lost: worker 1 was killed (signal 9) " in first
        assert " 0:04 / 0:40 " in first
        await pilot.press(*["greater_than_sign"] * 30)
        await settle(app)
        assert " none after this " in pane(pilot, "transport").text
        assert not app._notifications
        await pilot.press("minus", "circumflex_accent")
        await settle(app)
        assert "none after" not in pane(pilot, "transport").text
