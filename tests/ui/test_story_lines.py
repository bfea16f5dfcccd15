"""What tasks ask and the stories of trials, on every screen that shows a trial."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path

import pytest
from textual.pilot import Pilot

from tbtui.config import RunConfig
from tbtui.export import rendered
from tbtui.export.record import read_trial
from tbtui.journal.rundir import RunDirectory
from tbtui.journal.samples import pack_texts
from tbtui.task_library import CatalogLibrary
from tbtui.ui.panes.library import LibraryTree
from tbtui.ui.panes.turns import TurnPane
from tbtui.ui.screens.group import GroupScreen
from tbtui.ui.screens.prompt import PromptPane
from tbtui.ui.screens.tasks import TaskBrowser
from tbtui.ui.services import Services
from tbtui.ui.stories import Stories
from tbtui.view.story import tell
from tests.ui.opening import Opener, app_of, open_trial, pane, press
from tests.waiting import until

ASKS = "Write the list of notes to /app/unheard-of.json"
PROMPT = (
    "You are an agent.\n" * 60
    + f"\nTask Description:\n{ASKS}\n\nOne note a line.\n\n\nCurrent terminal state:\n$ "
)


@pytest.fixture(scope="module")
def asking(run_directory: RunDirectory, tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    """The synthetic run with first prompts as the installed agent writes them."""
    path = tmp_path_factory.mktemp("asking") / "run"
    shutil.copytree(run_directory.path, path)
    copy = RunDirectory(path)
    with sqlite3.connect(copy.database) as db:
        db.execute(
            "UPDATE samples SET prompt_text = ? WHERE id IN"
            " (SELECT min(id) FROM samples GROUP BY trial)",
            (pack_texts([PROMPT]),),
        )
    db.close()
    return copy


def story_of(pilot: Pilot[int], name: str) -> str:
    run = app_of(pilot).live_run
    trial = run.state.trials[name]
    told = tell(run.stories.transcript(trial), run.stories.instruction(trial))
    assert told.tried
    return told.ended if not trial.live else told.tried


@pytest.mark.parametrize("size", [(80, 24), (160, 45)])
async def test_a_trial_says_what_its_task_asks_and_its_story(
    opened: Opener, asking: RunDirectory, size: tuple[int, int]
) -> None:
    async with opened(size, directory=asking) as pilot:
        name = await open_trial(pilot)
        lines = pane(pilot, "lines").text.splitlines()
        assert ASKS in lines[0]
        assert story_of(pilot, name).split(":")[0] in lines[1]
        assert not pane(pilot, "task").display
        await press(pilot, "6")
        assert "One note a line." in pane(pilot, "task").text


async def test_a_very_low_window_leaves_the_rows_to_the_turns(opened: Opener) -> None:
    async with opened((60, 16)) as pilot:
        await open_trial(pilot)
        assert not pane(pilot, "lines").display
        assert pane(pilot, "turns").size.height > 3


async def test_the_cockpits_terminal_is_captioned(opened: Opener, asking: RunDirectory) -> None:
    async with opened((160, 45), directory=asking) as pilot:
        rows = pane(pilot, "terminal").text.splitlines()
        assert ASKS in rows[0]
        assert rows[-1].startswith(" story  ")


async def test_siblings_have_their_task_and_a_story_each(
    opened: Opener, asking: RunDirectory
) -> None:
    async with opened((160, 45), directory=asking) as pilot:
        name = await open_trial(pilot)
        await press(pilot, "g")
        assert isinstance(pilot.app.screen, GroupScreen)
        assert ASKS in pane(pilot, "asks").text
        shown = " ".join(pane(pilot, "heads").text.split())
        assert story_of(pilot, name).split()[0] in shown


async def test_without_a_prompt_the_tasks_directory_says_it(opened: Opener, tmp_path: Path) -> None:
    async with opened((160, 45)) as pilot:
        app = app_of(pilot)
        state = app.live_run.state
        state.tasks_dir = str(tmp_path)
        for task in state.tasks:
            (tmp_path / task).mkdir()
            (tmp_path / task / "instruction.md").write_text(f"# {task}\n\n{ASKS}\n")
        trial = next(iter(state.trials.values()))
        assert ASKS in Stories(app.live_run).instruction(trial)
        shutil.rmtree(tmp_path)
        assert Stories(app.live_run).instruction(trial) == ""


async def test_tokens_of_an_ended_trial_are_of_its_least_likely_turn(opened: Opener) -> None:
    async with opened((160, 45)) as pilot:
        await open_trial(pilot)
        turns = pilot.app.screen.query_one(TurnPane)
        place = turns.transcript.least_likely
        assert place is not None
        title = str(pane(pilot, "tokens").border_title)
        assert title.strip().endswith(f"turn {place + 1}, highest -log p")
        # A turn that a person chooses has its own, the newest one too.
        await pilot.press("left_square_bracket", "right_square_bracket")
        last = len(turns.transcript.turns)
        assert str(pane(pilot, "tokens").border_title).strip().endswith(f"turn {last}")


async def test_a_token_of_that_turn_takes_the_turns_along(opened: Opener) -> None:
    async with opened((160, 45)) as pilot:
        await open_trial(pilot)
        turns = pilot.app.screen.query_one(TurnPane)
        place = turns.transcript.least_likely
        pane(pilot, "tokens").focus()
        await press(pilot, "right")
        assert turns.chosen == place
        assert not turns.follow


async def test_a_prompt_opens_at_the_instruction(opened: Opener, asking: RunDirectory) -> None:
    async with opened((100, 30), directory=asking) as pilot:
        await open_trial(pilot)
        await press(pilot, "p")
        text = pilot.app.screen.query_one(PromptPane)
        top = round(text.scroll_y)
        assert top > 0
        rows = text.text.splitlines()[top : top + text.size.height]
        assert any("Task Description:" in line for line in rows)
        assert any(ASKS in line for line in rows)


TASKS = Path(__file__).parents[2] / "tasks/starter"


async def test_the_browser_opens_at_the_trials_task(opened: Opener) -> None:
    services = Services(library=lambda _: CatalogLibrary([TASKS], RunConfig()))
    async with opened((160, 45), services=services) as pilot:
        app = app_of(pilot)
        name = await open_trial(pilot)
        trial = app.live_run.state.trials[name]
        # The synthetic run's tasks are named as these are, but others.
        trial.task = "nested-04"
        await pilot.press("T")
        await until(lambda: isinstance(app.screen, TaskBrowser))
        tree = app.screen.query_one(LibraryTree)
        await until(lambda: tree.current is not None and tree.current.name == "nested-04")


def test_an_exported_page_has_the_task_and_the_story(asking: RunDirectory) -> None:
    with sqlite3.connect(asking.database) as db:
        rows = db.execute("SELECT trial FROM events WHERE kind = 'trial_finished'").fetchall()
    db.close()
    record = max((read_trial(asking, name) for (name,) in rows), key=lambda each: len(each.calls))
    assert record.instruction == f"{ASKS}\n\nOne note a line."
    page = rendered(record, "html")
    assert f"<summary>{ASKS}</summary>" in page
    assert "One note a line." in page
    assert record.story.ended in page or "&#x27;" in page
