"""The cockpit's grid: rows, tiles, moving among them; its filters, orders and bars."""

from __future__ import annotations

import itertools
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion
from textual import events
from textual.pilot import Pilot
from textual.widgets import Input, Static

from tbtui.journal.events import CommandIssued
from tbtui.journal.rundir import RunDirectory
from tbtui.ui.application import TbtuiApp
from tbtui.ui.panes.grid import TrialGrid
from tbtui.ui.panes.key_bar import WordsLine
from tbtui.ui.screens.cockpit import Cockpit
from tbtui.ui.screens.trial import TrialScreen
from tbtui.view.state import TrialView
from tests.events import trial_finished
from tests.ui.opening import (
    Opener,
    SimulatedHost,
    Steered,
    app_of,
    pane,
    press,
    run_at,
    window,
    write_on,
)
from tests.ui.picture import PastHost, settle
from tests.ui.styled_text import StyledTextExtension, styled_text
from tests.ui.synthetic import START, Simulation

pytestmark = pytest.mark.slow

LARGE: dict[str, Any] = {"groups": 16, "group_size": 16, "parallel": 64}
SIZES = [(80, 24), (160, 45)]


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    """Sixteen groups of sixteen, half of their trials done."""
    return run_at(tmp_path_factory.mktemp("runs") / "large", 30.0, **LARGE)


@asynccontextmanager
async def looking(
    run: RunDirectory, size: tuple[int, int], at: float = 30.0
) -> AsyncIterator[Pilot[int]]:
    app = TbtuiApp(PastHost(run), live=False, clock=lambda: START + at)
    async with window(app, size) as pilot:
        yield pilot


def grid(pilot: Pilot[int]) -> TrialGrid:
    return pilot.app.screen.query_one(TrialGrid)


def lines_of(pilot: Pilot[int]) -> list[str]:
    """The lines of the grid that can be seen."""
    pane = grid(pilot)
    height = pane.scrollable_content_region.height
    return [pane.render_line(y).text for y in range(height)]


def rows_of(pilot: Pilot[int]) -> list[str]:
    """The groups' rows that can be seen."""
    return [line for line in lines_of(pilot) if re.match(r" [▸▾] ", line)]


def selected(pilot: Pilot[int]) -> str:
    chosen = app_of(pilot).frames.selected()
    assert chosen is not None
    return chosen.label


async def test_a_group_without_signal_says_so(tmp_path: Path) -> None:
    simulation = Simulation(RunDirectory.create(tmp_path / "run"))
    simulation.advance(START + 39.0)
    async with looking(simulation.run, (160, 45), 39.0) as pilot:
        state = app_of(pilot).live_run.state
        group = next(g for g in state.groups.values() if g.step == 2)
        group.disposition = "constant"
        await settle(app_of(pilot))
        (row,) = (each for each in rows_of(pilot) if group.task in each)
        assert "no signal" in row
    simulation.close()


async def test_left_and_right_move_among_siblings_up_and_down_among_groups(
    large: RunDirectory,
) -> None:
    async with looking(large, (160, 45)) as pilot:
        await press(pilot, "home")
        first = selected(pilot)
        task, _, member = first.rpartition("/")
        assert member == "1"
        await press(pilot, "left")
        assert selected(pilot) == first
        await press(pilot, "right", "right")
        assert selected(pilot) == f"{task}/3"
        (row,) = (each for each in rows_of(pilot) if f" {task}/3 " in each)
        assert row.startswith(" ▸ ")
        await press(pilot, "down")
        below = selected(pilot)
        assert below.rpartition("/")[0] != task
        assert below.endswith("/3")
        await press(pilot, "up")
        assert selected(pilot) == f"{task}/3"


async def test_enter_opens_the_tiles_then_the_trial_and_escape_closes_them(
    large: RunDirectory,
) -> None:
    async with looking(large, (160, 45)) as pilot:
        app = app_of(pilot)
        await press(pilot, "down")
        label = selected(pilot)
        assert grid(pilot).visible_trials() == []
        await press(pilot, "enter")
        assert isinstance(app.screen, Cockpit)
        chosen = app.frames.selected()
        assert chosen is not None
        assert chosen.trial in grid(pilot).visible_trials()
        siblings = [t for t in grid(pilot)._trials if t.group == chosen.group]
        assert all(any(f" {t.label} " in line for line in lines_of(pilot)) for t in siblings)
        await press(pilot, "enter")
        assert isinstance(app.screen, TrialScreen)
        await press(pilot, "escape")
        assert selected(pilot) == label
        # Tiles are closed before the filter is cleared.
        await press(pilot, "slash", "0", "enter")
        for tiles, words in ((True, True), (False, True), (False, False)):
            assert (bool(grid(pilot).visible_trials()), bool(app.listing.filter)) == (tiles, words)
            await press(pilot, "escape")
        assert selected(pilot) == label


