"""The cockpit's filters, orders, curves and timeline, by keyboard and mouse."""

from __future__ import annotations

import re

import pytest
from textual.pilot import Pilot
from textual.widgets import Input, Static

from tbtui.ui.application import TbtuiApp
from tbtui.ui.panes.grid import TrialGrid
from tbtui.ui.panes.key_bar import WordsLine
from tbtui.ui.panes.pane import Pane
from tbtui.ui.panes.tiles import tile_layout
from tbtui.ui.screens.cockpit import Cockpit
from tbtui.view.state import TrialView
from tests.events import trial_finished
from tests.ui.opening import Opener, SimulatedHost
from tests.ui.picture import settle

pytestmark = pytest.mark.slow


def app_of(pilot: Pilot[int]) -> TbtuiApp:
    assert isinstance(pilot.app, TbtuiApp)
    return pilot.app


def grid(pilot: Pilot[int]) -> TrialGrid:
    return pilot.app.screen.query_one(TrialGrid)


def title(pilot: Pilot[int], name: str = "trials") -> str:
    return str(pilot.app.screen.query_one(f"#{name}", Pane).border_title)


def listed(pilot: Pilot[int]) -> list[TrialView]:
    state = app_of(pilot).live_run.state
    return [state.trials[trial.trial] for trial in grid(pilot)._trials]


async def press(pilot: Pilot[int], *keys: str) -> None:
    for key in keys:
        await pilot.press(key)
    await settle(app_of(pilot))


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
        bar = pilot.app.screen.query_one("#keys", Pane)
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


async def test_a_chosen_task_shows_its_trials_alone(opened: Opener) -> None:
    async with opened() as pilot:
        everyone = len(listed(pilot))
        pilot.app.screen.query_one("#tasks").focus()
        kinds = sorted({trial.task.split("-")[0] for trial in listed(pilot)})
        tree = pilot.app.screen.query_one("#tasks", Pane)
        row = next(y for y, line in enumerate(tree.text.splitlines()) if kinds[0] in line)
        await press(pilot, *["down"] * row, "enter")
        assert {trial.task.split("-")[0] for trial in listed(pilot)} == {kinds[0]}
        assert kinds[0] in title(pilot)
        assert f"▌▸ {kinds[0]}" in tree.text
        await press(pilot, "enter")
        assert len(listed(pilot)) == everyone


async def test_a_task_that_is_not_under_way_shows_what_there_was(opened: Opener) -> None:
    async with opened() as pilot:
        app = app_of(pilot)
        now = {trial.task for trial in listed(pilot)}
        earlier = [t for t in app.live_run.state.trials.values() if t.task not in now]
        app.listing.by_task(task=earlier[0].task)
        await settle(app)
        assert {trial.task for trial in listed(pilot)} == {earlier[0].task}
        assert title(pilot).startswith(f"earlier trials · {earlier[0].task}")


async def test_arrows_on_the_histogram_choose_a_bar_and_the_grid_shows_it(
    opened: Opener,
) -> None:
    async with opened() as pilot:
        rewards = list(app_of(pilot).live_run.state.rewards)
        pane = pilot.app.screen.query_one("#rewards", Pane)
        pane.focus()
        await press(pilot, "down")
        assert [trial.reward for trial in listed(pilot)] == [0.0] * rewards.count(0.0)
        assert "earlier trials · reward 0.0" in title(pilot)
        assert "▸0.0" in pane.text
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
    steered: Opener, simulated: SimulatedHost
) -> None:
    async with steered((160, 45)) as pilot:
        pane = pilot.app.screen.query_one("#rewards", Pane)
        pane.focus()
        await press(pilot, "up")
        assert "▸1.0 " in pane.text
        trial = simulated.simulation.acting()[0]
        simulated.simulation._write(trial_finished(trial, 0.33))
        await settle(app_of(pilot))
        assert " 0.33 " in pane.text
        assert "▸1.00 " in pane.text
        await press(pilot, "up")
        assert "▸0.33 " in pane.text


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


async def test_what_ended_unseen_is_counted_until_it_follows_again(
    steered: Opener, simulated: SimulatedHost
) -> None:
    async with steered((200, 60)) as pilot:
        await press(pilot, "right")
        before = app_of(pilot).live_run.state.trials_finished
        simulated.advance(3.0)
        await settle(app_of(pilot))
        ended = app_of(pilot).live_run.state.trials_finished - before
        assert ended > 0
        assert f"{ended} ended meanwhile (f follows)" in title(pilot)
        await press(pilot, "f")
        assert "ended meanwhile" not in title(pilot)


async def test_four_brings_the_curves_with_axes(opened: Opener) -> None:
    async with opened((80, 24)) as pilot:
        await press(pilot, "4")
        text = pilot.app.screen.query_one("#curve", Pane).text
        assert "1.0┤" in text
        assert " 0┤" in text
        assert "└┬──" in text
        assert "-log p .34" in text
        assert "mean of the" in text


async def test_the_timeline_says_who_is_waited_for_and_what_time_went_to(
    opened: Opener,
) -> None:
    async with opened() as pilot:
        text = pilot.app.screen.query_one("#timeline", Pane).text
        assert "now: " in text
        assert "█ sampling" in text
        assert "▒ evaluating" in text
        # Steps 1 and 2, the second under way.
        rows = [line.split()[0] for line in text.splitlines()]
        assert [row for row in rows if row in ("1", "2")] == ["1", "2"]


async def test_the_tree_in_full_has_every_number_below_its_heading(opened: Opener) -> None:
    async with opened((80, 24)) as pilot:
        await press(pilot, "1")
        heading, dataset, *kinds = pilot.app.screen.query_one("#tasks", Pane).text.splitlines()
        assert heading.split() == ["live", "held", "pass", "trend", "lost", "s/rollout"]
        assert "%" in dataset
        assert all(len(line) <= len(heading) for line in kinds)


@pytest.mark.parametrize("size", [(57, 14), (78, 17), (110, 28), (200, 60)])
@pytest.mark.parametrize("count", [1, 2, 4, 9, 16, 33, 48, 64])
def test_tiles_shrink_until_all_are_seen(count: int, size: tuple[int, int]) -> None:
    width, height = size
    layout = tile_layout(count, width, height)
    rows = -(-count // layout.columns)
    assert layout.width * layout.columns <= width
    assert layout.width >= 24 or layout.height == 1
    if count <= (width // 14) * height:
        assert rows * layout.height <= height
    else:
        assert layout.columns == width // 14


async def test_rounding_alone_is_no_curve_and_every_axis_has_numbers_that_differ(
    opened: Opener,
) -> None:
    async with opened((160, 45)) as pilot:
        app = app_of(pilot)
        metrics = [step.metrics for step in app.live_run.state.steps if step.metrics]
        for noise, each in zip((3e-14, -2e-14, 5e-14), metrics, strict=False):
            each["optim/kl_sample_train_v2"] = noise
        await press(pilot, "4")
        rows = pilot.app.screen.query_one("#curve", Pane).text.splitlines()
        (head,) = [index for index, line in enumerate(rows) if " KL " in line]
        start = rows[head].index(" KL ")
        labels = re.findall(r"(\S+)┤", "\n".join(line[start : start + 40] for line in rows[head:]))
        assert "0" in labels
        assert len(set(labels)) == len(labels) > 1
        assert "KL .00" in rows[head]
