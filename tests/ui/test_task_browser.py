"""Choosing tasks by keyboard and mouse: what is shown, selected, saved and started."""

from __future__ import annotations

import gc
import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot
from textual.widgets import Input

from tbtui.catalog.sets import load_set, set_names
from tbtui.config import RunConfig
from tbtui.errors import UserError
from tbtui.journal.rundir import RunDirectory
from tbtui.resources import tasks_dir
from tbtui.task_library import CatalogLibrary
from tbtui.ui.application import TbtuiApp
from tbtui.ui.base_app import BrowserApp
from tbtui.ui.library import PastTask, RunRecord, SavedSet, Start, TaskEntry
from tbtui.ui.panes.key_bar import KeyLine
from tbtui.ui.panes.library import LibraryTree, TaskPreview
from tbtui.ui.screens.tasks import TaskBrowser
from tbtui.ui.services import Services
from tbtui.ui.user import User
from tests.ui.opening import burst, rest, screen_of
from tests.ui.picture import PastHost, settle
from tests.ui.synthetic import START

pytestmark = pytest.mark.slow

DATA_SETS = ("starter", "workshop")


class Tasks(CatalogLibrary):
    """The bundled tasks, some of which have been tried."""

    def __init__(self, logs_dir: Path) -> None:
        directories = [tasks_dir() / name for name in DATA_SETS]
        super().__init__(directories, RunConfig(logs_dir=logs_dir))
        self._read: list[TaskEntry] = []

    def entries(self) -> list[TaskEntry]:
        # Once for all tests of this file.
        self._read = self._read or super().entries()
        return self._read

    def records(self) -> dict[str, PastTask]:
        run = RunRecord("first", START, 16, 16, 6.0, 6, 40.0)
        later = RunRecord("second", START + 86_400, 8, 8, 8.0, 8, 20.0)
        starter = tasks_dir() / "starter"
        return {
            str(starter / "copy-01"): PastTask((later, run)),
            str(starter / "copy-02"): PastTask((run,)),
            str(starter / "move-01"): PastTask((later,)),
        }


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Tasks:
    return Tasks(tmp_path_factory.mktemp("runs"))


@asynccontextmanager
async def opened(library: Tasks, size: tuple[int, int] = (80, 24)) -> AsyncIterator[Pilot[Start]]:
    app = BrowserApp(library)
    async with app.run_test(size=size, notifications=True) as pilot:
        await rest(pilot)
        yield pilot


def browser(pilot: Pilot[Any]) -> TaskBrowser:
    return screen_of(pilot, TaskBrowser)


def selected(pilot: Pilot[Any]) -> list[str]:
    choice = browser(pilot).choice
    return [choice.entries[id].name for id in choice.chosen()]


def shown(pilot: Pilot[Any]) -> list[str]:
    choice = browser(pilot).choice
    return [choice.entries[id].name for id in choice.shown]


def line(pilot: Pilot[Any], id: str) -> str:
    return str(pilot.app.screen.query_one(id).render())


async def search(pilot: Pilot[Any], text: str) -> None:
    await pilot.press("slash")
    pilot.app.screen.query_one(Input).value = text
    await pilot.press("enter")
    await rest(pilot)


async def test_what_is_typed_while_the_tasks_are_read_is_a_search(library: Tasks) -> None:
    app = BrowserApp(library)
    async with app.run_test() as pilot:
        burst(pilot, "/pass:<.5")
        await rest(pilot)
        assert app.screen.query_one(Input).value == "pass:<.5"
        assert len(shown(pilot)) == 1


async def test_the_tree_has_data_sets_kinds_and_tasks(library: Tasks) -> None:
    async with opened(library) as pilot:
        tree = pilot.app.screen.query_one(LibraryTree)
        assert tree.text.splitlines()[0].split()[:3] == ["▾", "□", "starter"]
        assert "workshop" in tree.text
        assert "copy-01" not in tree.text
        await pilot.press("down", "down", "right", "right")
        await rest(pilot)
        assert tree.current is not None
        assert tree.current.name == "copy-01"
        (told,) = [each for each in tree.text.splitlines() if "copy-01" in each]
        assert told.split() == ["□", "copy-01", "easy", ".58", "33", "s", "2", "kB"]
        await pilot.press("left")
        assert tree.current.name == "copy"
        await pilot.press("left")
        assert "copy-01" not in tree.text


async def test_space_selects_a_task_a_kind_and_a_data_set(library: Tasks) -> None:
    async with opened(library) as pilot:
        assert "none of 90 tasks" in line(pilot, "#library-totals")
        await pilot.press("space")
        assert len(selected(pilot)) == 72
        await pilot.press("space", "down", "right", "space")
        assert selected(pilot) == [f"append-0{number}" for number in range(1, 10)]
        await pilot.press("down", "space")
        assert "append-01" not in selected(pilot)
        tree = pilot.app.screen.query_one(LibraryTree).text.splitlines()
        assert "◧" in tree[0]
        assert "◧" in tree[1]
        assert "□" in tree[2]
        # How many are selected stands beside the name, not in the column of difficulties.
        assert tree[0].startswith(" ▾ ◧ starter  8/72 ")
        assert tree[1].startswith("   ▾ ◧ append  8/9 ")
        assert "8 tasks, 3 of them held out · 8 rollouts each" in line(pilot, "#library-totals")
        assert "unknown" in line(pilot, "#library-totals")