async def test_tiles_are_walked_through_as_they_stand(opened: Opener) -> None:
    async with opened((160, 45)) as pilot:
        await press(pilot, "home")
        task = selected(pilot).rpartition("/")[0]
        seen = [selected(pilot)]
        for _ in range(4):
            await press(pilot, "down")
            seen.append(selected(pilot))
        # Two columns of tiles; then the next group, which is open now.
        assert seen[:4] == [f"{task}/{place}" for place in (1, 3, 5, 7)]
        assert not seen[4].startswith(f"{task}/")
        open_rows = [row for row in rows_of(pilot) if row.startswith(" ▾ ")]
        assert len(open_rows) == 1
        assert seen[4].rpartition("/")[0] in open_rows[0]


async def test_where_every_terminal_fits_every_group_is_open(tmp_path: Path) -> None:
    run = run_at(tmp_path / "few", 26.0, groups=2, group_size=4)
    async with looking(run, (240, 70), 26.0) as pilot:
        rows = rows_of(pilot)
        assert rows
        assert all(row.startswith(" ▾ ") for row in rows)
        assert len(grid(pilot).visible_trials()) == len(grid(pilot)._trials)


async def test_a_click_chooses_a_sibling_and_a_double_click_opens(large: RunDirectory) -> None:
    async with looking(large, (160, 45)) as pilot:
        app = app_of(pilot)
        pane = grid(pilot)
        y = 5
        row = lines_of(pilot)[y]
        found = re.search(r"[·◌…▶‖▞✓◐✗!–⊘*]{16,}", row)
        assert found
        task = row.split()[1]
        # Within its border.
        await pilot.click("#trials", offset=(1 + found.start() + 6, 1 + y))
        await settle(app)
        assert selected(pilot) == f"{task}/7"
        assert lines_of(pilot)[y].split()[1] == f"{task}/7"
        await pilot.click("#trials", offset=(1 + found.start() + 6, 1 + y), times=2)
        await settle(app)
        assert isinstance(app.screen, Cockpit)
        assert pane.visible_trials()
        # A click on the mark of the row that is open closes it.
        (mark,) = (y for y, line in enumerate(lines_of(pilot)) if line.startswith(" ▾ "))
        await pilot.click("#trials", offset=(2, 1 + mark))
        await settle(app)
        assert pane.visible_trials() == []


async def test_a_double_click_on_a_row_that_moves_opens_what_was_clicked(opened: Opener) -> None:
    async with opened((160, 45)) as pilot:
        app = app_of(pilot)
        await press(pilot, "home")
        y = max(i for i, line in enumerate(lines_of(pilot)) if line.startswith(" ▸ "))
        task = lines_of(pilot)[y].split()[1]
        await pilot.click("#trials", offset=(20, 1 + y), times=2)
        await settle(app)
        assert isinstance(app.screen, TrialScreen)
        opened_trial = app.live_run.state.trials[app.opened_trial or ""]
        assert opened_trial.task == task


async def test_sixty_four_groups_scroll_and_the_cursor_stays_in_sight(tmp_path: Path) -> None:
    run = run_at(tmp_path / "huge", 30.0, groups=48, group_size=4, parallel=32)
    async with looking(run, (80, 24)) as pilot:
        await press(pilot, "home")
        count = len({(t.group, t.task) for t in grid(pilot)._trials})
        assert count >= 48
        tops = []
        for _ in range(count - 1):
            await pilot.press("down")
            app_of(pilot).redraw_all()
            await pilot.pause()
            heads, *shown = lines_of(pilot)
            assert heads.split()[0] == "task"
            assert any(f" {selected(pilot)} " in line for line in shown)
            tops.append(round(grid(pilot).scroll_y))
        # A line at a time, never back.
        assert {after - before for before, after in itertools.pairwise(tops)} == {0, 1}
        cursor = selected(pilot)
        await pilot._post_mouse_events([events.MouseScrollUp], "#trials", offset=(6, 3), button=0)
        await settle(app_of(pilot))
        assert round(grid(pilot).scroll_y) < tops[-1]
        assert selected(pilot) == cursor
        # The heads lie over a row that can't be clicked there; the next line is the row seen in it.
        await pilot.click("#trials", offset=(6, 1))
        await settle(app_of(pilot))
        assert selected(pilot) == cursor
        await pilot.click("#trials", offset=(6, 2))
        await settle(app_of(pilot))
        assert f" {selected(pilot)} " in lines_of(pilot)[1]


