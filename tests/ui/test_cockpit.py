"""The cockpit by keyboard and mouse: what is shown, what is submitted."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual.geometry import Region
from textual.pilot import Pilot

from tbtui.journal.commands import RUN
from tbtui.journal.events import RunPhaseChanged
from tbtui.journal.rundir import RunDirectory
from tbtui.journal.writer import JournalWriter
from tbtui.ui.panes.grid import TrialGrid
from tbtui.ui.panes.pane import Pane
from tbtui.ui.screens.cockpit import Cockpit
from tbtui.ui.screens.help import HelpDialog, HelpText
from tbtui.ui.screens.trial import TrialScreen
from tbtui.vocabulary import RunPhase
from tests.ui.opening import Opener, app_of, commands, pane, run_at
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


async def test_every_pane_of_the_wide_cockpit_tells_its_part(opened: Opener) -> None:
    async with opened() as pilot:
        assert "step 2 of 6" in pane(pilot, "status").text
        assert "waiting for" in pane(pilot, "status").text
        assert "local" in pane(pilot, "status").text
        tasks = pane(pilot, "tasks").text
        assert "starter" in tasks
        assert "▸ copy" in tasks
        assert "running" in str(pane(pilot, "trials").border_title)
        assert "/1" in pane(pilot, "trials").text
        assert "root@box:/app#" in pane(pilot, "terminal").text
        assert '"analysis"' in pane(pilot, "tokens").text
        assert "nats" in pane(pilot, "tokens").text
        assert "mean" in pane(pilot, "rewards").text
        assert "held out" in pane(pilot, "curve").text
        assert "sampling" in pane(pilot, "times").text
        assert "in flight" in pane(pilot, "queue").text
        assert "worker 1" in pane(pilot, "queue").text
        assert "environment: sandbox" in pane(pilot, "notes").text


@pytest.mark.parametrize(
    ("size", "above"), [((80, 24), "─ trials · "), ((160, 45), "╭─ trials · ")]
)
async def test_a_title_stands_apart_from_the_line_that_it_is_in(
    opened: Opener, size: tuple[int, int], above: str
) -> None:
    async with opened(size) as pilot:
        trials = pane(pilot, "trials")
        (top,) = trials.render_lines(Region(0, 0, trials.outer_size.width, 1))
        assert top.text.startswith(above)
        assert " done ─" in top.text


async def test_a_small_window_shows_trials_and_one_line_each_of_the_rest(opened: Opener) -> None:
    async with opened((80, 24)) as pilot:
        visible = {each.id for each in pilot.app.screen.query(Pane) if each.region}
        assert visible == {"status", "trials", "summary", "keys"}
        summary = pane(pilot, "summary").text
        assert [line.split()[0] for line in summary.splitlines()] == ["reward", "held", "queue"]
        # The step under way stands above; here, the one that the held-out tasks came after.
        assert "step 2 of 6" in pane(pilot, "status").text
        assert summary.splitlines()[1].endswith("after step 0")
        assert "1-6 panes" in pane(pilot, "keys").text


@pytest.mark.parametrize(
    ("key", "panes"),
    [
        ("1", {"tasks"}),
        ("2", {"terminal"}),
        ("3", {"tokens"}),
        ("4", {"curve"}),
        ("5", {"queue"}),
        ("6", {"rewards", "timeline", "times", "notes"}),
    ],
)
async def test_number_keys_bring_panes_in_full_and_back(
    opened: Opener, key: str, panes: set[str]
) -> None:
    async with opened((80, 24)) as pilot:
        await pilot.press(key)
        visible = {each.id for each in pilot.app.screen.query(Pane) if each.region}
        assert visible == panes | {"status", "keys"}
        assert all(pane(pilot, name).text for name in panes)
        await pilot.press(key)
        assert pane(pilot, "trials").region
        await pilot.press(key, "escape")
        assert pane(pilot, "trials").region


@pytest.mark.parametrize(
    ("there", "back"), [("right", "left"), ("l", "h"), ("down", "up"), ("j", "k")]
)
async def test_arrows_and_letters_move_the_selection(opened: Opener, there: str, back: str) -> None:
    async with opened() as pilot:
        first = selected(pilot)
        await pilot.press(there)
        second = selected(pilot)
        assert second != first
        await pilot.press(back)
        assert selected(pilot) == first
        assert not app_of(pilot).selection.following


async def test_the_mouse_selects_and_a_double_click_opens(opened: Opener) -> None:
    async with opened() as pilot:
        grid = pilot.app.screen.query_one(TrialGrid)
        before = selected(pilot)
        await pilot.click("#trials", offset=(40, 3))
        assert selected(pilot) != before
        assert "move" in grid.text or selected(pilot)
        await pilot.click("#trials", offset=(40, 3), times=2)
        assert isinstance(pilot.app.screen, TrialScreen)


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
        assert not live.paused


async def test_finished_trials_can_be_neither_paused_nor_stopped(opened: Opener) -> None:
    async with opened() as pilot:
        app = app_of(pilot)
        over = next(t for t in app.live_run.state.trials.values() if not t.live and t.step == 2)
        app.selection.choose(over.trial)
        await pilot.press("space", "s")
        assert commands(pilot) == []


async def test_the_tree_unfolds_to_tasks_with_held_out_ones_marked(opened: Opener) -> None:
    async with opened() as pilot:
        pane(pilot, "tasks").focus()
        await pilot.press("down", "right")
        tasks = pane(pilot, "tasks").text
        assert "append-01" in tasks
        assert "◇ append-08" in tasks
        await pilot.press("right")
        assert "append-01" not in pane(pilot, "tasks").text


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
        await pilot.press("question_mark")
        text = pilot.app.screen.query_one(HelpText)
        assert text.render_line(0).text.split()[0] == "cockpit"
        await pilot.press("escape", "enter", "question_mark")
        text = pilot.app.screen.query_one(HelpText)
        assert text.render_line(0).text.split()[0] == "trial"


@pytest.mark.slow
async def test_help_lists_every_key_and_theme_goes_round(opened: Opener) -> None:
    async with opened() as pilot:
        await pilot.press("question_mark")
        assert isinstance(pilot.app.screen, HelpDialog)
        await pilot.press("escape")
        await pilot.press("f1")
        assert isinstance(pilot.app.screen, HelpDialog)
        await pilot.press("escape")
        names = []
        for _ in range(9):
            names.append(pilot.app.theme)
            await pilot.press("t")
        assert names[0] == names[8] == "tbtui-dark"
        assert len(set(names)) == 8


async def test_the_palette_runs_what_the_keys_run(opened: Opener) -> None:
    async with opened() as pilot:
        titles = [c.title for c in pilot.app.get_system_commands(pilot.app.screen)]
        assert "pause run (P)" in titles
        assert "stop (s)" in titles
        assert not any("left" in title for title in titles)
        await pilot.press("ctrl+p")
        await pilot.press(*"pause run")
        await pilot.pause(0.2)
        await pilot.press("down", "enter")
        await pilot.pause()
        assert commands(pilot) == [("pause", RUN)]


async def test_keys_in_the_bar_can_be_clicked(opened: Opener) -> None:
    async with opened() as pilot:
        x = pane(pilot, "keys").text.index("help")
        await pilot.click("#keys", offset=(x, 0))
        assert isinstance(pilot.app.screen, HelpDialog)


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
        await pilot.press("end")
        await settle(app_of(pilot))
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
        with JournalWriter(run, lambda: START + 1.0, continues=True) as writer:
            writer.append(RunPhaseChanged(phase=RunPhase.STARTING, step=0, detail="the model"))
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
