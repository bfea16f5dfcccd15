"""Every key that the row at the bottom shows does something there, in whatever state."""

from __future__ import annotations

import pytest
from textual.pilot import Pilot

from tbtui.journal.rundir import RunDirectory
from tbtui.ui.application import TbtuiApp
from tbtui.ui.input.abilities import perform
from tbtui.ui.input.keys import Key
from tbtui.ui.panes.key_bar import KeyBar, key_row
from tbtui.ui.screens.cockpit import Cockpit
from tbtui.ui.services import RunEnd
from tbtui.view.state import TrialView
from tests.ui.opening import app_of
from tests.ui.picture import settle
from tests.ui.test_abilities import shown

LEAVE = {
    *("quit", "interrupt", "runs", "open-run", "library", "theme"),
    *("copy", "pager", "export", "finding-apply", "fork"),
}
"""Keys that leave the run, read or write files, or answer in a line what they have done."""
TRIALS = {
    "running": lambda trial: trial.live and trial.turn > 0 and not trial.paused,
    "queued": lambda trial: trial.live and trial.started_at is None,
    "finished": lambda trial: not trial.live and trial.successor is None,
    "retried": lambda trial: trial.successor is not None,
}
SCREENS: dict[str, tuple[str, ...]] = {"cockpit": (), "trial": ("enter",)}
OTHERS: dict[str, tuple[str, ...]] = {
    "group": ("g",),
    "charts": ("M",),
    "diagnosis": ("D",),
    "runs": ("R",),
    "settings": ("f3",),
    "commands": ("c",),
}
"""Screens that are the same for every trial."""


def keys_in_row(app: TbtuiApp) -> list[Key]:
    return app.screen.query_one(KeyBar)._keys(app.frames.frame())


async def reach(pilot: Pilot[int], trial: TrialView, keys: tuple[str, ...]) -> None:
    """Choose a trial in the cockpit, and press keys."""
    app = app_of(pilot)
    while not isinstance(app.screen, Cockpit):
        app.pop_screen()
        await pilot.pause()
    app.screen.query_one("#trials").focus()
    app.selection.choose(trial.trial)
    await settle(app)
    for key in keys:
        await pilot.press(key)
        await settle(app)
    app.clear_notifications()


async def refused_keys(
    pilot: Pilot[int], trial: TrialView, way: tuple[str, ...]
) -> list[tuple[str, list[str]]]:
    """The keys in the row of the screen that is reached that way, which only say something."""
    app = app_of(pilot)
    screen, refused = app.screen, []
    keys = [key for key in keys_in_row(app) if key.id not in LEAVE]
    assert keys, way
    for key in keys:
        moved = app.screen is not screen or app.selection.shown != trial.trial
        if moved or key not in keys_in_row(app):
            await reach(pilot, trial, way)
            screen = app.screen
        app.clear_notifications()
        await perform(app.screen, key)
        await settle(app)
        if said := [str(each.message) for each in app._notifications]:
            refused.append((key.id, said))
    return refused


@pytest.mark.slow
@pytest.mark.parametrize("over", [False, True])
@pytest.mark.parametrize("how", ["own", "attached", "replayed"])
async def test_no_key_that_is_shown_is_refused(
    run_directory: RunDirectory, how: str, over: bool
) -> None:
    async with shown(run_directory, how) as pilot:
        app = app_of(pilot)
        if over:
            app.shown.has_ended(RunEnd("finished", "2 steps"))
        if app.live_run.replay is not None:
            app.live_run.replay.playback.go_to(app.live_run.replay.playback.end)
            app.moved()
        await settle(app)
        known = app.live_run.state.trials.values()
        tried = set()
        for state, holds in TRIALS.items():
            trial = next((each for each in known if holds(each)), None)
            if trial is None:
                continue
            for name, way in SCREENS.items():
                await reach(pilot, trial, way)
                if type(app.screen) is Cockpit and way:
                    continue
                tried.add((state, name))
                assert await refused_keys(pilot, trial, way) == [], (state, name)
        assert tried


@pytest.mark.slow
@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("over", [False, True])
@pytest.mark.parametrize("how", ["own", "attached", "replayed"])
async def test_no_key_of_another_screen_is_refused(
    run_directory: RunDirectory, how: str, over: bool, name: str
) -> None:
    async with shown(run_directory, how) as pilot:
        app = app_of(pilot)
        if over:
            app.shown.has_ended(RunEnd("finished", "2 steps"))
        if app.live_run.replay is not None:
            app.live_run.replay.playback.go_to(app.live_run.replay.playback.end)
            app.moved()
        await settle(app)
        trial = next(iter(app.live_run.state.trials.values()))
        await reach(pilot, trial, OTHERS[name])
        if isinstance(app.screen, Cockpit):
            assert not app.abilities.met([app.user.keys.entry(name)]), name
            return
        assert await refused_keys(pilot, trial, OTHERS[name]) == []


@pytest.mark.slow
async def test_groups_of_keys_are_set_apart_where_there_is_room(
    run_directory: RunDirectory,
) -> None:
    async with shown(run_directory, "replayed") as pilot:
        app = app_of(pilot)
        keys, last = keys_in_row(app), app.user.keys.entry("palette")
        wide, places = key_row(keys, last, 300, app.palette)
        screen, clock, rest = wide.text.split("│")
        assert "filter" in screen
        assert "play" in clock
        assert "quit" in rest
        for start, end, key in places[:-1]:
            assert wide.text[start:end] == f" {key.shown} {key.label} "
        # They never take a key's room.
        rows = [key_row(keys, last, width, app.palette)[0].text for width in range(60, 220)]
        assert {row.count("│") for row in rows} == {0, 2}