async def test_the_time_of_a_step_comes_from_recorded_rollouts(library: Tasks) -> None:
    async with opened(library) as pilot:
        await search(pilot, "tries:>0")
        assert shown(pilot) == ["copy-01", "copy-02", "move-01"]
        await pilot.press("a")
        # 3 tasks x 8 rollouts of about 31 s, 16 at once.
        assert "3 tasks · 8 rollouts each · about 47 s a step" in line(pilot, "#library-totals")


async def test_searching_filters_and_a_wrong_term_says_so(library: Tasks) -> None:
    async with opened(library) as pilot:
        keys = pilot.app.screen.query_one(KeyLine)
        await pilot.press("slash", *"pass:<.5", "space", "c")
        await pilot.pause()
        assert keys.render_line(0).text.split() == ["enter", "keep", "esc", "drop", "^p", "more"]
        assert shown(pilot) == ["copy-02"]
        assert "1 of 90 shown" in line(pilot, "#library-title")
        await pilot.press("escape")
        assert "space select" in keys.render_line(0).text
        assert len(shown(pilot)) == 90
        await search(pilot, "colour:red")
        assert "unknown term" in line(pilot, "#library-title")
        await pilot.press("escape")
        await pilot.press("d")
        assert browser(pilot).choice.query == "difficulty:easy"
        await pilot.press("d", "v")
        assert browser(pilot).choice.query == "difficulty:medium is:selected"
        assert shown(pilot) == []
        await pilot.press("v", "v")
        assert browser(pilot).choice.query == "difficulty:medium is:heldout"
        await pilot.press("v")
        assert browser(pilot).choice.query == "difficulty:medium"


async def test_all_none_and_invert_are_about_what_is_shown(library: Tasks) -> None:
    async with opened(library) as pilot:
        await search(pilot, "kind:copy")
        await pilot.press("a")
        assert len(selected(pilot)) == 9
        await pilot.press("escape", "i")
        assert len(selected(pilot)) == 81
        assert "copy-01" not in selected(pilot)
        await pilot.press("n")
        assert selected(pilot) == []


async def test_the_preview_has_every_part_of_a_task(library: Tasks) -> None:
    async with opened(library, (140, 40)) as pilot:
        preview = pilot.app.screen.query_one(TaskPreview)
        await pilot.press("down", "down", "right", "right")
        await rest(pilot)
        assert "copy-01 · copy · easy · trained on" in preview.text
        assert "Copy" in preview.text
        for key, part in (
            ("2", "FROM debian"),
            ("3", "reward"),
            ("4", "solution/solve.sh"),
            ("5", "24 rollouts in 2 runs"),
        ):
            await pilot.press(key)
            assert part in preview.text
        await pilot.press("right_square_bracket")
        assert "Copy" in preview.text


async def test_a_preview_that_another_overtakes_before_it_begins_leaves_nothing(
    library: Tasks,
) -> None:
    async with opened(library, (140, 40)) as pilot:
        tree = pilot.app.screen.query_one(LibraryTree)
        await pilot.press("down", "down", "right", "right")
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            for _ in range(2):
                tree.action_move(1)
                browser(pilot)._show_current()
            await pilot.pause()
            gc.collect()
        assert not told, [str(each.message) for each in told]


async def test_a_small_window_shows_a_task_in_full(library: Tasks) -> None:
    async with opened(library) as pilot:
        tree, preview = (
            pilot.app.screen.query_one(LibraryTree),
            pilot.app.screen.query_one(TaskPreview),
        )
        await pilot.press("down", "right", "right", "enter")
        assert not tree.display
        assert preview.has_focus
        await pilot.press("escape")
        assert tree.display
        assert tree.has_focus


async def test_a_selection_is_saved_loaded_and_deleted(library: Tasks) -> None:
    async with opened(library) as pilot:
        await pilot.press("s")
        assert set_names() == []
        await search(pilot, "kind:copy")
        await pilot.press("a", "s", *"mine", "enter")
        await rest(pilot)
        assert load_set("mine").tasks_dir == tasks_dir() / "starter"
        assert len(load_set("mine").tasks) == 9
        assert "@mine" in line(pilot, "#library-totals")
        await pilot.press("n")
        assert "@mine" not in line(pilot, "#library-totals")
        await pilot.press("o")
        await rest(pilot)
        await pilot.press("enter")
        await rest(pilot)
        assert len(selected(pilot)) == 9
        await pilot.press("o")
        await rest(pilot)
        await pilot.press("x")
        assert set_names() == ["mine"]
        await pilot.press("x")
        await rest(pilot)
        assert set_names() == []
        assert len(selected(pilot)) == 9


