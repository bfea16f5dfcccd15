"""Other runs than one's own: listed, opened, compared, searched; and runs with spoilt rows."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import cast

import pytest
from textual.pilot import Pilot

from tbtui.journal.events import RunFinished
from tbtui.journal.rundir import RunDirectory, RunLock
from tbtui.journal.search import MOST, Hit
from tbtui.ui import services as services_module
from tbtui.ui.application import TbtuiApp
from tbtui.ui.panes.pane import Frame
from tbtui.ui.panes.runs import RunsPane
from tbtui.ui.panes.turns import TurnPane
from tbtui.ui.screens.cockpit import Cockpit
from tbtui.ui.screens.compare import CompareScreen
from tbtui.ui.screens.runs import RunsScreen
from tbtui.ui.screens.search import HitsPane, SearchScreen
from tbtui.ui.screens.trial import TrialScreen
from tests.events import entries_of, spoil
from tests.ui.opening import (
    Opener,
    app_of,
    commands,
    open_trial,
    pane,
    press,
    replaying,
    rest,
    screen_of,
    window,
    write_on,
)
from tests.ui.picture import settle
from tests.ui.styled_text import styled_text
from tests.ui.synthetic import START
from tests.view.test_overlap import continued

pytestmark = pytest.mark.slow


@pytest.fixture
def logs_dir(tmp_path: Path, run_directory: RunDirectory, served_run: RunDirectory) -> Path:
    """One's own run, one that was killed, one that goes on elsewhere, and one that is broken."""
    shutil.copytree(run_directory.path, tmp_path / "own")
    shutil.copytree(run_directory.path, tmp_path / "earlier")
    shutil.copytree(served_run.path, tmp_path / "served")
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "run.db").write_text("no database" * 500)
    return tmp_path


@pytest.fixture
def opened(opened: Opener, logs_dir: Path) -> Opener:
    """Opens the app over one's own."""
    return partial(opened, directory=RunDirectory(logs_dir / "own"))


async def choose(pilot: Pilot[int], name: str) -> None:
    runs = pilot.app.screen.query_one(RunsPane)
    await press(pilot, *["up"] * len(runs.listed))
    while runs.chosen is None or runs.chosen.directory.name != name:
        await press(pilot, "down")


async def test_runs_are_listed_filtered_and_ordered(opened: Opener, logs_dir: Path) -> None:
    async with opened((120, 40)) as pilot:
        with RunLock(RunDirectory(logs_dir / "served")):
            await press(pilot, "R")
        text = pane(pilot, "runs").text
        assert isinstance(pilot.app.screen, RunsScreen)
        for name, mark, state, model in (
            ("own", "▸", "killed", "starter"),
            ("earlier", " ", "killed", "starter"),
            ("served", " ", "live", "Qwen/Qwen3-8B"),
        ):
            (line,) = [row for row in text.splitlines() if row[3:].startswith(f"{name} ")]
            assert line[0] == mark
            assert state in line
            assert f" {model} " in line
            assert ".19" in line
        assert "can't be read" in text
        await choose(pilot, "broken")
        await press(pilot, "enter")
        assert isinstance(pilot.app.screen, RunsScreen)
        await press(pilot, "slash", *"tinker")
        assert "1 of 4" in str(pane(pilot, "runs").border_title)
        await press(pilot, "enter", "o")
        assert "by name" in str(pane(pilot, "runs").border_title)
        await press(pilot, "escape")
        assert [each.directory.name for each in pilot.app.screen.query_one(RunsPane).listed] == [
            *("broken", "earlier", "own", "served"),
        ]
        await press(pilot, "escape")
        assert isinstance(pilot.app.screen, Cockpit)


