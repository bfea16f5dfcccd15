"""Which keys there are for which run, from where it is looked at."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from textual.pilot import Pilot

from tbtui.journal.rundir import RunDirectory
from tbtui.ui.application import TbtuiApp
from tbtui.ui.base_app import BrowserApp
from tbtui.ui.input.abilities import strokes
from tbtui.ui.input.keys import KEYS, SCREENS, Scope
from tbtui.ui.runs import LiveRun, OpenRun, ReplayedRun
from tbtui.ui.screens.cockpit import Cockpit
from tbtui.ui.screens.commands import CommandScreen
from tbtui.ui.screens.help import help_text
from tbtui.ui.screens.runs import RunsScreen
from tbtui.ui.screens.tasks import TaskBrowser
from tbtui.ui.services import RecordedRun, RunHost, Services, WatchedRun
from tests.ui.opening import app_of, pane
from tests.ui.picture import PastHost, settle
from tests.ui.synthetic import START

NEEDS = {
    "own": {"steer", "tasks", "runs", "files"},
    "attached": {"steer", "return", "tasks", "runs", "files"},
    "followed": {"return", "tasks", "runs", "files"},
    "replayed": {"clock", "return", "tasks", "runs", "files"},
    "served": set(),
    "served replay": {"clock"},
}
"""How a run is looked at -> what keys there are for."""


class JoinedHost(WatchedRun):
    """Somebody else's run; nobody has its controls."""

    read_only = "nobody has the controls"
    steerable = True


@asynccontextmanager
async def shown(directory: RunDirectory, how: str) -> AsyncIterator[Pilot[int]]:
    """The app with a run that is looked at in that way."""
    recorded = ReplayedRun(directory) if how == "served replay" else None
    host: RunHost = PastHost(directory)
    if how.startswith("served"):
        host = RecordedRun(directory) if recorded else WatchedRun(directory)
    app = TbtuiApp(
        host,
        recorded=recorded,
        live=False,
        clock=lambda: START + 40.0,
        services=Services(
            library=lambda run: pytest.fail("nobody has pressed T"), guest=how.startswith("served")
        ),
    )
    async with app.run_test(size=(160, 45), notifications=True) as pilot:
        if how in ("attached", "followed", "replayed"):
            kinds = {"attached": JoinedHost, "followed": WatchedRun, "replayed": RecordedRun}
            live = LiveRun(directory, lambda: START + 40.0)
            run = ReplayedRun(directory) if how == "replayed" else live
            app.open_runs.show(OpenRun(run, kinds[how](directory)))
            await pilot.pause()
        await settle(app)
        app.clear_notifications()
        yield pilot


async def test_a_command_of_a_live_run_is_offered_once(run_directory: RunDirectory) -> None:
    async with shown(run_directory, "own") as pilot:
        app = app_of(pilot)
        titles = [each.title for each in app.get_system_commands(app.screen)]
        labels = [title.rpartition(" (")[0] for title in titles if title.endswith(")")]
        assert "overview" in labels
        assert len(set(labels)) == len(labels)


@pytest.mark.parametrize("how", NEEDS)
async def test_only_what_makes_sense_is_offered(run_directory: RunDirectory, how: str) -> None:
    async with shown(run_directory, how) as pilot:
        app = app_of(pilot)
        there = {key.id for key in KEYS if key.need is None or key.need in NEEDS[how]}
        assert {key.id for key in app.keys_met(KEYS)} == there
        scopes = {*Cockpit.SCOPES, "replay"}
        offered = {each.title for each in app.get_system_commands(app.screen)}
        row = pane(pilot, "keys").text
        help_lines = " ".join(help_text(app.keys_met(KEYS)).split())
        # This run's steps wait for nobody.
        assert "review" not in row
        assert "review (V)" in offered
        for key in (key for key in KEYS if key.need and key.scope in scopes):
            assert (f"{key.label} ({key.shown})" in offered) == (key.id in there and key.palette)
            assert (key.help in help_lines) == (key.id in there)
            if key.id not in there:
                assert f" {key.shown} {key.label} " not in row


@pytest.mark.slow
async def test_a_screen_has_no_key_that_leads_to_itself(run_directory: RunDirectory) -> None:
    async with shown(run_directory, "attached") as pilot:
        for key, screen in (("R", RunsScreen), ("c", CommandScreen)):
            await pilot.press(key)
            await pilot.pause()
            assert isinstance(pilot.app.screen, screen)
            await settle(app_of(pilot))
            row = pane(pilot, "keys").text
            assert {"R": "R runs", "c": "c history"}[key] not in row
            offered = {each.title for each in app_of(pilot).get_system_commands(pilot.app.screen)}
            assert ("runs (R)" in offered, "history (c)" in offered) == (key != "R", key != "c")
            await pilot.press("escape")


def test_what_is_done_by_several_keys_needs_the_same() -> None:
    needs: dict[str, set[str | None]] = {}
    for key in KEYS:
        needs.setdefault(key.action, set()).add(key.need)
    assert [action for action, each in needs.items() if len(each) > 1] == []


