"""The end of a run, quitting, interrupting, failing: the engine ends first; the exit code tells."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import pytest
from textual.pilot import Pilot
from textual.widgets import Static

from tbtui.config import RunConfig
from tbtui.journal.commands import Command
from tbtui.journal.rundir import RunDirectory
from tbtui.resources import tasks_dir
from tbtui.task_library import CatalogLibrary
from tbtui.ui.application import TbtuiApp
from tbtui.ui.screens.cockpit import Cockpit
from tbtui.ui.screens.dialogs import LeaveDialog
from tbtui.ui.screens.finale import FinaleDialog
from tbtui.ui.screens.runs import RunsScreen
from tbtui.ui.screens.tasks import TaskBrowser
from tbtui.ui.services import RunEnd, Services
from tests.ui.opening import app_of, pane, window
from tests.ui.picture import PastHost, settle
from tests.ui.synthetic import START


class ManualHost(PastHost):
    """An engine that ends when the test says so."""

    def __init__(self, run: RunDirectory) -> None:
        super().__init__(run)
        self.calls: list[str] = []
        self.over: asyncio.Future[RunEnd] = asyncio.get_running_loop().create_future()

    def start(self) -> None:
        self.calls.append("start")

    def submit(self, command: Command) -> None:
        self.calls.append(command.verb)

    def interrupt(self) -> None:
        self.calls.append("interrupt")

    async def ended(self) -> RunEnd:
        return await asyncio.shield(self.over)


@asynccontextmanager
async def manual(tmp_path: Path, **options: Any) -> AsyncIterator[tuple[Pilot[int], ManualHost]]:
    """The app over such a run."""
    host = ManualHost(RunDirectory.create(tmp_path / "run"))
    app = TbtuiApp(host, live=False, **options)
    async with app.run_test(size=(100, 40), notifications=True) as pilot:
        await pilot.pause()
        assert host.calls == ["start"]
        yield pilot, host


async def ends(pilot: Pilot[int], host: ManualHost, end: RunEnd | OSError) -> None:
    """The run's end, and what the screen says then."""
    if isinstance(end, OSError):
        host.over.set_exception(end)
    else:
        host.over.set_result(end)
    await pilot.pause()
    await pilot.pause()
    app_of(pilot).redraw_all()


INTERRUPTED = RunEnd("interrupted", "stopped by a person")


async def test_q_asks_and_n_stays(tmp_path: Path) -> None:
    async with manual(tmp_path) as (pilot, host):
        app = app_of(pilot)
        await pilot.press("q")
        assert isinstance(app.screen, LeaveDialog)
        for key in ("n", "escape", "enter"):
            await pilot.press(key)
            assert not isinstance(app.screen, LeaveDialog)
            await pilot.press("q")
        assert host.calls == ["start"]


async def test_q_y_interrupts_says_so_waits_and_exits_130(tmp_path: Path) -> None:
    async with manual(tmp_path) as (pilot, host):
        app = app_of(pilot)
        await pilot.press("q", "y")
        assert host.calls == ["start", "interrupt"]
        app.redraw_all()
        assert "cleaning up" in pane(pilot, "status").text
        assert app.return_value is None
        host.over.set_result(INTERRUPTED)
        await app.lifecycle.clean_up()
        await pilot.pause()
    assert app.return_value == app.return_code == 130


async def test_ctrl_c_asks_a_second_one_stops_and_a_third_insists(tmp_path: Path) -> None:
    async with manual(tmp_path) as (pilot, host):
        app = app_of(pilot)
        await pilot.press("ctrl+c")
        assert isinstance(app.screen, LeaveDialog)
        assert host.calls == ["start"]
        await pilot.press("ctrl+c")
        assert host.calls == ["start", "interrupt"]
        assert not app.lifecycle.insisted
        await pilot.press("ctrl+c")
        assert app.lifecycle.insisted
    assert app.return_value == 130
    await app.lifecycle.clean_up()
    host.over.cancel()