async def test_the_names_of_columns_stay_above_a_long_list(opened: Opener, logs_dir: Path) -> None:
    for number in range(40):
        shutil.copytree(logs_dir / "broken", logs_dir / f"broken-{number}")
    async with opened((120, 40)) as pilot:
        await press(pilot, "R", "end")
        runs = pilot.app.screen.query_one(RunsPane)
        assert round(runs.scroll_y) > 0
        heads, row = (runs.render_line(y).text.split() for y in (0, 1))
        assert heads[:2] == ["run", "start"]
        await pilot.click("#runs", offset=(6, 2))
        assert runs.chosen is not None
        assert runs.chosen.directory.name == row[1]


async def test_a_past_run_opens_as_it_ended_and_o_leads_back(opened: Opener) -> None:
    async with opened((120, 40)) as pilot:
        app = app_of(pilot)
        await press(pilot, "R")
        await choose(pilot, "earlier")
        await press(pilot, "enter")
        assert isinstance(app.screen, Cockpit)
        assert app.live_run.replay is not None
        assert "replay earlier" in pane(pilot, "status").text
        end = app.live_run.replay.playback.end
        assert app.live_run.now == end
        await press(pilot, "O")
        assert app.live_run is app.own.run
        assert "replay" not in pane(pilot, "status").text
        await press(pilot, "P")
        assert [verb for verb, _ in commands(pilot)] == ["pause"]


async def test_a_run_of_another_process_is_followed_and_not_steered(
    opened: Opener, logs_dir: Path
) -> None:
    async with opened((120, 40)) as pilot:
        app = app_of(pilot)
        with RunLock(RunDirectory(logs_dir / "served")):
            await press(pilot, "R")
            await choose(pilot, "served")
            await press(pilot, "enter")
        assert app.live_run.replay is None
        assert "watching served" in pane(pilot, "status").text
        assert app.live_run.state.policy == "tinker"
        await press(pilot, "P")
        assert not commands(pilot)


