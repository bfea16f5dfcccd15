"""Whatever people do, in whatever order: the app goes on, and so does the way back."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from tbtui.config import RunConfig
from tbtui.task_library import CatalogLibrary
from tbtui.ui.application import TbtuiApp
from tbtui.ui.library import TaskEntry
from tbtui.ui.panes.library import LibraryTree
from tbtui.ui.screens.cockpit import Cockpit
from tbtui.ui.screens.tasks import TaskBrowser
from tbtui.ui.services import Services
from tests.ui.opening import Opener
from tests.ui.walk import following, walk, wandering
from tests.ui.worlds import WORLDS


@pytest.mark.parametrize("kind", ["steered", "replayed"])
async def test_a_short_walk(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # what is exported goes here
    await walk(kind, tmp_path, wandering(1, actions=30))


@pytest.mark.slow
@pytest.mark.parametrize("kind", WORLDS)
async def test_a_walk(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    await walk(kind, tmp_path, wandering(0, actions=60))


# What walks have found.


async def test_keys_that_come_fast_leave_one_screen_once(tmp_path: Path) -> None:
    fast = ("press", "enter", "enter", "enter")
    await walk("replayed", tmp_path, following([("press", "ctrl+p"), fast, ("home",)]))


async def test_a_double_click_in_the_palette_does_it_once(tmp_path: Path) -> None:
    actions = [("press", "ctrl+p"), ("type", "choose tasks"), ("click", 12, 8, 2), ("home",)]
    await walk("steered", tmp_path, following(actions))


async def test_what_is_pasted_in_a_box_is_no_escape(tmp_path: Path) -> None:
    pasted = "a\x1b[2J\tb\nc"
    await walk("replayed", tmp_path, following([("press", "slash"), ("paste", pasted)]))


async def test_a_tick_while_the_screens_are_taken_away_breaks_nothing(
    opened: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticks = []

    def tick(screen: Cockpit) -> None:
        ticks.append(len(screen.children))
        app = screen.app
        assert isinstance(app, TbtuiApp)
        app.tick()

    monkeypatch.setattr(Cockpit, "on_unmount", tick, raising=False)
    async with opened((80, 24)):
        pass
    assert ticks == [0]


async def test_a_screen_that_is_left_reads_no_more_for_panes_that_go(
    opened: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Slow(CatalogLibrary):
        def entries(self) -> list[TaskEntry]:
            read.wait()
            return []

    reading: list[str] = []

    def note(tree: LibraryTree) -> None:
        reading.extend(each.name for each in tree.app.workers if not each.is_cancelled)

    read = threading.Event()
    monkeypatch.setattr(LibraryTree, "on_unmount", note, raising=False)
    async with opened(
        (80, 24), services=Services(library=lambda run: Slow([], RunConfig()))
    ) as pilot:
        await pilot.press("T")
        while not isinstance(pilot.app.screen, TaskBrowser):
            await pilot.pause()
        assert "library" in [each.name for each in pilot.app.workers]
        await pilot.press("escape")
        assert isinstance(pilot.app.screen, Cockpit)
        read.set()
    assert "library" not in reading
