"""The cockpit by keyboard and mouse: what is shown, what is submitted."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual.pilot import Pilot

from tbtui.journal.commands import RUN
from tbtui.journal.events import RunPhaseChanged
from tbtui.journal.rundir import RunDirectory
from tbtui.ui import frames
from tbtui.ui.frames import JOURNAL_BUDGET_SEC
from tbtui.ui.panes.grid import TrialGrid
from tbtui.ui.panes.pane import Pane
from tbtui.ui.screens.cockpit import Cockpit
from tbtui.ui.screens.help import HelpDialog, HelpText
from tbtui.vocabulary import RunPhase
from tests.ui.opening import Opener, Steered, app_of, commands, pane, press, run_at, write_on
from tests.ui.picture import settle
from tests.ui.synthetic import START


@pytest.fixture(scope="module")
def many_trials(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    """A frozen run of 64 trials at a time."""
    return run_at(tmp_path_factory.mktemp("many") / "run", 39.0, parallel=64, groups=8)


def selected(pilot: Pilot[int]) -> str:
    trial = app_of(pilot).selection.trial
    assert trial is not None
    return trial


async def test_the_header_links_to_the_runs_files(opened: Opener) -> None:
    async with opened() as pilot:
        header = pane(pilot, "status").render_line(0)
        (link,) = {each.style.link for each in header if each.style and each.style.link}
        assert link.startswith("file://")
        assert link.endswith(str(app_of(pilot).live_run.directory.path))


IN_FULL = {
    "1": {"tasks"},
    "2": {"terminal"},
    "3": {"tokens"},
    "4": {"curve"},
    "5": {"queue"},
    "6": {"rewards", "timeline", "times", "notes"},
}


async def test_number_keys_bring_panes_in_full_and_back(opened: Opener) -> None:
    async with opened((80, 24)) as pilot:
        for key, panes in IN_FULL.items():
            await pilot.press(key)
            visible = {each.id for each in pilot.app.screen.query(Pane) if each.region}
            assert visible == panes | {"status", "keys"}
            assert all(pane(pilot, name).text for name in panes)
            await pilot.press(key)
            assert pane(pilot, "trials").region
        await pilot.press("6", "escape")
        assert pane(pilot, "trials").region


async def test_keys_submit_commands_and_nothing_is_shown_before_the_journal_says_so(
    opened: Opener,
) -> None:
    async with opened() as pilot:
        app = app_of(pilot)
        live = next(t for t in app.live_run.state.running_trials() if not t.pending)
        app.selection.choose(live.trial)
        await settle(app)
        before = pane(pilot, "trials").text
        await pilot.press("space")
        await pilot.press("s")
        await pilot.press("P")
        assert commands(pilot) == [("pause", live.trial), ("stop", live.trial), ("pause", RUN)]
        app.redraw_all()
        await pilot.pause()
        assert pane(pilot, "trials").text.replace("t1", "") == before.replace("t1", "")
        assert not live.hold.paused


async def test_tab_goes_round_the_panes_that_can_be_seen(opened: Opener) -> None:
    async with opened() as pilot:
        seen = []
        for _ in range(10):
            assert pilot.app.focused is not None
            seen.append(pilot.app.focused.id)
            await pilot.press("tab")
        assert len(set(seen)) == 10
        assert pilot.app.focused is not None
        assert pilot.app.focused.id == seen[0]


async def test_help_begins_with_the_keys_of_the_screen_that_it_was_asked_for_on(
    opened: Opener,
) -> None:
    async with opened() as pilot:
        # The key in the bar can be clicked.
        await pilot.click("#keys", offset=(pane(pilot, "keys").text.index("help"), 0))
        assert isinstance(pilot.app.screen, HelpDialog)
        text = pilot.app.screen.query_one(HelpText)
        assert text.render_line(0).text.split()[0] == "cockpit"
        await pilot.press("escape", "enter", "question_mark")
        text = pilot.app.screen.query_one(HelpText)
        assert text.render_line(0).text.split()[0] == "trial"


async def test_windows_of_every_size_are_survived(opened: Opener) -> None:
    async with opened((200, 60)) as pilot:
        for size in [(80, 24), (59, 30), (100, 15), (1, 1), (3, 40), (300, 100), (110, 32)]:
            await pilot.resize_terminal(*size)
            await pilot.pause()
            small = size[0] < 60 or size[1] < 16
            assert pilot.app.screen.query_one("#too-small").display == small
            assert pilot.app.screen.query_one("#all").display != small
        assert pane(pilot, "trials").text


async def test_the_selected_tile_is_in_sight_whatever_becomes_of_the_window(
    opened: Opener, many_trials: RunDirectory
) -> None:
    async with opened((220, 60), directory=many_trials) as pilot:
        await press(pilot, "end")
        trial = app_of(pilot).live_run.state.trials[selected(pilot)]
        for size in ((80, 16), (220, 60), (80, 18)):
            await pilot.resize_terminal(*size)
            await settle(app_of(pilot))
            grid = pane(pilot, "trials")
            rows = range(grid.scrollable_content_region.height)
            shown = "\n".join(grid.render_line(y).text for y in rows)
            assert f" {trial.label} " in shown, size


async def test_where_no_trial_is_shown_none_can_be_chosen(opened: Opener) -> None:
    async with opened() as pilot:
        before = selected(pilot)
        await pilot.press("slash", *"nothing like it", "enter")
        await settle(app_of(pilot))
        assert "no trial matches" in pane(pilot, "trials").text
        await pilot.press("right", "down", "end")
        await pilot.click("#trials", offset=(60, 9), times=2)
        await settle(app_of(pilot))
        assert selected(pilot) == before
        assert isinstance(app_of(pilot).screen, Cockpit)


async def test_what_the_start_is_at_is_said_where_trials_will_be(
    opened: Opener, tmp_path: Path
) -> None:
    run = run_at(tmp_path / "new", 0.5)
    async with opened(directory=run, clock=lambda: START + 60.0) as pilot:
        assert "Harbor to be loaded" in pane(pilot, "trials").text
        write_on(run, 0.5, RunPhaseChanged(phase=RunPhase.STARTING, step=0, detail="the model"))
        await settle(app_of(pilot))
        assert "the model" in pane(pilot, "trials").text


async def test_before_the_journal_exists_it_says_what_will_come(
    opened: Opener, tmp_path: Path
) -> None:
    directory = RunDirectory.create(tmp_path / "new")
    async with opened(directory=directory) as pilot:
        assert "starting" in pane(pilot, "status").text
        assert "starting the engine" in pane(pilot, "trials").text
        assert "about 6 s" in pane(pilot, "trials").text
        run_at(tmp_path / "other", 1.0)
        directory.database.write_bytes((tmp_path / "other" / "run.db").read_bytes())
        await settle(app_of(pilot))
        assert "no trials yet" in pane(pilot, "trials").text
        assert "Harbor to be loaded" in pane(pilot, "status").text


async def test_a_file_that_is_no_journal_is_named(opened: Opener, tmp_path: Path) -> None:
    directory = RunDirectory.create(tmp_path / "broken")
    directory.database.write_bytes(b"not a database" * 100)
    async with opened(directory=directory) as pilot:
        assert "can't be read" in pane(pilot, "status").text


@pytest.mark.parametrize("budget_sec", [JOURNAL_BUDGET_SEC, 0], ids=["keeps up", "falls behind"])
async def test_every_frame_shows_one_trial_which_keys_act_on(
    steered: Steered, monkeypatch: pytest.MonkeyPatch, budget_sec: float
) -> None:
    monkeypatch.setattr(frames, "JOURNAL_BUDGET_SEC", budget_sec)
    async with steered((160, 45)) as (pilot, simulated):
        app, seen = app_of(pilot), set()
        for _ in range(80):
            simulated.advance(0.2)  # what keys act on is what was shown before
            acted_on = app.frames.selected()
            label = acted_on.label if acted_on is not None else ""
            grid = pilot.app.screen.query_one(TrialGrid)
            assert grid._trials[grid._index].label == label
            assert str(pane(pilot, "terminal").border_title).strip().startswith(f"{label} ")
            app.tick()
            seen.add(label)
        assert len(seen) > 1