async def test_the_row_under_the_cursor_stays_where_it_is(tmp_path: Path) -> None:
    simulation = Simulation(RunDirectory.create(tmp_path / "run"), **LARGE)
    simulation.advance(START + 22.0)
    host = SimulatedHost(simulation)
    app = TbtuiApp(host, live=False, clock=lambda: simulation.now)
    async with window(app) as pilot:
        await press(pilot, "home", *["down"] * 5)
        label, order = selected(pilot), [row.split()[1] for row in rows_of(pilot)]
        (y,) = (i for i, line in enumerate(lines_of(pilot)) if f" {label} " in line)
        for _ in range(6):
            host.advance(2.0)
            await settle(app)
            assert f" {label} " in lines_of(pilot)[y]
        assert [row.split()[1] for row in rows_of(pilot)] != order
    simulation.close()


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
@pytest.mark.parametrize("keys", [(), ("down", "enter")], ids=["rows", "tiles"])
async def test_many_groups_look_like_this(
    large: RunDirectory, size: tuple[int, int], keys: tuple[str, ...], snapshot: SnapshotAssertion
) -> None:
    async with looking(large, size) as pilot:
        await press(pilot, *keys)
        assert styled_text(pilot.app) == snapshot(extension_class=StyledTextExtension)


async def test_a_queued_trial_that_will_pause_says_so(tmp_path: Path) -> None:
    run = run_at(tmp_path / "run", 3.0, groups=2, group_size=8, parallel=4)
    async with looking(run, (80, 24), 3.0) as pilot:
        app = app_of(pilot)
        queued = next(t for t in app.live_run.state.trials.values() if t.phase == "queued")
        asked = CommandIssued(command="c", verb="pause", target=queued.trial, actor="ada")
        write_on(run, 3.0, asked)
        app.selection.choose(queued.trial)
        await settle(app)
        assert queued.armed
        (tile,) = (line for line in lines_of(pilot) if f"‖ {queued.label} " in line)
        assert "pauses" in tile.partition(queued.label)[2]
        assert "pauses at its first turn" in "".join(lines_of(pilot))


def title(pilot: Pilot[int], name: str = "trials") -> str:
    return str(pane(pilot, name).border_title)


def listed(pilot: Pilot[int]) -> list[TrialView]:
    state = app_of(pilot).live_run.state
    return [state.trials[trial.trial] for trial in grid(pilot)._trials]


async def test_slash_filters_while_typing_enter_keeps_esc_shows_all(opened: Opener) -> None:
    async with opened((80, 24)) as pilot:
        everyone = len(listed(pilot))
        await press(pilot, "slash", *"solved")
        solved = listed(pilot)
        assert 0 < len(solved) < everyone
        assert all(trial.outcome == "solved" for trial in solved)
        assert f"“solved” · {len(solved)} of {everyone} · esc all" in title(pilot)
        await press(pilot, "enter")
        assert not pilot.app.screen.query(Input)
        assert pilot.app.focused is grid(pilot)
        assert len(listed(pilot)) == len(solved)
        await press(pilot, "escape")
        assert len(listed(pilot)) == everyone


async def test_while_words_are_typed_the_keys_shown_are_those_that_work_then(
    opened: Opener,
) -> None:
    async with opened((80, 24)) as pilot:
        bar = pane(pilot, "keys")
        assert "r retry" in bar.text
        await press(pilot, "slash", *"solved")
        assert bar.text.split() == ["enter", "keep", "esc", "show", "all", "^p", "more"]
        # What the words are for is still said when there are some.
        line = pilot.app.screen.query_one(WordsLine)
        assert str(line.query_one(Static).render()) == "filter"
        assert line.query_one(Static).region
        solved = len(listed(pilot))
        await pilot.click("#keys", offset=(2, 0))
        await settle(app_of(pilot))
        assert not pilot.app.screen.query(Input)
        assert len(listed(pilot)) == solved
        assert "r retry" in bar.text


async def test_what_is_typed_into_the_filter_steers_nothing(opened: Opener) -> None:
    async with opened((80, 24)) as pilot:
        await press(pilot, "slash", *"sxzq[/]")
        assert isinstance(pilot.app.screen, Cockpit)
        assert pilot.app.screen.query_one(Input).value == "sxzq[/]"
        assert "no trial matches “sxzq[/]”" in grid(pilot).text
        await press(pilot, "escape")
        assert listed(pilot)


