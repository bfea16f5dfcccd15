"""The cockpit's grid: a row a group, tiles with terminals, and how one moves among them."""

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

from tbtui.journal.events import CommandIssued
from tbtui.journal.rundir import RunDirectory
from tbtui.journal.writer import JournalWriter
from tbtui.ui.application import TbtuiApp
from tbtui.ui.panes.grid import TrialGrid
from tbtui.ui.screens.cockpit import Cockpit
from tbtui.ui.screens.trial import TrialScreen
from tests.ui.opening import Opener, SimulatedHost, app_of, commands, run_at
from tests.ui.picture import PastHost, settle
from tests.ui.styled_text import StyledTextExtension, styled_text
from tests.ui.synthetic import START, Simulation

pytestmark = pytest.mark.slow

LARGE: dict[str, Any] = {"groups": 16, "group_size": 16, "parallel": 64}
SIZES = [(80, 24), (160, 45), (240, 70)]


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    """Sixteen groups of sixteen, half of their trials done."""
    return run_at(tmp_path_factory.mktemp("runs") / "large", 30.0, **LARGE)


@asynccontextmanager
async def looking(
    run: RunDirectory, size: tuple[int, int], at: float = 30.0
) -> AsyncIterator[Pilot[int]]:
    app = TbtuiApp(PastHost(run), live=False, clock=lambda: START + at)
    async with app.run_test(size=size) as pilot:
        await settle(app)
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


async def press(pilot: Pilot[int], *keys: str) -> None:
    for key in keys:
        await pilot.press(key)
        await settle(app_of(pilot))


async def test_sixteen_groups_of_sixteen_are_all_in_sight(large: RunDirectory) -> None:
    async with looking(large, (160, 45)) as pilot:
        rows = rows_of(pilot)
        assert len(rows) == 16
        glyphs = re.compile(r"[·◌…▶‖▞✓◐✗!–⊘*]{16,}")
        assert all(glyphs.search(row) for row in rows), rows
        # No terminal is read that nobody sees.
        assert grid(pilot).visible_trials() == []
        # What is over stands below what is alive and what was lost.
        alive = ["queued" in row or "turn" in row or "retry" in row for row in rows]
        assert alive == sorted(alive, reverse=True)


async def test_a_row_says_mean_spread_signal_and_who_holds_the_group_up(
    opened: Opener,
) -> None:
    async with opened((240, 70)) as pilot:
        state = app_of(pilot).live_run.state
        for group in state.groups.values():
            members = [state.trials[name] for name in group.trials if name in state.trials]
            rows = [row for row in rows_of(pilot) if re.search(rf" {group.task}\b", row)]
            if not rows or group.step != 2:
                continue
            rewards = [t.reward for t in members if t.reward is not None and not t.left_out]
            if rewards:
                mean = sum(rewards) / len(rewards)
                shown = "1.0" if mean >= 0.995 else f"{mean:.2f}"[1:]
                assert f" {shown} " in rows[0]
                assert "±" in rows[0] or len(rewards) < 2
                assert "signal" in rows[0] or "equal so far" in rows[0]
            running = [t for t in members if t.live and t.started_at is not None]
            if running:
                oldest = min(running, key=lambda t: t.started_at or 0.0)
                number = oldest.label.rpartition("/")[2]
                assert re.search(rf"\S {number} (\d+\.\ds|\d+:\d\d) ", rows[0]), rows[0]


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
        assert grid(pilot).visible_trials()
        await press(pilot, "escape")
        assert grid(pilot).visible_trials() == []
        assert selected(pilot) == label


async def test_escape_closes_tiles_before_it_clears_the_filter(large: RunDirectory) -> None:
    async with looking(large, (160, 45)) as pilot:
        app = app_of(pilot)
        await press(pilot, "enter")
        await press(pilot, "slash", "0", "enter")
        assert app.listing.filter
        opened = bool(grid(pilot).visible_trials())
        assert opened
        await press(pilot, "escape")
        assert app.listing.filter
        await press(pilot, "escape")
        assert not app.listing.filter


async def test_tiles_are_walked_through_as_they_stand(opened: Opener) -> None:
    async with opened((160, 45)) as pilot:
        await press(pilot, "home")
        task = selected(pilot).rpartition("/")[0]
        seen = [selected(pilot)]
        for _ in range(3):
            await press(pilot, "down")
            seen.append(selected(pilot))
        # Three columns of tiles; then the next group, which is open now.
        assert seen[:3] == [f"{task}/1", f"{task}/4", f"{task}/7"]
        assert not seen[3].startswith(f"{task}/")
        open_rows = [row for row in rows_of(pilot) if row.startswith(" ▾ ")]
        assert len(open_rows) == 1
        assert seen[3].rpartition("/")[0] in open_rows[0]


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


