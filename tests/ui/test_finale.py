"""What is shown when a run ends before a person's eyes."""

from __future__ import annotations

import asyncio
from typing import Literal

import pytest
from textual.pilot import Pilot
from textual.widgets import Static

from tbtui.journal.rundir import RunDirectory
from tbtui.ui.app import TbtuiApp
from tbtui.ui.screens.cockpit import Cockpit
from tbtui.ui.screens.finale import FinaleDialog
from tbtui.ui.screens.runs import RunsScreen
from tbtui.ui.services import RunEnd
from tests.ui.picture import PastHost, settle
from tests.ui.synthetic import START


class EndingHost(PastHost):
    """A run that ends when the test says so."""

    outlives = False

    def __init__(self, directory: RunDirectory) -> None:
        super().__init__(directory)
        self.over: asyncio.Future[RunEnd] = asyncio.get_running_loop().create_future()

    async def ended(self) -> RunEnd:
        return await asyncio.shield(self.over)

    def interrupt(self) -> None:
        if not self.over.done():
            self.over.set_result(RunEnd("interrupted", "stopped"))


async def end(pilot: Pilot[int], host: EndingHost, shown: bool) -> None:
    assert isinstance(pilot.app, TbtuiApp)
    await settle(pilot.app)
    host.over.set_result(RunEnd("finished", "2 steps"))
    for _ in range(100):
        await pilot.pause(0.02)
        dialog = isinstance(pilot.app.screen, FinaleDialog) and pilot.app.screen.query("#hint")
        if dialog if shown else pilot.app._notifications:
            return
    raise AssertionError("nothing was said of the end")


@pytest.mark.parametrize(
    ("key", "then"),
    [("escape", "look"), ("r", "replay"), ("q", ""), ("c", "runs")],
)
@pytest.mark.parametrize("size", [(80, 24), (160, 45)])
async def test_a_run_that_ends_says_what_it_has_come_to(
    run_directory: RunDirectory,
    size: tuple[int, int],
    key: str,
    then: Literal["look", "replay", "", "runs"],
) -> None:
    host = EndingHost(run_directory)
    app = TbtuiApp(host, live=False, clock=lambda: START + 40.0)
    async with app.run_test(size=size, notifications=True) as pilot:
        await end(pilot, host, shown=True)
        said = "\n".join(str(each.render()) for each in app.screen.query(Static))
        assert f"{run_directory.name} has finished: 1 step" in said
        assert "held out" in said
        assert "held-out pass rate" in said
        assert "took" in said
        assert app.screen.query_one("#dialog").region.bottom <= size[1]
        await pilot.press(key)
        await pilot.pause()
        if then == "look":
            assert isinstance(app.screen, Cockpit)
        elif then == "runs":
            assert isinstance(app.screen, RunsScreen)
    assert app.lifecycle.follow_up == (then if then == "replay" else "")
    assert app.return_value == (0 if then in ("replay", "") else None)


@pytest.mark.parametrize("on_hangup", ["detach", "stop"])
async def test_who_wants_to_leave_hears_how_it_would_go_on(
    run_directory: RunDirectory, on_hangup: str
) -> None:
    app = TbtuiApp(EndingHost(run_directory), live=False, clock=lambda: START + 40.0)
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(app)
        app.live_run.state.settings["on_hangup"] = on_hangup
        await pilot.press("q")
        said = str(app.screen.query_one("#detail", Static).render())
        assert ("tbtui attach joins it" in said) == (on_hangup == "detach")
        assert "running" in said
        assert app.screen.query_one("#stay").region.bottom < 24


async def test_a_dialog_is_not_covered(run_directory: RunDirectory) -> None:
    host = EndingHost(run_directory)
    app = TbtuiApp(host, live=False, clock=lambda: START + 40.0)
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await pilot.press("question_mark")
        await end(pilot, host, shown=False)
        (toast,) = app._notifications
        assert toast.title == "The run has finished"
