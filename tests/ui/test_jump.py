"""The box that finds everything by its name."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable
from types import SimpleNamespace

import pytest
from textual.pilot import Pilot
from textual.widgets import Input, MarkdownViewer, OptionList

from tbtui.journal.rundir import RunDirectory
from tbtui.resources import guide_sections
from tbtui.show_run import make_settings
from tbtui.ui.input.matching import Matcher, ranked
from tbtui.ui.screens.charts import ChartScreen
from tbtui.ui.screens.cockpit import Cockpit
from tbtui.ui.screens.group import GroupScreen
from tbtui.ui.screens.guide import GuideScreen, GuideViewer
from tbtui.ui.screens.jump import JumpScreen
from tbtui.ui.screens.runs import RunsScreen
from tbtui.ui.screens.settings import SettingsScreen
from tbtui.ui.screens.trial import TrialScreen
from tbtui.ui.services import Services
from tbtui.view.targets import Target
from tests.ui.opening import Opener, app_of, pane, press, replaying, rest, screen_of, window
from tests.ui.picture import settle

SERVICES = Services(settings=make_settings)


async def jump(pilot: Pilot[int], text: str) -> list[str]:
    """Type a text into the box; the rows that it finds."""
    await pilot.press("colon")
    screen = screen_of(pilot, JumpScreen)
    screen.query_one(Input).value = text
    await rest(pilot)
    listed = screen.query_one(OptionList)
    return [str(option.prompt).rstrip() for option in listed.options]


async def go(pilot: Pilot[int]) -> None:
    await press(pilot, "enter")


async def test_a_trial_is_found_by_its_label_and_opened(opened: Opener) -> None:
    async with opened(services=SERVICES) as pilot:
        app = app_of(pilot)
        trial = next(iter(app.live_run.state.trials.values()))
        rows = await jump(pilot, trial.label)
        assert trial.label in rows[0]
        await go(pilot)
        assert isinstance(app.screen, TrialScreen)
        assert app.live_run.state.trials[app.screen.trial].label == trial.label


async def test_a_step_lists_its_groups_and_trials_and_a_group_opens(opened: Opener) -> None:
    async with opened(services=SERVICES) as pilot:
        app = app_of(pilot)
        rows = await jump(pilot, "s1")
        assert rows[0].split()[:3] == ["step", "step", "1"]
        assert any(row.startswith(" group ") for row in rows)
        assert all("s1" in row for row in rows[1:])
        at = next(i for i, row in enumerate(rows) if row.startswith(" group "))
        await pilot.press(*["down"] * at)
        await go(pilot)
        assert isinstance(app.screen, GroupScreen)
        assert app.live_run.state.trials[app.screen.trial].step == 1


@pytest.mark.parametrize("key", ["enter", "tab"])
async def test_a_step_of_a_live_run_is_looked_into(opened: Opener, key: str) -> None:
    async with opened(services=SERVICES) as pilot:
        await jump(pilot, "step 1")
        await press(pilot, key)
        assert isinstance(pilot.app.screen, JumpScreen)
        assert pilot.app.screen.query_one(Input).value == "s1 "


async def test_a_step_of_a_recorded_run_moves_its_clock(run_directory: RunDirectory) -> None:
    app, recorded = replaying(run_directory, services=SERVICES)
    async with window(app, (120, 40)) as pilot:
        before = recorded.now
        await jump(pilot, "step 1")
        await go(pilot)
        assert isinstance(app.screen, Cockpit)
        assert recorded.now == recorded.timeline.step_end(1) != before


async def test_a_recorded_trial_is_reached_whenever_it_ran(run_directory: RunDirectory) -> None:
    app, recorded = replaying(run_directory, services=SERVICES)
    async with window(app, (120, 40)) as pilot:
        assert not recorded.state.trials
        rows = await jump(pilot, "s1 /2 solved")
        await go(pilot)
        screen = screen_of(pilot, TrialScreen)
        assert recorded.state.trials[screen.trial].label in rows[0]
        assert recorded.state.trials[screen.trial].outcome == "solved"


async def test_a_task_filters_the_cockpit_from_any_screen(opened: Opener) -> None:
    async with opened(services=SERVICES) as pilot:
        app = app_of(pilot)
        task = app.frames.frame().shown[0].task
        await pilot.press("R")
        await jump(pilot, f"task {task}")
        await go(pilot)
        assert isinstance(app.screen, Cockpit)
        assert {each.task for each in app.frames.frame().listed} == {task}


async def on_setting(pilot: Pilot[int]) -> bool:
    await settle(app_of(pilot))
    screen = pilot.app.screen
    title = str(pane(pilot, "setting").border_title)
    return isinstance(screen, SettingsScreen) and "learning_rate" in title


async def on_its_chart(pilot: Pilot[int]) -> bool:
    """On the charts, which draw it; also where they are open with others already."""
    screen = screen_of(pilot, ChartScreen)
    if (chart := screen.chart) is None or chart.request.metrics != ("optim/neg_logprob",):
        return False
    await jump(pilot, "metric entropy")
    await go(pilot)
    return pilot.app.screen is screen and screen.request.metrics[0] == "optim/entropy"


async def on_runs(pilot: Pilot[int]) -> bool:
    return isinstance(pilot.app.screen, RunsScreen)


async def on_page(pilot: Pilot[int]) -> bool:
    screen = pilot.app.screen
    if not isinstance(screen, GuideScreen):
        return False
    return screen.query_one(MarkdownViewer).navigator.location.stem == "steering"


async def on_theme(pilot: Pilot[int]) -> bool:
    return pilot.app.theme == "tbtui-light"


@pytest.mark.parametrize(
    ("text", "there"),
    [
        ("learnrate", on_setting),
        ("metric neg_logprob", on_its_chart),
        ("runs", on_runs),
        ("guide steering", on_page),
        ("theme light", on_theme),
    ],
)
async def test_all_else_is_gone_to(
    opened: Opener, text: str, there: Callable[[Pilot[int]], Awaitable[bool]]
) -> None:
    async with opened(services=SERVICES) as pilot:
        await jump(pilot, text)
        await go(pilot)
        assert await there(pilot), text


async def test_nothing_of_a_name_goes_nowhere(opened: Opener) -> None:
    async with opened(services=SERVICES) as pilot:
        assert await jump(pilot, "zzzqqq") == [" nothing of that name"]
        await pilot.press("enter", "escape")
        assert isinstance(pilot.app.screen, Cockpit)


@pytest.mark.slow
async def test_every_section_of_the_guide_is_where_it_is_said_to_be(opened: Opener) -> None:
    async with opened(services=SERVICES) as pilot:
        sections = [each for each in guide_sections() if each[0] in ("steering", "trust")]
        for page, heading, anchor in sections:
            if not heading:
                app_of(pilot).show_guide(page)
                await pilot.pause(0.2)
                continue
            screen = screen_of(pilot, GuideScreen)
            assert screen.query_one(GuideViewer).document.goto_anchor(anchor), heading


async def test_the_loop_goes_on_while_thousands_of_trials_are_ranked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked = itertools.count()
    # Each look at the clock is a millisecond later.
    clock = SimpleNamespace(monotonic=lambda: next(looked) / 1000)
    monkeypatch.setattr("tbtui.ui.input.matching.time", clock)
    names = [f"nested-{number % 97:02d}/{number % 16 + 1}" for number in range(2_000)]
    targets = [Target("trial", str(at), name, "failed", at // 64) for at, name in enumerate(names)]
    ranking = asyncio.create_task(ranked(Matcher("nested /3"), targets, 40))
    turns = 0
    while not ranking.done():
        turns += 1
        await asyncio.sleep(0)
    assert {match.target.name.rpartition("/")[2] for match in await ranking} == {"3"}
    assert turns > 20


def test_many_ways_to_find_letters_are_not_all_tried() -> None:
    began = time.process_time()
    matcher = Matcher("abababababababab")
    matcher.score(Target("task", "x", "aabb" * 16 + "a", "", None))
    assert time.process_time() - began < 1.0


@pytest.mark.parametrize(
    ("typed", "name", "matches"),
    [
        ("lr", "learning_rate", True),
        ("learning_rate", "learning_rate", True),
        ("lrate", "learning_rate", True),
        ("cp2", "copy-02/1", True),
        ("xyz", "learning_rate", False),
        ("etaR", "learning_rate", False),
    ],
)
def test_names_are_matched_fuzzily(typed: str, name: str, matches: bool) -> None:
    assert bool(Matcher(typed).score(Target("setting", name, name))) == matches
