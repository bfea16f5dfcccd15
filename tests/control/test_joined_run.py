"""Opening somebody else's live run from the runs screen: seen, steered, and left as it is."""

from __future__ import annotations

import pytest
from textual.pilot import Pilot

from tbtui.engines.control.client import AttachedRun
from tbtui.errors import UserError
from tbtui.journal.events import CommandIssued
from tbtui.show_run import look_on, tasks_of_run
from tbtui.ui.app import TbtuiApp
from tbtui.ui.panes.runs import RunsPane
from tbtui.ui.screens.runs import RunsScreen
from tbtui.ui.screens.tasks import TaskBrowser
from tbtui.ui.services import Services
from tests.waiting import until

from .bench import LiveRun
from .conftest import Begin

pytestmark = pytest.mark.uid


async def open_run(pilot: Pilot[int], name: str) -> None:
    await pilot.press("R")
    await until(lambda: isinstance(pilot.app.screen, RunsScreen))
    runs = pilot.app.screen.query_one(RunsPane)
    await until(lambda: len(runs.listed) > 1)
    await pilot.press("slash", *name, "enter", "enter")


def said(app: TbtuiApp, text: str) -> bool:
    return any(text in str(toast.message) for toast in app._notifications)


@pytest.mark.slow
async def test_it_is_steered_once_its_controls_are_taken_and_goes_on(begin: Begin) -> None:
    mine, theirs = await begin("mine"), await begin("theirs", owner="me")
    app = TbtuiApp(AttachedRun(mine.directory, "ada"), services=Services(join=look_on))
    async with app.run_test(size=(100, 30), notifications=True) as pilot:
        await until(lambda: app.own.host.read_only == "" and app.live_run.state.trials)
        await open_run(pilot, "theirs")
        await until(lambda: said(app, "me has the controls. C takes the controls."))
        await until(lambda: app.live_run.state.trials)
        assert app.shown.badge == "watching theirs"
        await pilot.press("P")
        await until(lambda: said(app, "Read-only: me has the controls."))
        await pilot.press("C")
        await until(lambda: app.shown.refusal == "")
        assert app.shown.badge == "attached theirs"
        await pilot.press("P")
        await until(lambda: app.live_run.state.paused)
        assert theirs.run.read_only.endswith(" has the controls")
        await pilot.press("O")
        assert app.shown is app.own
        await until(lambda: theirs.run.read_only == "nobody has the controls")
        await pilot.press("P")
        await until(lambda: app.live_run.state.paused)
        await pilot.press("q")
    verbs = [event.verb for event in theirs.events(CommandIssued)]
    assert verbs == ["take", "pause"]
    assert [event.verb for event in mine.events(CommandIssued)] == ["take", "pause"]
    assert theirs.at_work()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("pid", "why"),
    [
        ("4194305", "theirs runs on another machine, or in another container"),
        (None, "can't be reached at"),
    ],
    ids=["another-machine", "no-answer"],
)
async def test_one_out_of_reach_is_followed_and_says_so(
    begin: Begin, pid: str | None, why: str
) -> None:
    mine, theirs = await begin("mine"), await begin("theirs")
    theirs.directory.control_socket.unlink()
    if pid is not None:
        # More than the kernel gives out: what another machine's process may be called.
        theirs.directory.lock.write_text(pid)
    app = TbtuiApp(AttachedRun(mine.directory, "ada"), services=Services(join=look_on))
    async with app.run_test(size=(100, 30), notifications=True) as pilot:
        await until(lambda: app.own.host.read_only == "" and app.live_run.state.trials)
        await open_run(pilot, "theirs")
        await until(lambda: said(app, why))
        await until(lambda: app.live_run.state.trials)
        seen = app.live_run.state.seq
        await until(lambda: app.live_run.state.seq > seen)
        assert app.shown.badge == "watching theirs"
        for key in ("P", "C", "x"):
            app.clear_notifications()
            await pilot.press(key)
            await until(lambda: said(app, "Read-only: "))
        titles = [each.title for each in app.get_system_commands(app.screen)]
        assert "own run (O)" in titles
        assert "pause (space)" not in titles
        await theirs.stop()
        await until(lambda: app.shown.end is not None)
        await pilot.press("q")


@pytest.mark.slow
async def test_the_tasks_of_an_attached_run_can_be_browsed(live: LiveRun) -> None:
    app = TbtuiApp(AttachedRun(live.directory, "ada"), services=Services(library=tasks_of_run))
    async with app.run_test(size=(100, 30), notifications=True) as pilot:
        await until(lambda: app.own.host.read_only == "" and app.live_run.state.trials)
        await pilot.press("T")
        await until(lambda: isinstance(app.screen, TaskBrowser))
        await pilot.press("escape")
        live.directory.config.write_text('tasks_dir = "/no/such/tasks"\n')
        await pilot.press("T")
        await until(lambda: said(app, "/no/such/tasks"))
        await pilot.press("q")
    live.directory.config.unlink()
    with pytest.raises(UserError, match=r"has no config\.toml"):
        tasks_of_run(live.directory)


@pytest.mark.slow
async def test_one_that_can_be_reached_later_is_joined_then(live: LiveRun) -> None:
    socket = live.directory.control_socket
    away = socket.with_name("away")
    socket.rename(away)
    host = AttachedRun(live.directory, "ada")
    host.start()
    await until(lambda: not host.steerable)
    assert "can't be reached at" in host.read_only
    away.rename(socket)
    await until(lambda: host.read_only == "")
    assert host.steerable
    host.interrupt()
    await host.ended()
