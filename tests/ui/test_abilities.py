"""Which keys there are for which run, from where it is looked at."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from textual.pilot import Pilot

from tbtui.journal.rundir import RunDirectory
from tbtui.ui.application import TbtuiApp
from tbtui.ui.base_app import BrowserApp
from tbtui.ui.context import ScopedScreen
from tbtui.ui.input.abilities import Abilities, strokes, tour_lines
from tbtui.ui.input.keys import KEYS, SCREENS, KeyTable, Scope
from tbtui.ui.runs import LiveRun, OpenRun, ReplayedRun
from tbtui.ui.screens.cockpit import Cockpit
from tbtui.ui.screens.commands import CommandScreen
from tbtui.ui.screens.help import help_text
from tbtui.ui.screens.runs import RunsScreen
from tbtui.ui.screens.tasks import TaskBrowser
from tbtui.ui.services import RecordedRun, RunEnd, RunHost, Services, WatchedRun
from tbtui.view.state import RunState
from tests.ui.opening import app_of, pane
from tests.ui.picture import PastHost, settle
from tests.ui.synthetic import START
from tests.ui.test_keymap import classes

NEEDS = {
    "own": {"steer", "tasks", "runs", "files"},
    "over": {"tasks", "runs", "files"},
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


HOSTS: dict[str, type[RunHost]] = {
    **{"own": PastHost, "over": PastHost, "attached": JoinedHost, "followed": WatchedRun},
    **{"replayed": RecordedRun, "served": WatchedRun, "served replay": RecordedRun},
}


class StillRun(LiveRun):
    """A run in a state that no journal has led to."""

    def __init__(self, directory: RunDirectory, how: str) -> None:
        super().__init__(directory)
        self.stands = RunState()
        self.how = how
        self._replay = ReplayedRun(directory) if "replay" in how else None

    @property
    def state(self) -> RunState:
        return self.stands

    @property
    def replay(self) -> ReplayedRun | None:
        return self._replay

    @property
    def abilities(self) -> Abilities:
        """What there is for it, as it is looked at."""
        end = RunEnd("finished", "2 steps") if self.how == "over" else None
        return Abilities(
            OpenRun(self, HOSTS[self.how](self.directory), end),
            showing_other="return" in NEEDS[self.how],
            guest=self.how.startswith("served"),
            library=True,
            settings=False,
        )


@asynccontextmanager
async def shown(directory: RunDirectory, how: str) -> AsyncIterator[Pilot[int]]:
    """The app with a run of one's own, or that of another that is looked at in that way."""
    services = Services(library=lambda run: pytest.fail("nobody has pressed T"))
    app = TbtuiApp(PastHost(directory), services, live=False, clock=lambda: START + 40.0)
    async with app.run_test(size=(160, 45), notifications=True) as pilot:
        if how != "own":
            live = LiveRun(directory, lambda: START + 40.0)
            app.open_runs.show(OpenRun(live, HOSTS[how](directory)))
            await pilot.pause()
        await settle(app)
        app.clear_notifications()
        yield pilot


ON_COCKPIT = [key for key in KEYS if key.scope in {*Cockpit.SCOPES, "replay"}]
"""What the cockpit of a live run or of a recorded one has."""


@pytest.mark.parametrize("how", NEEDS)
def test_only_what_makes_sense_is_there_and_the_rest_is_refused_in_one_line(
    run_directory: RunDirectory, how: str
) -> None:
    abilities, table = StillRun(run_directory, how).abilities, KeyTable()
    there = {key.id for key in KEYS if key.need is None or key.need in NEEDS[how]}
    assert {key.id for key in abilities.met(KEYS)} == there
    on_screen = abilities.on_screen(table, Cockpit.SCOPES)
    taken = {each for key in on_screen for each in strokes(key)}
    for key in ON_COCKPIT:
        told = abilities.refused_on(key, table, Cockpit.SCOPES)
        # It may be another one's key here.
        assert bool(told) == (key.id not in there and not strokes(key) & taken), key.id
        assert "\n" not in told


TOUR = {
    "attached": "space pauses a trial, s stops and verifies it",
    "followed": "f follows running trials, g compares a group's trials",
    "replayed": "space plays it, ] goes to the next turn",
    "served": "f follows running trials, g compares a group's trials",
    "served replay": "space plays it, ] goes to the next turn",
}


@pytest.mark.parametrize("how", TOUR)
def test_the_tour_says_what_can_be_done_from_there(run_directory: RunDirectory, how: str) -> None:
    lines = tour_lines(KeyTable(), StillRun(run_directory, how).abilities)
    assert lines[1] == TOUR[how]
    assert len(lines) == 5
    assert max(map(len, lines)) <= 56


@pytest.mark.parametrize("how", ["own", "followed"])
async def test_palette_help_and_row_have_what_there_is(
    run_directory: RunDirectory, how: str
) -> None:
    async with shown(run_directory, how) as pilot:
        app = app_of(pilot)
        there = {key.id for key in app.keys_met(KEYS)}
        titles = [each.title for each in app.get_system_commands(app.screen)]
        labels = [title.rpartition(" (")[0] for title in titles if title.endswith(")")]
        assert "overview" in labels
        assert len(set(labels)) == len(labels)
        row = pane(pilot, "keys").text
        help_lines = " ".join(help_text(app.keys_met(KEYS)).split())
        # This run's steps wait for nobody.
        assert "review" not in row
        assert "review (V)" in titles
        for key in (key for key in ON_COCKPIT if key.need):
            assert (f"{key.label} ({key.shown})" in titles) == (key.id in there and key.palette)
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
    for screen in (each for each in classes() if issubclass(each, ScopedScreen)):
        assert any(scopes.issuperset(screen.SCOPES) for scopes in together), screen


def test_while_words_are_typed_none_of_our_keys_is_bound() -> None:
    assert not any(key.bound for key in KEYS if key.scope == "words")


def test_the_browser_offers_only_what_it_has() -> None:
    scopes = {key.scope for key in BrowserApp.keys_met(BrowserApp, KEYS)}  # type: ignore[arg-type]
    assert scopes == {"everywhere", *(s for s in TaskBrowser.SCOPES), "library-preview"}
