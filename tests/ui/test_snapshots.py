"""What each screen looks like in each theme, small and wide.

`pytest tests/ui/test_snapshots.py -m 'slow or not slow' --snapshot-update` after a wanted change;
`python tests/ui/picture.py` makes pictures to look at.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion
from textual.pilot import Pilot
from textual.widgets import Input

from tbtui.config import RunConfig
from tbtui.journal.rundir import RunDirectory
from tbtui.resources import tasks_dir
from tbtui.task_library import CatalogLibrary
from tbtui.ui.application import TbtuiApp
from tbtui.ui.base_app import BaseApp, BrowserApp
from tbtui.ui.runs import ReplayedRun
from tbtui.ui.services import RecordedRun
from tests.ui.group_run import START as GROUP_START
from tests.ui.group_run import write_group_run
from tests.ui.picture import PastHost, settle
from tests.ui.styled_text import StyledTextExtension, styled_text
from tests.ui.synthetic import START

THEMES = ("tbtui-dark", "tbtui-light", "tbtui-high-contrast", "tbtui-colour-blind", "tbtui-16")
SIZES = [pytest.param((80, 24), id="80x24"), pytest.param((160, 45), id="160x45")]


@dataclass(frozen=True)
class Runs:
    """What the screens are shown over."""

    own: RunDirectory
    """Forty seconds of a run, beside another one."""
    served: RunDirectory
    group: RunDirectory
    """Its siblings part early."""
    nothing: Path
    """A directory without runs."""


@pytest.fixture(scope="module")
def runs(
    tmp_path_factory: pytest.TempPathFactory, run_directory: RunDirectory, served_run: RunDirectory
) -> Runs:
    logs = tmp_path_factory.mktemp("logs")
    for name, run in (("own", run_directory), ("served", served_run)):
        shutil.copytree(run.path, logs / name)
    group = write_group_run(tmp_path_factory.mktemp("runs") / "parting")
    nothing = tmp_path_factory.mktemp("nothing")
    return Runs(RunDirectory(logs / "own"), RunDirectory(logs / "served"), group, nothing)


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
PALETTE = ("ctrl+p",)
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
    "help": (OWN, ("question_mark",)),
    "palette": (OWN, PALETTE),
    "leaving": (OWN, ("q",)),
    "replay": (lambda runs: replayed(runs.own, 18.0), ()),
    "replay-trial": (lambda runs: replayed(runs.own, 26.0, "s001-append-03-1"), ()),
    "served": (lambda runs: past(runs.served, START + 39.0), ()),
    "served-queue": (lambda runs: past(runs.served, START + 39.0), ("5",)),
    "served-trial": (lambda runs: past(runs.served, START + 39.0), ("right", "right", "enter")),
}
"""What each is opened over, and the keys that lead there."""
FEW = ("cockpit", "trial", "replay")
"""Screens of which a picture is compared at every run of the tests."""


async def rest(pilot: Pilot[Any]) -> None:
    """Until all has been read and drawn, and nothing blinks."""
    app = pilot.app
    # Of no workers, all would be waited for.
    if reading := [each for each in app.workers if each.name != "engine"]:
        await app.workers.wait_for_complete(reading)
    for box in app.screen.query(Input):
        box.cursor_blink = False
    await pilot.pause()
    if isinstance(app, TbtuiApp):
        await settle(app)
    await pilot.pause()


@pytest.fixture
def screen_text(snapshot: SnapshotAssertion) -> SnapshotAssertion:
    return snapshot.use_extension(StyledTextExtension)


async def look(
    pilot: Pilot[Any], keys: tuple[str, ...], themes: tuple[str, ...], snapshot: SnapshotAssertion
) -> None:
    """Press the keys, and compare in each theme."""
    await rest(pilot)
    await press(pilot, keys)
    for theme in themes:
        pilot.app.theme = theme
        await rest(pilot)
        if keys == PALETTE:
            # It keeps the theme that it was opened in, and goes when another one is chosen in it.
            await press(pilot, ("escape", *PALETTE))
        assert styled_text(pilot.app) == snapshot(name=theme)


async def press(pilot: Pilot[Any], keys: tuple[str, ...]) -> None:
    for key in keys:
        # What was said on the way.
        pilot.app.clear_notifications()
        await pilot.press(key)
        await rest(pilot)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("screen", FEW)
async def test_the_main_screens_look_as_they_did(
    screen_text: SnapshotAssertion, runs: Runs, screen: str, size: tuple[int, int]
) -> None:
    make, keys = SCREENS[screen]
    async with make(runs).run_test(size=size, notifications=True) as pilot:
        await look(pilot, keys, THEMES[:1], screen_text)


@pytest.mark.slow
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("screen", SCREENS)
async def test_every_screen_looks_as_it_did_in_every_theme(
    screen_text: SnapshotAssertion, runs: Runs, screen: str, size: tuple[int, int]
) -> None:
    make, keys = SCREENS[screen]
    themes = THEMES[1:] if screen in FEW else THEMES
    async with make(runs).run_test(size=size, notifications=True) as pilot:
        await look(pilot, keys, themes, screen_text)


@pytest.mark.slow
@pytest.mark.parametrize("size", SIZES)
async def test_the_tour_looks_as_it_did(
    screen_text: SnapshotAssertion, runs: Runs, size: tuple[int, int]
) -> None:
    app = past(runs.own)
    async with app.run_test(size=size, notifications=True) as pilot:
        await rest(pilot)
        app.action_tour()
        await look(pilot, (), THEMES, screen_text)