async def test_a_task_that_is_not_under_way_shows_what_there_was(opened: Opener) -> None:
    async with opened() as pilot:
        app = app_of(pilot)
        now = {trial.task for trial in listed(pilot)}
        earlier = [t for t in app.live_run.state.trials.values() if t.task not in now]
        app.listing.by_task(task=earlier[0].task)
        await settle(app)
        assert {trial.task for trial in listed(pilot)} == {earlier[0].task}
        assert title(pilot).startswith(f"earlier trials · {earlier[0].task}")


async def test_arrows_on_the_histogram_choose_a_bar_and_the_grid_shows_it(opened: Opener) -> None:
    async with opened() as pilot:
        step = app_of(pilot).live_run.state.rewarded_step()
        assert step is not None
        rewards = step.rewards

        def figures() -> list[str]:
            (row,) = [line for line in rows_of(pilot) if "move-02" in line]
            return row.partition("move-02")[2].split()[:10]

        before = figures()
        bars = pane(pilot, "rewards")
        bars.focus()
        await press(pilot, "down")
        # The same siblings and figures: of the group, not of what is listed.
        assert figures() == before
        assert [trial.reward for trial in listed(pilot)] == [0.0] * rewards.count(0.0)
        assert title(pilot).startswith("trials · reward 0.0 · 4 of 32")
        assert "▸0.0" in bars.text
        await press(pilot, "down")
        assert [trial.reward for trial in listed(pilot)] == [1.0] * rewards.count(1.0)
        await press(pilot, "down")
        assert "reward" not in title(pilot)
        await pilot.click("#rewards", offset=(5, 1))
        await settle(app_of(pilot))
        assert "reward 0.0" in title(pilot)
        await press(pilot, "escape")
        assert "reward" not in title(pilot)


async def test_a_chosen_bar_stays_chosen_when_rewards_of_another_kind_come(
    steered: Steered,
) -> None:
    async with steered((160, 45)) as (pilot, simulated):
        bars = pane(pilot, "rewards")
        bars.focus()
        await press(pilot, "up")
        assert "▸1.0 " in bars.text
        trial = simulated.simulation.acting()[0]
        simulated.simulation._write(trial_finished(trial, 0.33))
        await settle(app_of(pilot))
        assert " 0.33 " in bars.text
        assert "▸1.00 " in bars.text
        await press(pilot, "up")
        assert "▸0.33 " in bars.text


async def test_the_selection_stays_with_its_trial_whatever_the_order(opened: Opener) -> None:
    async with opened() as pilot:
        await press(pilot, "right", "right", "right")
        chosen = app_of(pilot).selection.trial
        places, titles = [], []
        for _ in range(6):
            await press(pilot, "o")
            assert app_of(pilot).selection.trial == chosen
            assert grid(pilot)._trials[grid(pilot)._index].trial == chosen
            places.append(grid(pilot)._index)
            titles.append(title(pilot).rpartition(" · ")[2])
        words = ["as queued", "by task", "by state", "longest first", "by reward"]
        assert titles[:5] == words
        assert len(set(places)) > 1
        assert places[-1] == 3


async def test_what_ended_unseen_is_counted_until_it_follows_again(steered: Steered) -> None:
    async with steered((200, 60)) as (pilot, simulated):
        await press(pilot, "right")
        before = app_of(pilot).live_run.state.trials_finished
        simulated.advance(3.0)
        await settle(app_of(pilot))
        ended = app_of(pilot).live_run.state.trials_finished - before
        assert ended > 0
        assert f"{ended} ended since you looked (f follows)" in title(pilot)
        await press(pilot, "f")
        assert "ended since you looked" not in title(pilot)


async def test_rounding_alone_is_no_curve_and_every_axis_has_numbers_that_differ(
    opened: Opener,
) -> None:
    async with opened((160, 45)) as pilot:
        app = app_of(pilot)
        metrics = [step.metrics for step in app.live_run.state.steps if step.metrics]
        for noise, each in zip((3e-14, -2e-14, 5e-14), metrics, strict=False):
            each["optim/kl_sample_train_v2"] = noise
        await press(pilot, "4")
        rows = pane(pilot, "curve").text.splitlines()
        (head,) = [index for index, line in enumerate(rows) if " KL " in line]
        start = rows[head].index(" KL ")
        labels = re.findall(r"(\S+)┤", "\n".join(line[start : start + 40] for line in rows[head:]))
        assert "0" in labels
        assert len(set(labels)) == len(labels) > 1
        assert "KL .00" in rows[head]
