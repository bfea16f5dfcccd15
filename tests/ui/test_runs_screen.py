"""Other runs than one's own: listed, opened, compared, searched."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from textual.pilot import Pilot

from tbtui.journal.commands import Command
from tbtui.journal.events import AnyEvent, RunFinished
from tbtui.journal.rundir import RunDirectory, RunLock
from tbtui.journal.search import MOST, Hit
from tbtui.journal.writer import JournalWriter
from tbtui.ui import services as services_module
from tbtui.ui.application import TbtuiApp
from tbtui.ui.panes.pane import Frame
from tbtui.ui.panes.run_preview import RunPreviewPane
from tbtui.ui.panes.runs import RunsPane
from tbtui.ui.panes.turns import TurnPane
from tbtui.ui.screens.cockpit import Cockpit
from tbtui.ui.screens.compare import CompareScreen
from tbtui.ui.screens.runs import RunsScreen
from tbtui.ui.screens.search import HitsPane, SearchScreen
from tbtui.ui.screens.trial import TrialScreen
from tests.ui.opening import app_of, pane
from tests.ui.picture import PastHost, settle
from tests.ui.synthetic import START
from tests.view.test_overlap import continued

pytestmark = pytest.mark.slow

Opened = Callable[..., AbstractAsyncContextManager[Pilot[int]]]


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
def app(logs_dir: Path) -> TbtuiApp:
    host = PastHost(RunDirectory(logs_dir / "own"))
    return TbtuiApp(host, live=False, clock=lambda: START + 40.0)


@pytest.fixture
def opened(app: TbtuiApp) -> Opened:
    @asynccontextmanager
    async def open_app(size: tuple[int, int] = (120, 40)) -> AsyncIterator[Pilot[int]]:
        async with app.run_test(size=size, notifications=True) as pilot:
            await settle(app)
            yield pilot

    return open_app


READERS = ("runs", "preview", "search", "compare")


async def press(pilot: Pilot[int], *keys: str) -> None:
    """Press, and wait for what is read on threads."""
    await pilot.press(*keys)
    workers = app_of(pilot).workers
    if reading := [each for each in workers if each.name in READERS]:
        await workers.wait_for_complete(reading)
    await pilot.pause()
    await settle(app_of(pilot))


async def choose(pilot: Pilot[int], name: str) -> None:
    runs = pilot.app.screen.query_one(RunsPane)
    await press(pilot, *["up"] * len(runs.listed))
    while runs.chosen is None or runs.chosen.directory.name != name:
        await press(pilot, "down")


async def test_runs_are_listed_filtered_and_ordered(opened: Opened, logs_dir: Path) -> None:
    async with opened() as pilot:
        with RunLock(RunDirectory(logs_dir / "served")):
            await press(pilot, "R")
        text = pane(pilot, "runs").text
        assert isinstance(pilot.app.screen, RunsScreen)
        for name, mark, state in (
            *(("own", "▸", "killed"), ("earlier", " ", "killed"), ("served", " ", "live")),
        ):
            (line,) = [row for row in text.splitlines() if row[3:].startswith(f"{name} ")]
            assert line[0] == mark
            assert state in line
            assert ".19" in line
        assert "can't be read" in text
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


async def test_a_past_run_opens_as_it_ended_and_o_leads_back(opened: Opened) -> None:
    async with opened() as pilot:
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
        assert isinstance(app.own.host, PastHost)
        assert [each.verb for each in app.own.host.commands] == ["pause"]


async def test_a_run_of_another_process_is_followed_and_not_steered(
    opened: Opened, logs_dir: Path
) -> None:
    async with opened() as pilot:
        app = app_of(pilot)
        with RunLock(RunDirectory(logs_dir / "served")):
            await press(pilot, "R")
            await choose(pilot, "served")
            await press(pilot, "enter")
        assert app.live_run.replay is None
        assert "watching served" in pane(pilot, "status").text
        assert app.live_run.state.policy == "tinker"
        await press(pilot, "P")
        assert isinstance(app.own.host, PastHost)
        commands: list[Command] = app.own.host.commands
        assert not commands


async def test_a_run_that_is_killed_while_it_is_watched_stands_still(
    opened: Opened, logs_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(services_module, "_LOOK_SEC", 0.01)
    async with opened() as pilot:
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


async def test_a_run_that_goes_on_is_seen_to(opened: Opened, logs_dir: Path) -> None:
    earlier = RunDirectory(logs_dir / "earlier")

    async def standing(pilot: Pilot[int]) -> str:
        screen = pilot.app.screen
        assert isinstance(screen, RunsScreen)
        screen._look()
        await press(pilot)
        (line,) = [row for row in pane(pilot, "runs").text.splitlines() if " earlier " in row]
        return line.split()[-1]

    _write(earlier, RunFinished(status="finished", reason="6 steps"))
    async with opened() as pilot:
        await press(pilot, "R")
        assert await standing(pilot) == "finished"
        _write(earlier, continued())
        assert await standing(pilot) == "killed"
        with RunLock(earlier):
            assert await standing(pilot) == "live"


def _write(run: RunDirectory, event: AnyEvent) -> None:
    with JournalWriter(run, lambda: START + 50.0, continues=True) as writer:
        writer.append(event)


async def test_what_cannot_be_read_is_not_opened(opened: Opened) -> None:
    async with opened() as pilot:
        await press(pilot, "R")
        await choose(pilot, "broken")
        await press(pilot, "enter")
        assert isinstance(pilot.app.screen, RunsScreen)
        assert app_of(pilot).live_run is app_of(pilot).own.run


async def test_two_runs_are_compared(opened: Opened) -> None:
    async with opened() as pilot:
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


async def test_a_text_is_found_and_leads_to_its_turn(opened: Opened) -> None:
    async with opened() as pilot:
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
async def test_a_hit_has_its_trials_story(opened: Opened, size: tuple[int, int]) -> None:
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


async def test_a_text_is_found_in_another_run_and_opened_at_its_time(opened: Opened) -> None:
    async with opened() as pilot:
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
    opened: Opened, app: TbtuiApp
) -> None:
    async with opened() as pilot:
        await press(pilot, "R", "F")
        assert isinstance(app.screen, SearchScreen)
        assert len(app.screen._runs) == 3
        # One that breaks after it was listed.
        app.screen._runs = [RunDirectory(app.logs_dirs[0] / "broken"), *app.screen._runs]
        await press(pilot, *"No such file")
        text = pane(pilot, "hits").text
        assert "No such file" in text
        assert "can't be read" in text.splitlines()[-1]
        title = str(pane(pilot, "hits").border_title)
        assert title == f"found {len(app.screen.query_one(HitsPane).hits)}"


def test_only_a_run_with_the_most_hits_may_have_more() -> None:
    runs = [RunDirectory(Path(name)) for name in "ab"]
    place: dict[str, Any] = {
        "trial": "t",
        "label": "copy-01/1",
        "step": 1,
        "turn": 1,
        "where": "said",
        "seq": 1,
    }
    hit = Hit(runs[0], **place, time=0.0, before="", found="x", after="")
    pane = HitsPane("hits", one_run=False)
    pane.begin("x")
    for run in runs:
        pane.take([replace(hit, run=run)] * (MOST // 2 + 1), 1.0, "")
    frame = cast("Frame", None)
    assert pane.title(frame) == f"found {MOST + 2}"
    pane.take([hit] * (MOST // 2), 1.0, "")
    assert pane.title(frame) == f"found {MOST + 2 + MOST // 2}, at most {MOST} of a run"


@pytest.mark.parametrize("size", [(80, 24), (160, 45)], ids=["80x24", "160x45"])
@pytest.mark.parametrize("what", ["runs", "compared"])
def test_runs_look_as_they_did(
    snap_compare: Callable[..., bool],
    monkeypatch: pytest.MonkeyPatch,
    app: TbtuiApp,
    what: str,
    size: tuple[int, int],
) -> None:
    shutil.rmtree(app.logs_dirs[0] / "broken")

    async def prepare(pilot: Pilot[int]) -> None:
        await settle(app)
        await press(pilot, "R")
        if what == "compared":
            await choose(pilot, "own")
            await press(pilot, "m")
            await choose(pilot, "served")
            await press(pilot, "m")
            app.clear_notifications()
        await pilot.pause()

    assert snap_compare(app, terminal_size=size, run_before=prepare)


@pytest.mark.parametrize("size", [(80, 24), (160, 45)])
async def test_the_chosen_run_is_previewed(opened: Opened, size: tuple[int, int]) -> None:
    async with opened(size) as pilot:
        await press(pilot, "R")
        await choose(pilot, "earlier")
        text = pane(pilot, "run-preview").text
        assert str(pane(pilot, "run-preview").border_title).strip() == "earlier"
        assert "killed" in text
        assert "held out .19" in text
        assert "┤" in text
        if size[1] < 45:
            await press(pilot, "2")
            text = pane(pilot, "run-preview").text
        # The newest step's groups, as the cockpit has them.
        lines = [line.split() for line in text.splitlines()]
        assert ["step", "2"] in lines
        heading = next(place for place, line in enumerate(lines) if "siblings" in line)
        preview = pilot.app.screen.query_one("#run-preview", RunPreviewPane).preview
        assert preview is not None
        names = [group.name for group in preview.groups]
        assert len(names) == 4
        rows = lines[heading + 1 : heading + 5] if size[1] >= 45 else lines[heading + 1 :]
        assert [row[1] for row in rows if row and row[0] == "▸"] == names[: len(rows)]


async def test_a_note_is_added_and_seen(opened: Opened, logs_dir: Path) -> None:
    async with opened() as pilot:
        await press(pilot, "R")
        await choose(pilot, "earlier")
        await press(pilot, "n", *"better", "enter")
        await press(pilot, "down", "up")
        assert "better" in pane(pilot, "run-preview").text
    assert "better" in (logs_dir / "earlier/notes.txt").read_text()


async def test_a_run_is_renamed_unless_it_is_live(opened: Opened, logs_dir: Path) -> None:
    async with opened() as pilot:
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