async def test_a_run_that_is_killed_while_it_is_watched_stands_still(
    opened: Opener, logs_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(services_module, "_LOOK_SEC", 0.01)
    async with opened((120, 40)) as pilot:
        app = app_of(pilot)
        with RunLock(RunDirectory(logs_dir / "served")):
            await press(pilot, "R")
            await choose(pilot, "served")
            await press(pilot, "enter")
            assert app.live_run.now == START + 40.0
        await app.workers.wait_for_complete([w for w in app.workers if w.name == "joined"])
        await settle(app)
        status = pane(pilot, "status").text
        assert "ended served" in status
        assert "interrupted: the run's process" in status
        assert app.live_run.now == app.live_run.state.time < START + 40.0
        # Opened once more it is one that is over.
        await press(pilot, "R", "enter")
        assert app.live_run.replay is not None


async def test_a_run_that_goes_on_is_seen_to(opened: Opener, logs_dir: Path) -> None:
    earlier = RunDirectory(logs_dir / "earlier")

    async def standing(pilot: Pilot[int]) -> str:
        screen = screen_of(pilot, RunsScreen)
        screen._look()
        await rest(pilot)
        (line,) = [row for row in pane(pilot, "runs").text.splitlines() if " earlier " in row]
        return line.split()[-1]

    write_on(earlier, 50.0, RunFinished(status="finished", reason="6 steps"))
    async with opened((120, 40)) as pilot:
        await press(pilot, "R")
        assert await standing(pilot) == "finished"
        write_on(earlier, 50.0, continued())
        assert await standing(pilot) == "killed"
        with RunLock(earlier):
            assert await standing(pilot) == "live"


async def test_two_runs_are_compared(opened: Opener) -> None:
    async with opened((120, 40)) as pilot:
        await press(pilot, "R")
        await choose(pilot, "own")
        await press(pilot, "m")
        assert "m compares the chosen run with own" in str(pane(pilot, "runs").border_title)
        await choose(pilot, "served")
        await press(pilot, "m")
        assert isinstance(pilot.app.screen, CompareScreen)
        # Nothing lies over what is compared.
        assert not pilot.app._notifications
        assert "review" not in pane(pilot, "keys").text
        curves = pane(pilot, "compared-curves").text
        assert "own" in curves
        assert "served" in curves
        assert "no setting differs" in pane(pilot, "compared-settings").text
        assert "=" in pane(pilot, "compared-tasks").text
        await press(pilot, "2")
        assert not pane(pilot, "compared-curves").display
        await press(pilot, "escape", "escape")
        assert isinstance(pilot.app.screen, RunsScreen)


async def test_a_text_is_found_and_leads_to_its_turn(opened: Opener) -> None:
    async with opened((120, 40)) as pilot:
        app = app_of(pilot)
        await press(pilot, "ctrl+f", *"No such file")
        assert isinstance(app.screen, SearchScreen)
        hits = app.screen.query_one(HitsPane).hits
        assert hits
        assert "No such file" in pane(pilot, "hits").text
        await press(pilot, "enter", "down", "enter")
        assert isinstance(app.screen, TrialScreen)
        assert app.screen.trial == hits[1].trial
        turns = app.screen.query_one(TurnPane)
        turn = turns.transcript.turns[turns.chosen]
        assert turn.turn == hits[1].turn
        assert "No such file" in turn.observation + turn.text


@pytest.mark.parametrize("size", [(80, 24), (160, 45)])
async def test_a_hit_has_its_trials_story(opened: Opener, size: tuple[int, int]) -> None:
    """Beside each where there is room, else below the chosen one, which a click still finds."""
    async with opened(size) as pilot:
        app = app_of(pilot)
        await press(pilot, "ctrl+f", *"No such file", "enter")
        hits = app.screen.query_one(HitsPane)
        story = hits.stories[hits.hits[0].run, hits.hits[0].trial]
        assert story
        lines = pane(pilot, "hits").text.split("\n")
        beside = size[0] > 80
        assert story[:20] in lines[0 if beside else 1]
        assert (hits.hits[1].label in lines[1]) == beside
        await pilot.click(hits, offset=(5, 2 if beside else 3))
        assert hits._chosen == 1


async def test_a_text_is_found_in_another_run_and_opened_at_its_time(opened: Opener) -> None:
    async with opened((120, 40)) as pilot:
        app = app_of(pilot)
        await press(pilot, "R", "slash", *"earlier", "enter")
        await press(pilot, "F", *"No such file")
        hit = app.screen.query_one(HitsPane).hits[0]
        await press(pilot, "enter", "enter")
        assert isinstance(app.screen, TrialScreen)
        assert app.live_run.directory.name == "earlier"
        assert app.live_run.now == hit.time
        turns = app.screen.query_one(TurnPane).transcript.turns
        assert "No such file" in turns[-1].observation + turns[-1].text


async def test_a_run_that_cannot_be_read_hides_nothing_of_the_others(
    opened: Opener, logs_dir: Path
) -> None:
    async with opened((120, 40)) as pilot:
        await press(pilot, "R", "F")
        screen = screen_of(pilot, SearchScreen)
        assert len(screen._runs) == 3
        # One that breaks after it was listed.
        screen._runs = [RunDirectory(logs_dir / "broken"), *screen._runs]
        await press(pilot, *"No such file")
        text = pane(pilot, "hits").text
        assert "No such file" in text
        assert "can't be read" in text.splitlines()[-1]
        title = str(pane(pilot, "hits").border_title)
        assert title == f"found {len(screen.query_one(HitsPane).hits)}"


def test_only_a_run_with_the_most_hits_may_have_more() -> None:
    runs = [RunDirectory(Path(name)) for name in "ab"]
    hit = Hit(runs[0], "t", "copy-01/1", 1, 1, "said", 0.0, 1, "", "x", "")
    pane = HitsPane("hits", one_run=False)
    pane.begin("x")
    for run in runs:
        pane.take([replace(hit, run=run)] * (MOST // 2 + 1), 1.0, "")
    frame = cast("Frame", None)
    assert pane.title(frame) == f"found {MOST + 2}"
    pane.take([hit] * (MOST // 2), 1.0, "")
    assert pane.title(frame) == f"found {MOST + 2 + MOST // 2}, at most {MOST} of a run"


async def test_the_chosen_run_is_previewed_in_a_small_window_too(opened: Opener) -> None:
    async with opened((80, 24)) as pilot:
        await press(pilot, "R")
        await choose(pilot, "earlier")
        preview = pane(pilot, "run-preview")
        assert str(preview.border_title).strip() == "earlier"
        assert "killed" in preview.text and "held out .19" in preview.text
        # The newest step's groups, as the cockpit has them.
        await press(pilot, "2")
        rows = [line.split()[:2] for line in preview.text.splitlines() if line.strip()]
        assert ["step", "2"] in rows
        assert ["▸", "move-03"] in rows


async def test_a_note_is_added_and_seen(opened: Opener, logs_dir: Path) -> None:
    async with opened((120, 40)) as pilot:
        await press(pilot, "R")
        await choose(pilot, "earlier")
        await press(pilot, "n", *"better", "enter")
        await press(pilot, "down", "up")
        assert "better" in pane(pilot, "run-preview").text
    assert "better" in (logs_dir / "earlier/notes.txt").read_text()


async def test_a_run_is_renamed_unless_it_is_live(opened: Opener, logs_dir: Path) -> None:
    async with opened((120, 40)) as pilot:
        with RunLock(RunDirectory(logs_dir / "served")):
            await press(pilot, "R")
            await choose(pilot, "served")
            await press(pilot, "r")
            assert isinstance(pilot.app.screen, RunsScreen)
        await choose(pilot, "earlier")
        await press(pilot, "r", *"best", "enter")
        runs = pilot.app.screen.query_one(RunsPane)
        assert runs.chosen is not None
        assert runs.chosen.directory.name == "best"
    assert (logs_dir / "earlier").resolve() == logs_dir / "best"


@pytest.fixture
def copy(run_directory: RunDirectory, tmp_path: Path) -> RunDirectory:
    return RunDirectory(Path(shutil.copytree(run_directory.path, tmp_path / "copy")))


def first(run: RunDirectory, kind: str) -> int:
    return next(entry.seq for entry in entries_of(run) if entry.event.kind == kind)


async def test_a_live_run_is_shown_without_it(
    past_app: Callable[..., TbtuiApp], copy: RunDirectory
) -> None:
    kinds = ("run_started", "trial_queued", "step_started", "turn_sampled")
    rows = {first(copy, kind): kind for kind in kinds}
    for seq in rows:
        spoil(copy, seq)
    app = past_app(copy)
    async with window(app) as pilot:
        seq, kind = min(rows.items())
        assert f"row {seq} ({kind}) and 3 others of " in styled_text(app)
        assert app.live_run.state.trials
        trial = await open_trial(pilot)
        assert app.live_run.state.trials[trial].label in styled_text(app)


async def test_a_recorded_one_can_be_gone_about_in(copy: RunDirectory) -> None:
    kinds = ("trial_queued", "eval_finished", "turn_observed")
    for seq in [first(copy, kind) for kind in kinds]:
        spoil(copy, seq)
    app, recorded = replaying(copy)
    async with window(app) as pilot:
        recorded.playback.go_to(recorded.playback.end)
        await settle(app)
        assert " and 2 others of" in styled_text(app)
        for key in ("less_than_sign",) * 3:
            before = recorded.playback.position
            await pilot.press(key)
            await settle(app)
            assert recorded.playback.position < before


async def test_tokens_that_are_spoilt_are_not_shown(
    past_app: Callable[..., TbtuiApp], copy: RunDirectory
) -> None:
    with closing(sqlite3.connect(copy.database)) as db, db:
        db.execute("UPDATE samples SET pieces = x'00', new_prompt_ids = x'00'")
    app = past_app(copy)
    async with window(app) as pilot:
        await open_trial(pilot)
        for key in ("t", "escape", "p"):
            await pilot.press(key)
            await settle(app)
        assert "(a model call's tokens) is corrupt" in styled_text(app)