class Unreadable(Tasks):
    """What has been kept of them can't be read."""

    def records(self) -> dict[str, PastTask]:
        raise UserError("runs can't be read")

    def sets(self) -> list[SavedSet]:
        raise UserError("task_sets can't be read")


async def test_what_was_kept_may_be_unreadable(tmp_path: Path) -> None:
    async with opened(Unreadable(tmp_path)) as pilot:
        await pilot.press("o")
        await rest(pilot)
        said = [each.message for each in pilot.app._notifications]
        assert said == ["runs can't be read", "task_sets can't be read"]
        assert "none of 90 tasks" in line(pilot, "#library-totals")


async def test_what_a_search_opens_is_left_by_left(library: Tasks) -> None:
    async with opened(library) as pilot:
        tree = pilot.app.screen.query_one(LibraryTree)
        await search(pilot, "copy-01")
        await pilot.press("down")
        assert tree.current is not None
        assert tree.current.level == "kind"
        await pilot.press("left")
        assert tree.current.level == "dataset"
        assert "copy-01" in tree.text


async def test_hints_name_the_keys_that_a_person_has(library: Tasks, tmp_path: Path) -> None:
    (tmp_path / "keys.toml").write_text(
        'library-toggle = "f5"\nlibrary-all = "f6"\nlibrary-save = "f7"\n'
    )
    app = BrowserApp(library, user=User.load(tmp_path, tmp_path / "state"))
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await rest(pilot)
        await pilot.press("f7", "r", "o")
        await app.workers.wait_for_complete()
        said = [each.message for each in app._notifications]
    assert said == [
        "Select some tasks first: f5, or f6 for all that are shown.",
        "Select the tasks to train on first: f5, or f6 for all that are shown.",
        "No sets yet: f7 saves the selection as one.",
    ]


async def test_a_run_is_started_from_the_selection(library: Tasks) -> None:
    async with opened(library) as pilot:
        await pilot.press("r")
        assert pilot.app.is_running
        await search(pilot, "kind:copy")
        await pilot.press("a", "r")
        await pilot.app.workers.wait_for_complete()
    start = pilot.app.return_value
    assert isinstance(start, Start)
    where = tasks_dir() / "starter"
    assert start.settings == (f"tasks_dir={where}", "tasks=@last-run")
    assert start.command == f"tbtui run tasks_dir={where} tasks=@last-run"
    assert len(load_set("last-run").tasks) == 9


async def test_leaving_starts_nothing(library: Tasks) -> None:
    async with opened(library) as pilot:
        await pilot.press("space", "escape")
        await pilot.pause()
    assert pilot.app.return_value is None


async def test_the_mouse_ticks_boxes_opens_kinds_and_turns_tabs(library: Tasks) -> None:
    async with opened(library, (140, 40)) as pilot:
        # In the border's corner at (0, 0); the heads are row 1, starter row 2, append row 3.
        await pilot.click("#library-tree", offset=(4, 3))
        assert "append-01" in pilot.app.screen.query_one(LibraryTree).text
        await pilot.click("#library-tree", offset=(8, 4))
        assert selected(pilot) == ["append-01"]
        await pilot.click("#library-preview", offset=(38, 1))
        assert pilot.app.screen.query_one(TaskPreview).tab == 2


class Many(Tasks):
    """More tasks than anybody has."""

    def entries(self) -> list[TaskEntry]:
        one = replace(super().entries()[0], dataset="many", summary="[red]markup[/] \x1b[2J")
        return [
            replace(one, id=f"/many/{number}", name=f"task-{number}", kind=f"kind-{number % 40}")
            for number in range(5_000)
        ]


async def test_thousands_of_tasks_are_no_burden(tmp_path: Path) -> None:
    app = BrowserApp(Many(tmp_path))
    async with app.run_test(size=(140, 40)) as pilot:
        await rest(pilot)
        await search(pilot, "task")
        assert len(browser(pilot).choice.rows) == 5_041
        drawn = 0
        tree = pilot.app.screen.query_one(LibraryTree)
        line_of = tree._line

        def counted(*arguments: Any) -> Any:
            nonlocal drawn
            drawn += 1
            return line_of(*arguments)

        tree._line = counted  # type: ignore[method-assign]
        await pilot.press("pagedown", "a", "i")
        await rest(pilot)
        # What is scrolled away is not drawn.
        assert 0 < drawn < 500


async def test_from_inside_a_run_the_command_is_copied(
    run_directory: RunDirectory, library: Tasks
) -> None:
    app = TbtuiApp(
        PastHost(run_directory),
        live=False,
        clock=lambda: START + 40.0,
        services=Services(library=lambda run: library),
    )
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        await settle(app)
        await pilot.press("T")
        await rest(pilot)
        await rest(pilot)
        await pilot.press("space", "r")
        await rest(pilot)
        where = tasks_dir() / "starter"
        assert app.clipboard == f"tbtui run tasks_dir={where} tasks=@last-run"
        await pilot.press("escape")
        assert not isinstance(app.screen, TaskBrowser)
        assert app.is_running