@pytest.mark.parametrize(
    ("end", "words", "code"),
    [
        (RunEnd("finished", "40 steps done"), ("finished", "40 steps done"), 0),
        (RunEnd("failed", "disk [/] full"), ("failed", "disk [/] full"), 1),
        (OSError("no space left"), ("no space left",), 1),  # the engine has broken
    ],
)
async def test_after_the_end_one_can_look_around(
    tmp_path: Path, end: RunEnd | OSError, words: tuple[str, ...], code: int
) -> None:
    async with manual(tmp_path) as (pilot, host):
        app = app_of(pilot)
        await ends(pilot, host, end)
        assert app.return_value is None
        status = pane(pilot, "status").text
        assert all(each in status for each in (*words, "q quits"))
        await pilot.press("2", "0", "space", "P")
        assert host.calls == ["start"]
        await pilot.press("q")
    assert app.return_value == app.return_code == code


async def test_when_the_app_is_gone_the_engine_is_interrupted_and_awaited(tmp_path: Path) -> None:
    async with manual(tmp_path) as (pilot, host):
        app = app_of(pilot)
    ending = asyncio.ensure_future(app.lifecycle.clean_up())
    await asyncio.sleep(0)
    assert host.calls == ["start", "interrupt"]
    assert not ending.done()
    host.over.set_result(INTERRUPTED)
    await ending
    assert app.own.end == INTERRUPTED


async def test_the_end_of_a_run_is_noticed_after_the_task_browser_was_open(tmp_path: Path) -> None:
    def library(_: object) -> CatalogLibrary:
        return CatalogLibrary([tasks_dir() / "starter"], RunConfig(logs_dir=tmp_path))

    async with manual(tmp_path, services=Services(library=library)) as (pilot, host):
        app = app_of(pilot)
        await pilot.press("T")
        while not isinstance(app.screen, TaskBrowser):
            await pilot.pause(0.01)
        await pilot.press("escape", "ctrl+c", "ctrl+c")
        assert host.calls == ["start", "interrupt"]
        await ends(pilot, host, INTERRUPTED)
        assert app.lifecycle.end == INTERRUPTED
    assert app.return_value == 130


async def end(pilot: Pilot[int], host: ManualHost, shown: bool) -> None:
    await settle(app_of(pilot))
    host.over.set_result(RunEnd("finished", "2 steps"))
    for _ in range(100):
        await pilot.pause(0.02)
        dialog = isinstance(pilot.app.screen, FinaleDialog) and pilot.app.screen.query("#hint")
        if dialog if shown else pilot.app._notifications:
            return
    raise AssertionError("nothing was said of the end")


@pytest.mark.parametrize(
    ("key", "then", "size"),
    [
        *(("escape", "look", (80, 24)), ("r", "replay", (160, 45))),
        *(("q", "", (80, 24)), ("c", "runs", (80, 24))),
    ],
)
async def test_a_run_that_ends_says_what_it_has_come_to(
    run_directory: RunDirectory,
    size: tuple[int, int],
    key: str,
    then: Literal["look", "replay", "", "runs"],
) -> None:
    host = ManualHost(run_directory)
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
    app = TbtuiApp(ManualHost(run_directory), live=False, clock=lambda: START + 40.0)
    async with window(app, (80, 24)) as pilot:
        app.live_run.state.settings["on_hangup"] = on_hangup
        await pilot.press("q")
        said = str(app.screen.query_one("#detail", Static).render())
        assert (f"tbtui attach {run_directory.path} joins it" in said) == (on_hangup == "detach")
        assert "running" in said
        assert app.screen.query_one("#stay").region.bottom < 24


async def test_a_dialog_is_not_covered(run_directory: RunDirectory) -> None:
    host = ManualHost(run_directory)
    app = TbtuiApp(host, live=False, clock=lambda: START + 40.0)
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await pilot.press("question_mark")
        await end(pilot, host, shown=False)
        (toast,) = app._notifications
        assert toast.title == "The run has finished"