@pytest.mark.slow
@pytest.mark.parametrize("how", NEEDS)
async def test_the_rest_is_refused_in_one_line_whoever_asks(
    run_directory: RunDirectory, how: str
) -> None:
    async with shown(run_directory, how) as pilot:
        app = app_of(pilot)
        there = {key.id for key in app.keys_met(KEYS)}
        taken = {each for key in app.keys_on_screen(*Cockpit.SCOPES) for each in strokes(key)}
        before = app.screen, app.shown
        for key in KEYS:
            if key.scope not in {*Cockpit.SCOPES, "replay"} or key.id in there:
                continue
            await app.screen.run_action(key.action)
            await pilot.pause()
            told = [str(toast.message) for toast in app._notifications]
            app.clear_notifications()
            # It may be another one's key here.
            assert len(told) == (0 if strokes(key) & taken else 1), key.id
            assert "\n" not in "".join(told)
            assert (app.screen, app.shown) == before
        if isinstance(app.shown.host, PastHost):
            assert app.shown.host.commands == []


TOUR = {
    "attached": "space pauses a trial, s stops and verifies it",
    "followed": "f follows running trials, g compares a group's trials",
    "replayed": "space plays it, ] goes to the next turn",
    "served": "f follows running trials, g compares a group's trials",
    "served replay": "space plays it, ] goes to the next turn",
}


@pytest.mark.slow
@pytest.mark.parametrize("how", [how for how in NEEDS if how != "own"])
async def test_the_tour_says_what_can_be_done_from_there(
    run_directory: RunDirectory, how: str
) -> None:
    async with shown(run_directory, how) as pilot:
        await pilot.press("f2")
        (toast,) = app_of(pilot)._notifications
        lines = str(toast.message).splitlines()
        assert lines[1] == TOUR[how]
        assert len(lines) == 5
        assert max(map(len, lines)) <= 56


async def test_keys_of_a_screen_are_not_refused_on_another(run_directory: RunDirectory) -> None:
    async with shown(run_directory, "own") as pilot:
        app = app_of(pilot)
        await pilot.press("c", "space", "left_square_bracket")
        assert not app._notifications
        await pilot.press("escape", "minus")
        (toast,) = app._notifications
        assert str(toast.message) == "Only a recorded run has a clock; tbtui replay opens one."


TREE_OWN = {
    frozenset({"full-speed", "faster"}),
    frozenset({"full-speed", "tree-more"}),
    frozenset({"full-speed", "faster", "tree-more"}),
    frozenset({"slower", "tree-less"}),
    frozenset({"tree-choose", "open"}),
    frozenset({"tree-mute", "message"}),
    frozenset({"tree-toggle", "pause"}),
    frozenset({"tree-toggle", "play"}),
}
"""In the task tree, a tree's usual keys act on its row; everywhere else they act on the trial. A
recorded run has a clock, which goes faster, and no beginning that is slowed down."""


def done_by(app: TbtuiApp) -> dict[str, set[str]]:
    """Key -> ids of all that is bound to it and enabled, from the focused widget to the app."""
    table = {key.id: key for key in app.user.keys.keys}
    done: dict[str, set[str]] = {}
    for node, bound in app.screen._binding_chain:
        for stroke, each in bound:
            key = table.get(each.id or "")
            if key is None or app.abilities.refusal(key.need):
                continue
            if app._check_action_state(each.action, node):
                done.setdefault(stroke, set()).add(key.id)
    return done


@pytest.mark.slow
@pytest.mark.parametrize("how", ["own", "replayed"])
async def test_no_key_does_two_things_at_once(run_directory: RunDirectory, how: str) -> None:
    async with shown(run_directory, how) as pilot:
        app = app_of(pilot)
        ways = ((), ("enter",), ("enter", "p"), ("g",), ("c",), ("R",), ("V",), ("ctrl+f",))
        for way in ways:
            await pilot.press(*way)
            await settle(app)
            for place in app.screen.focus_chain:
                app.screen.set_focus(place)
                twice = [ids for ids in map(frozenset, done_by(app).values()) if len(ids) > 1]
                assert set(twice) <= TREE_OWN, (way, place)
            while not isinstance(app.screen, Cockpit):
                app.pop_screen()
                await pilot.pause()
            app.screen.query_one("#trials").focus()
            await settle(app)


@pytest.mark.parametrize("scopes", SCREENS)
def test_no_key_is_given_twice_among_those_that_work_together(scopes: tuple[Scope, ...]) -> None:
    keys = [key for key in KEYS if key.scope in (*scopes, "panes")]
    if "replay" in scopes:
        # The clock takes the place of the trial's.
        taken = {each for key in keys if key.scope == "replay" for each in strokes(key)}
        keys = [key for key in keys if key.scope != "trial" or not strokes(key) & taken]
    by_stroke: dict[str, set[str]] = {}
    for key in keys:
        for stroke in strokes(key):
            by_stroke.setdefault(stroke, set()).add(key.id)
    assert {frozenset(ids) for ids in by_stroke.values() if len(ids) > 1} <= TREE_OWN


def test_every_screen_is_among_those_whose_keys_are_compared() -> None:
    together = [set(scopes) for scopes in SCREENS]
    for key in KEYS:
        # Words are typed alone: only what the box itself does with a key counts then.
        alone = key.scope in ("panes", "words")
        assert alone or any(key.scope in scopes for scopes in together), key.id


def test_while_words_are_typed_none_of_our_keys_is_bound() -> None:
    assert not any(key.bound for key in KEYS if key.scope == "words")


def test_the_browser_offers_only_what_it_has() -> None:
    scopes = {key.scope for key in BrowserApp.keys_met(BrowserApp, KEYS)}  # type: ignore[arg-type]
    assert scopes == {"everywhere", *(s for s in TaskBrowser.SCOPES), "library-preview"}
