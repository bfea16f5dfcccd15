"""What each screen looks like, small and wide; and the main ones in every theme.

`pytest -n 0 tests/ui/test_snapshots.py -m 'slow or not slow' --snapshot-update` after a wanted
change; `python tests/ui/picture.py` makes pictures to look at.
"""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion
from textual.pilot import Pilot
from textual.widgets import Input

from tbtui.config import RunConfig
from tbtui.journal.commands import Command
from tbtui.journal.rundir import RunDirectory
from tbtui.resources import tasks_dir
from tbtui.task_library import CatalogLibrary
from tbtui.ui.application import TbtuiApp
from tbtui.ui.base_app import BaseApp, BrowserApp
from tbtui.ui.runs import ReplayedRun
from tbtui.ui.services import RecordedRun
from tests.ui.group_run import START as GROUP_START
from tests.ui.group_run import write_group_run
from tests.ui.opening import rest
from tests.ui.picture import PastHost
from tests.ui.review_run import ReviewedRun
from tests.ui.styled_text import StyledTextExtension, styled_text
from tests.ui.synthetic import START

OTHER_THEMES = ("tbtui-light", "tbtui-high-contrast", "tbtui-colour-blind", "tbtui-16")
SIZES = {"80x24": (80, 24), "160x45": (160, 45)}


@dataclass(frozen=True)
class Runs:
    """What the screens are shown over."""

    own: RunDirectory
    """Forty seconds of a run, beside another one."""
    served: RunDirectory
    group: RunDirectory
    """Its siblings part early."""
    reviewed: RunDirectory
    """A step waits, about which something has been decided."""
    nothing: Path
    """A directory without runs."""


@pytest.fixture(scope="module")
def runs(
    tmp_path_factory: pytest.TempPathFactory, run_directory: RunDirectory, served_run: RunDirectory
) -> Runs:
    logs, others = tmp_path_factory.mktemp("logs"), tmp_path_factory.mktemp("runs")
    for name, run in (("own", run_directory), ("served", served_run)):
        shutil.copytree(run.path, logs / name)
    nothing = tmp_path_factory.mktemp("nothing")
    return Runs(
        RunDirectory(logs / "own"),
        RunDirectory(logs / "served"),
        write_group_run(others / "parting"),
        write_review(others / "reviewed"),
        nothing,
    )


def write_review(path: Path) -> RunDirectory:
    reviewed = ReviewedRun(path, timeout=300.0)
    reviewed.command(Command("exclude", "copy-03-4", "ada", "it read the solution"))
    reviewed.command(
        Command("relabel", "copy-03-8", "ada", "the network was down", {"reward": 1.0})
    )
    reviewed.close()
    return reviewed.run


def past(run: RunDirectory, now: float = START + 40.0) -> TbtuiApp:
    return TbtuiApp(PastHost(run), live=False, clock=lambda: now)


def replayed(run: RunDirectory, seconds: float, trial: str | None = None) -> TbtuiApp:
    recorded = ReplayedRun(run)
    recorded.playback.go_to(START + seconds)
    host = RecordedRun(run)
    return TbtuiApp(host, recorded=recorded, trial=trial, live=False, monotonic=lambda: 0.0)


def browser(runs: Runs) -> BrowserApp:
    directories = [tasks_dir() / name for name in ("starter", "workshop")]
    return BrowserApp(CatalogLibrary(directories, RunConfig(logs_dir=runs.nothing)))


Make = Callable[[Runs], BaseApp[Any]]
OWN: Make = lambda runs: past(runs.own)  # noqa: E731
SCREENS: dict[str, tuple[Make, tuple[str, ...]]] = {
    "cockpit": (OWN, ()),
    "trial": (OWN, ("right", "right", "enter")),
    "verdict": (OWN, ("right", "right", "enter", "5")),
    "prompt": (OWN, ("right", "right", "enter", "p")),
    "group": (lambda runs: past(runs.group, GROUP_START + 60.0), ("g", "right", "right")),
    "tasks": (browser, ("down", "down", "right", "space", "right", "3", "down", "space")),
    "runs": (OWN, ("R",)),
    "compared": (OWN, ("R", "m", "down", "m")),
    "search": (OWN, ("ctrl+f", *"No such file", "enter")),
    "asked": (OWN, ("c",)),
    "queue": (OWN, ("5",)),
    "curves": (OWN, ("4",)),
    "step": (OWN, ("6",)),
    "filtered": (OWN, ("slash", *"failed")),
    "bar-by-state": (OWN, ("6", "down", "0", "o")),
    "tree": (OWN, ("1", "right")),
    "rewound": (OWN, ("right", "right", "enter", "up", "K")),
    "review": (lambda runs: past(runs.reviewed, START + 12.0), ("V", "up")),
    "help": (OWN, ("question_mark",)),
    "palette": (OWN, ("ctrl+p",)),
    "leaving": (OWN, ("q",)),
    "replay": (lambda runs: replayed(runs.own, 18.0), ()),
    "replay-trial": (lambda runs: replayed(runs.own, 26.0, "s001-append-03-1"), ()),
    "served": (lambda runs: past(runs.served, START + 39.0), ()),
    "served-queue": (lambda runs: past(runs.served, START + 39.0), ("5",)),
    "served-trial": (lambda runs: past(runs.served, START + 39.0), ("right", "right", "enter")),
}
"""What each is opened over, and the keys that lead there."""
FEW = ("cockpit", "trial", "replay")
"""Screens that are compared at every run of the tests, and in every theme at the long ones."""


async def still(pilot: Pilot[Any]) -> None:
    """Until all has been read and drawn, and nothing blinks."""
    await rest(pilot)
    for box in pilot.app.screen.query(Input):
        box.cursor_blink = False
    await rest(pilot)


@pytest.fixture
def screen_text(snapshot: SnapshotAssertion) -> SnapshotAssertion:
    return snapshot.use_extension(StyledTextExtension)


@asynccontextmanager
async def looking(runs: Runs, screen: str, size: str) -> AsyncIterator[Pilot[Any]]:
    make, keys = SCREENS[screen]
    async with make(runs).run_test(size=SIZES[size], notifications=True) as pilot:
        await still(pilot)
        for key in keys:
            # What was said on the way.
            pilot.app.clear_notifications()
            await pilot.press(key)
            await still(pilot)
        yield pilot


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(
    "screen",
    [pytest.param(each, marks=() if each in FEW else pytest.mark.slow) for each in SCREENS],
)
async def test_a_screen_looks_as_it_did(
    screen_text: SnapshotAssertion, runs: Runs, screen: str, size: str
) -> None:
    async with looking(runs, screen, size) as pilot:
        assert styled_text(pilot.app) == screen_text


@pytest.mark.slow
@pytest.mark.parametrize("screen", [*FEW, "review"])
async def test_main_screens_look_as_they_did_in_every_theme(
    screen_text: SnapshotAssertion, runs: Runs, screen: str
) -> None:
    async with looking(runs, screen, "160x45") as pilot:
        for theme in OTHER_THEMES:
            pilot.app.theme = theme
            await still(pilot)
            assert styled_text(pilot.app) == screen_text(name=theme)


@pytest.mark.slow
@pytest.mark.parametrize("size", SIZES)
async def test_the_tour_looks_as_it_did(
    screen_text: SnapshotAssertion, runs: Runs, size: str
) -> None:
    async with looking(runs, "cockpit", size) as pilot:
        assert isinstance(pilot.app, TbtuiApp)
        pilot.app.action_tour()
        await still(pilot)
        assert styled_text(pilot.app) == screen_text
