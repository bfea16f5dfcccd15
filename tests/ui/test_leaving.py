"""Quitting, interrupting, failing: the engine always ends first, and the exit code tells."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tbtui.config import RunConfig
from tbtui.journal.commands import Command
from tbtui.journal.rundir import RunDirectory
from tbtui.resources import tasks_dir
from tbtui.task_library import CatalogLibrary
from tbtui.ui.application import TbtuiApp
from tbtui.ui.screens.dialogs import LeaveDialog
from tbtui.ui.screens.tasks import TaskBrowser
from tbtui.ui.services import RunEnd, Services
from tests.ui.opening import pane


class ManualHost:
    """An engine that ends when the test says so."""

    def __init__(self, path: Path) -> None:
        self.directory = RunDirectory.create(path)
        self.calls: list[str] = []
        self.over: asyncio.Future[RunEnd] = asyncio.get_running_loop().create_future()

    def start(self) -> None:
        self.calls.append("start")

    def submit(self, command: Command) -> None:
        self.calls.append(command.verb)

    def interrupt(self) -> None:
        self.calls.append("interrupt")

    def hang_up(self) -> bool:
        self.calls.append("hang_up")
        return self.goes_on

    goes_on = False
    outlives = False
    read_only = ""
    steerable = True

    async def ended(self) -> RunEnd:
        return await asyncio.shield(self.over)


INTERRUPTED = RunEnd("interrupted", "stopped by a person")


async def test_q_asks_and_n_stays(tmp_path: Path) -> None:
    host = ManualHost(tmp_path / "run")
    app = TbtuiApp(host, live=False)
    async with app.run_test(size=(100, 40)) as pilot:
        await pilot.pause()
        assert host.calls == ["start"]
        await pilot.press("q")
        assert isinstance(app.screen, LeaveDialog)
        for key in ("n", "escape", "enter"):
            await pilot.press(key)
            assert not isinstance(app.screen, LeaveDialog)
            await pilot.press("q")
        assert host.calls == ["start"]


async def test_q_y_interrupts_says_so_waits_and_exits_130(tmp_path: Path) -> None:
    host = ManualHost(tmp_path / "run")
    app = TbtuiApp(host, live=False)
    async with app.run_test(size=(100, 40)) as pilot:
        await pilot.pause()
        await pilot.press("q", "y")
        assert host.calls == ["start", "interrupt"]
        app.redraw_all()
        assert "cleaning up" in pane(pilot, "status").text
        assert app.return_value is None
        host.over.set_result(INTERRUPTED)
        await app.lifecycle.clean_up()
        await pilot.pause()
    assert app.return_value == app.return_code == 130


async def test_ctrl_c_does_not_ask_and_a_second_one_insists(tmp_path: Path) -> None:
    host = ManualHost(tmp_path / "run")
    app = TbtuiApp(host, live=False)
    async with app.run_test(size=(100, 40)) as pilot:
        await pilot.pause()
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
        (RunEnd("finished", "40 steps done"), "finished", 0),
        (RunEnd("failed", "disk [/] full"), "failed", 1),
    ],
)
async def test_after_the_end_one_can_look_around(
    tmp_path: Path, end: RunEnd, words: str, code: int
) -> None:
    host = ManualHost(tmp_path / "run")
    app = TbtuiApp(host, live=False)
    async with app.run_test(size=(100, 40), notifications=True) as pilot:
        await pilot.pause()
        host.over.set_result(end)
        await pilot.pause()
        await pilot.pause()
        app.redraw_all()
        assert app.return_value is None
        status = pane(pilot, "status").text
        assert words in status
        assert end.reason in status
        assert "q quits" in status
        await pilot.press("2", "0", "space", "P")
        assert host.calls == ["start"]
        await pilot.press("q")
    assert app.return_value == app.return_code == code


async def test_an_engine_that_breaks_is_a_failed_run(tmp_path: Path) -> None:
    host = ManualHost(tmp_path / "run")
    app = TbtuiApp(host, live=False)
    async with app.run_test(size=(100, 40)) as pilot:
        await pilot.pause()
        host.over.set_exception(OSError("no space left"))
        await pilot.pause()
        await pilot.pause()
        app.redraw_all()
        assert "no space left" in pane(pilot, "status").text
        await pilot.press("q")
    assert app.return_value == 1


async def test_when_the_app_is_gone_the_engine_is_interrupted_and_awaited(tmp_path: Path) -> None:
    host = ManualHost(tmp_path / "run")
    app = TbtuiApp(host, live=False)
    async with app.run_test(size=(100, 40)) as pilot:
        await pilot.pause()
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

    host = ManualHost(tmp_path / "run")
    app = TbtuiApp(host, live=False, services=Services(library=library))
    async with app.run_test(size=(100, 40)) as pilot:
        await pilot.pause()
        await pilot.press("T")
        while not isinstance(app.screen, TaskBrowser):
            await pilot.pause(0.01)
        await pilot.press("escape", "ctrl+c")
        assert host.calls == ["start", "interrupt"]
        host.over.set_result(INTERRUPTED)
        await pilot.pause()
        await pilot.pause()
        assert app.lifecycle.end == INTERRUPTED
    assert app.return_value == 130