async def test_a_click_on_the_mark_of_a_row_opens_and_closes_it(large: RunDirectory) -> None:
    async with looking(large, (160, 45)) as pilot:
        task = lines_of(pilot)[4].split()[1]
        await pilot.click("#trials", offset=(2, 5))
        await settle(app_of(pilot))
        (row,) = (each for each in rows_of(pilot) if f" {task} " in each)
        assert row.startswith(" ▾ ")
        y = lines_of(pilot).index(row)
        await pilot.click("#trials", offset=(2, 1 + y))
        await settle(app_of(pilot))
        assert grid(pilot).visible_trials() == []


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


async def test_keys_of_trials_act_on_the_selected_sibling_of_a_row(large: RunDirectory) -> None:
    async with looking(large, (160, 45)) as pilot:
        app = app_of(pilot)
        live = next(t for t in app.live_run.state.running_trials() if not t.pending)
        app.selection.choose(live.trial)
        await settle(app)
        assert grid(pilot).visible_trials() == []
        await press(pilot, "s")
        assert commands(pilot) == [("stop", live.trial)]


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
            assert any(f" {selected(pilot)} " in line for line in lines_of(pilot))
            tops.append(round(grid(pilot).scroll_y))
        # A line at a time, never back.
        assert {after - before for before, after in itertools.pairwise(tops)} == {0, 1}
        cursor = selected(pilot)
        await pilot._post_mouse_events([events.MouseScrollUp], "#trials", offset=(6, 3), button=0)
        await settle(app_of(pilot))
        assert round(grid(pilot).scroll_y) < tops[-1]
        assert selected(pilot) == cursor


async def test_the_row_under_the_cursor_stays_where_it_is(tmp_path: Path) -> None:
    simulation = Simulation(RunDirectory.create(tmp_path / "run"), **LARGE)
    simulation.advance(START + 22.0)
    host = SimulatedHost(simulation)
    app = TbtuiApp(host, live=False, clock=lambda: simulation.now)
    async with app.run_test(size=(160, 45)) as pilot:
        await settle(app)
        await press(pilot, "home", *["down"] * 5)
        label, order = selected(pilot), [row.split()[1] for row in rows_of(pilot)]
        (y,) = (i for i, line in enumerate(lines_of(pilot)) if f" {label} " in line)
        for _ in range(6):
            host.advance(2.0)
            await settle(app)
            assert f" {label} " in lines_of(pilot)[y]
        assert [row.split()[1] for row in rows_of(pilot)] != order
    simulation.close()


async def test_no_color_leaves_every_state_and_the_cursor(
    monkeypatch: pytest.MonkeyPatch, large: RunDirectory
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    async with looking(large, (160, 45)) as pilot:
        text = "".join(rows_of(pilot))
        assert all(glyph in text for glyph in "✓✗!▶…·")
        assert any(f" {selected(pilot)} " in row for row in rows_of(pilot))


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
@pytest.mark.parametrize("keys", [(), ("down", "enter")], ids=["rows", "tiles"])
async def test_many_groups_look_like_this(
    large: RunDirectory, size: tuple[int, int], keys: tuple[str, ...], snapshot: SnapshotAssertion
) -> None:
    async with looking(large, size) as pilot:
        await press(pilot, *keys)
        assert styled_text(pilot.app) == snapshot(extension_class=StyledTextExtension)


@pytest.mark.parametrize("size", SIZES)
async def test_a_queued_trial_that_will_pause_says_so(
    tmp_path: Path, size: tuple[int, int]
) -> None:
    run = run_at(tmp_path / "run", 3.0, groups=2, group_size=8, parallel=4)
    async with looking(run, size, 3.0) as pilot:
        app = app_of(pilot)
        queued = next(t for t in app.live_run.state.trials.values() if t.phase == "queued")
        with JournalWriter(run, lambda: START + 3.0, continues=True) as writer:
            writer.append(
                CommandIssued(command="c", verb="pause", target=queued.trial, actor="ada")
            )
        app.selection.choose(queued.trial)
        await settle(app)
        assert queued.armed
        (tile,) = (line for line in lines_of(pilot) if f"‖ {queued.label} " in line)
        assert "pauses" in tile.partition(queued.label)[2]
        assert "pauses at its first turn" in "".join(lines_of(pilot))
