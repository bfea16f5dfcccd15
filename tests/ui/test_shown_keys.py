"""Every key that the row at the bottom shows changes something, on every screen."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from textual.pilot import Pilot

from tbtui.config import RunConfig
from tbtui.journal.rundir import RunDirectory
from tbtui.resources import tasks_dir
from tbtui.show_run import live_effect, make_settings, make_trial_tools
from tbtui.task_library import CatalogLibrary
from tbtui.ui.application import TbtuiApp
from tbtui.ui.input.abilities import perform
from tbtui.ui.input.keys import Key
from tbtui.ui.panes.key_bar import KeyBar, KeyLine
from tbtui.ui.runs import OpenRun, ReplayedRun
from tbtui.ui.screens.cockpit import Cockpit
from tbtui.ui.screens.tasks import TaskBrowser
from tbtui.ui.services import RecordedRun, RunEnd, Services
from tbtui.view.state import TrialView
from tests.ui.opening import app_of
from tests.ui.picture import PastHost, settle
from tests.ui.review_run import ReviewedRun, ReviewHost
from tests.ui.styled_text import styled_text
from tests.ui.synthetic import START

pytestmark = pytest.mark.slow

OUTSIDE = {"pager", "prompt-pager", "interrupt"}
"""Keys that start another program, or end the app."""
WAYS: dict[str, tuple[str, ...]] = {
    "cockpit": (),
    "trial": ("enter",),
    "prompt": ("enter", "p"),
    "group": ("g",),
    "charts": ("M",),
    "diagnosis": ("D",),
    "runs": ("R",),
    "settings": ("f3",),
    "history": ("c",),
    "search": ("ctrl+f", "e", "c", "h", "o", "enter"),
    "tasks": ("T",),
}


def finished(app: TbtuiApp) -> TrialView:
    return next(t for t in app.live_run.state.trials.values() if not t.live and t.turn > 1)


def running(app: TbtuiApp) -> TrialView:
    return next(t for t in app.live_run.state.trials.values() if t.live and t.turn and not t.paused)


async def rest(pilot: Pilot[int]) -> None:
    """Wait until all that was asked for is on the screen."""
    app = app_of(pilot)
    await pilot.pause()
    while any(w.name != "engine" and not w.is_finished for w in app.workers):  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    await settle(app)
    await pilot.pause()


async def go(pilot: Pilot[int], way: tuple[str, ...], trial: TrialView | None) -> None:
    """Go back to the cockpit, choose the trial and press keys."""
    app = app_of(pilot)
    while not isinstance(app.screen, Cockpit):
        app.pop_screen()
        await pilot.pause()
    if app.screen.full:
        app.screen.action_full(0)
    app.screen.query_one("#trials").focus()
    if trial is not None:
        app.selection.choose(trial.trial)
    await rest(pilot)
    for key in way:
        await pilot.press(key)
        await rest(pilot)
        if key == "enter" and trial is not None and not app.opened_trial and way[0] == "enter":
            await pilot.press("enter")  # its group's terminals were opened first
            await rest(pilot)
        while key == "T" and not isinstance(app.screen, TaskBrowser):
            await rest(pilot)
    await rest(pilot)
    app.clear_notifications()


def keys_shown(app: TbtuiApp) -> list[Key]:
    if bars := app.screen.query(KeyBar):
        return bars.first()._keys(app.frames.frame())
    return [key for _, _, key in app.screen.query_one(KeyLine)._places]


def marks(app: TbtuiApp, host: PastHost) -> tuple[object, ...]:
    """All that a key can change."""
    said = tuple(str(each.message) for each in app._notifications)
    return len(app.screen_stack), styled_text(app), len(host.commands), app.clipboard, said


async def idle_keys(
    pilot: Pilot[int], host: PastHost, way: tuple[str, ...], trial: TrialView | None
) -> list[str]:
    """Ids of the shown keys that change nothing, or only say why they don't."""
    app = app_of(pilot)
    await go(pilot, way, trial)
    screen = app.screen
    assert isinstance(screen, Cockpit) == (not way), way
    idle = []
    for key in keys_shown(app):
        if key.id in OUTSIDE:
            continue
        if app.screen is not screen or getattr(screen, "full", 0):
            await go(pilot, way, trial)
            screen = app.screen
        if key not in keys_shown(app):
            continue  # one that was pressed before has changed what there is to do
        app.clear_notifications()
        host.commands.clear()
        before = marks(app, host)
        await perform(app.screen, key)
        await pilot.pause()
        if app.return_value is not None:
            continue
        await rest(pilot)
        after = marks(app, host)
        told_only = before[:4] == after[:4]
        here = before[0] == after[0]
        refused = here and any(each.severity == "warning" for each in app._notifications)
        if told_only or refused:
            idle.append(key.id)
    return idle


def services(logs_dir: Path) -> Services:
    return Services(
        library=lambda _: CatalogLibrary([tasks_dir() / "starter"], RunConfig(logs_dir=logs_dir)),
        trial_tools=make_trial_tools,
        settings=make_settings,
        live_effect=live_effect,
        add_rule=lambda *_: None,
    )


@asynccontextmanager
async def shown(run: RunDirectory, how: str) -> AsyncIterator[tuple[Pilot[int], PastHost]]:
    host = PastHost(run)
    app = TbtuiApp(host, services(run.path.parent), live=False, clock=lambda: START + 40.0)
    async with app.run_test(size=(240, 45), notifications=True) as pilot:
        if how == "over":
            app.own.has_ended(RunEnd("finished", "2 steps"))
        if how.startswith("replay"):
            app.open_runs.show(OpenRun(ReplayedRun(run), RecordedRun(run)))
        await rest(pilot)
        if replay := app.live_run.replay:
            replay.playback.go_to(START + 20.0 if "middle" in how else replay.playback.end)
            app.moved()
            await rest(pilot)
        yield pilot, host


@pytest.mark.parametrize(
    ("how", "screen"),
    [
        *(("live", screen) for screen in WAYS),
        *(("over", "cockpit"), ("over", "trial"), ("replay", "cockpit"), ("replay", "trial")),
        ("replay, in the middle", "trial"),
    ],
)
async def test_every_key_that_is_shown_does_something(
    run_directory: RunDirectory, how: str, screen: str
) -> None:
    chosen: list[Callable[[TbtuiApp], TrialView]] = [finished]
    if how == "live" and screen in ("cockpit", "trial"):
        chosen.append(running)
    async with shown(run_directory, how) as (pilot, host):
        for choose in chosen:
            trial = choose(app_of(pilot))
            assert await idle_keys(pilot, host, WAYS[screen], trial) == [], choose.__name__


async def test_every_key_that_a_review_shows_does_something(tmp_path: Path) -> None:
    run = ReviewedRun(tmp_path / "reviewed")
    host = ReviewHost(run)
    app = TbtuiApp(host, services(tmp_path), live=False, clock=lambda: run.now)
    async with app.run_test(size=(240, 45), notifications=True) as pilot:
        await rest(pilot)
        for below in range(5):
            assert await idle_keys(pilot, host, ("V", *["down"] * below), None) == [], below
    run.close()
