"""The row of keys at the bottom: it has the keys that work now, and each does something."""

from __future__ import annotations

import itertools
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

from tbtui.config import RunConfig
from tbtui.journal.hold import FROZEN, PAUSED, typed_in
from tbtui.journal.rundir import RunDirectory
from tbtui.journal.verbs import TRIAL_VERBS, meant
from tbtui.resources import tasks_dir
from tbtui.show_run import live_effect, make_settings, make_trial_tools
from tbtui.task_library import CatalogLibrary
from tbtui.ui.application import TbtuiApp
from tbtui.ui.context import ScopedScreen
from tbtui.ui.input.abilities import CONTROLS, REVIEW, perform, strokes
from tbtui.ui.input.keys import KEYS, Key, KeyTable
from tbtui.ui.panes.key_bar import KeyBar, KeyLine, key_row, keys_that_work
from tbtui.ui.runs import OpenRun, ReplayedRun
from tbtui.ui.screens.charts import ChartScreen
from tbtui.ui.screens.cockpit import Cockpit
from tbtui.ui.screens.commands import CommandScreen
from tbtui.ui.screens.diagnosis import DiagnosisScreen
from tbtui.ui.screens.group import GroupScreen
from tbtui.ui.screens.prompt import PromptScreen
from tbtui.ui.screens.review import ReviewScreen
from tbtui.ui.screens.runs import RunsScreen
from tbtui.ui.screens.search import SearchScreen
from tbtui.ui.screens.settings import SettingsScreen
from tbtui.ui.screens.tasks import TaskBrowser
from tbtui.ui.screens.trial import TrialScreen
from tbtui.ui.services import RecordedRun, RunEnd, Services
from tbtui.ui.theme.palette import Palette
from tbtui.view.standing import standing
from tbtui.view.state import RunState, StepView, TrialView
from tbtui.vocabulary import CommandVerb, RunPhase, TrialPhase
from tests.ui.opening import app_of, rest
from tests.ui.picture import PastHost
from tests.ui.review_run import ReviewedRun, ReviewHost
from tests.ui.styled_text import styled_text
from tests.ui.synthetic import START
from tests.ui.test_abilities import NEEDS, StillRun
from tests.ui.test_themes import bundled

# As data: every key, on every screen, whatever the run and the trial are at

SCREENS: tuple[type[ScopedScreen], ...] = (
    *(Cockpit, TrialScreen, GroupScreen, ReviewScreen, DiagnosisScreen, ChartScreen),
    *(CommandScreen, RunsScreen, SearchScreen, SettingsScreen, PromptScreen),
)
ENDED: dict[str, Any] = {"phase": TrialPhase.FINISHED, "finished_at": 1.0}
TRIALS: dict[str, dict[str, Any]] = {
    **{str(phase): {"phase": phase} for phase in TrialPhase if phase is not TrialPhase.FINISHED},
    "will pause": {"phase": TrialPhase.QUEUED, "pending": "pause"},
    "pausing": {"phase": TrialPhase.MODEL, "pending": "pause"},
    "paused": {"phase": TrialPhase.PAUSED, "hold": PAUSED},
    "frozen": {"phase": TrialPhase.PAUSED, "hold": FROZEN},
    "taken over": {"phase": TrialPhase.PAUSED, "hold": typed_in("ann")},
    "ended": ENDED,
    "retried": {**ENDED, "successor": "t-a2"},
    "excluded": {**ENDED, "excluded": True},
    "without a turn": {**ENDED, "completion_tokens": 0},
    "held out": {"phase": TrialPhase.ACTING, "purpose": "eval"},
    "ended held out": {**ENDED, "purpose": "eval"},
    "fork": {"phase": TrialPhase.MODEL, "purpose": "fork", "parent": "p"},
    "ended fork": {**ENDED, "purpose": "fork", "parent": "p"},
}
RUNS: dict[str, dict[str, Any]] = {
    "sampling": {},
    "trained": {"steps": [StepView(1, 0.0, finished_at=1.0)]},
    "paused": {"paused": True},
    "finished": {"status": "finished"},
    "of Prime-RL": {"settings": {"engine": "prime-rl"}},
    "with reviews": {"settings": {"review": "suspects"}},
}


def trial_at(**values: Any) -> TrialView:
    fields = {"purpose": "train", "completion_tokens": 9, **values}
    return TrialView("t", "copy-01/1", "copy-01", "g", 1, attempt=1, budget_sec=60.0,
                     queued_at=0.0, **fields)  # fmt: skip


def run_at(trial: TrialView | None, **values: Any) -> RunState:
    state = RunState(**{"steps": [StepView(1, 0.0)], **values})
    parent = trial_at()
    parent.trial = "p"
    state.trials = {each.trial: each for each in (trial, parent) if each is not None}
    return state


def row_of(
    run: StillRun, screen: type[ScopedScreen], trial: TrialView | None, state: RunState
) -> list[Key]:
    """The keys in the row of a screen, before the screen itself leaves out what leads nowhere."""
    run.stands = state
    return keys_that_work(run.abilities.in_bar(KeyTable(), screen.SCOPES), trial, state)


def steered_by(key: Key) -> CommandVerb | None:
    """What a key of a trial asks of it, by its action in the table of keys."""
    steered = re.fullmatch(r"app\.steer\('(\w+)'\)", key.action)
    return next((verb for verb in TRIAL_VERBS if steered and verb == steered[1]), None)


@pytest.mark.parametrize("how", NEEDS)
def test_a_key_is_shown_where_its_verb_is_not_refused(
    run_directory: RunDirectory, how: str
) -> None:
    there = {key.id for key in KEYS if key.need is None or key.need in NEEDS[how]}
    verbs = {key: verb for key in KEYS if key.bar and (verb := steered_by(key))}
    assert len(verbs) == 8
    run = StillRun(run_directory, how)
    for screen, stands, at in itertools.product(SCREENS, TRIALS, RUNS):
        trial = trial_at(**TRIALS[stands])
        state = run_at(trial, **RUNS[at])
        row = row_of(run, screen, trial, state)
        case = (how, screen.__name__, stands, at)
        assert row, case
        assert {key.id for key in row} <= there, case
        assert len({each for key in row for each in strokes(key)}) == sum(
            len(strokes(key)) for key in row
        ), case
        shown = {key.id: key.label for key in row}
        for key, verb in verbs.items():
            if key.scope not in screen.SCOPES:
                continue
            now, refused = meant(verb, standing(trial, state))
            assert (key.id in shown) == (key.id in there and CONTROLS not in shown and not refused)
            if key.id in shown:
                assert shown[key.id] == (key.label if now == verb else now), case


LIVE = "s stop · x cancel · r retry · e exclude · i take over"


@pytest.mark.parametrize("screen", [Cockpit, TrialScreen])
@pytest.mark.parametrize(
    ("stands", "keys"),
    [
        ("queued", "space pause · s stop · x cancel · e exclude"),
        ("will pause", "space resume · s stop · x cancel · e exclude"),
        ("pausing", "z freeze · " + LIVE),
        ("acting", "space pause · z freeze · " + LIVE),
        ("paused", "space resume · z freeze · " + LIVE + " · m message"),
        ("frozen", "space resume · z resume · " + LIVE + " · m message"),
        ("ended", "r retry · e exclude"),
        ("excluded", "r retry · e include"),
        ("held out", f"space pause · z freeze · {LIVE}".replace(" · e exclude", "")),
        ("ended held out", ""),
    ],
)
def test_what_the_row_has_for_a_trial(
    run_directory: RunDirectory, screen: type[ScopedScreen], stands: str, keys: str
) -> None:
    trial = trial_at(**TRIALS[stands])
    row = row_of(StillRun(run_directory, "own"), screen, trial, run_at(trial))
    assert " · ".join(f"{k.shown} {k.label}" for k in row if k.scope == "steering") == keys


@pytest.mark.parametrize("phase", [RunPhase.TRAINING, RunPhase.SAVING, RunPhase.SAMPLING])
def test_a_trial_of_any_open_step_can_be_left_out_in_any_phase(phase: RunPhase) -> None:
    """Whether it is too late, the engine says."""
    for finished_at, refused in ((None, ""), (1.0, "it is no part of the step that is being")):
        steps = [StepView(step, 0.0, finished_at=finished_at) for step in (1, 2)]
        ended = trial_at(**ENDED)
        state = run_at(ended, steps=steps, phase=phase)
        for verb in ("exclude", "retry"):
            now, words = meant(verb, standing(ended, state))
            assert (now, words[: len(refused)], bool(words)) == (verb, refused, bool(refused))


def test_what_the_row_has_for_a_run(run_directory: RunDirectory) -> None:
    def row(how: str, **values: Any) -> dict[str, str]:
        state = run_at(None, **values)
        run = StillRun(run_directory, how)
        return {key.id: key.label for key in row_of(run, Cockpit, None, state)}

    assert row("own")["pause-run"] == "pause run"
    assert row("own", paused=True)["pause-run"] == "resume run"
    assert "open" not in row("own")  # there is no trial
    assert REVIEW not in row("own")
    assert REVIEW in row("own", settings={"review": "always"})
    # Somebody else has the controls: they can be taken, and nothing else can be asked.
    assert CONTROLS not in row("own")
    assert CONTROLS in row("attached")
    assert "pause-run" not in row("attached")


def test_groups_of_keys_are_set_apart_where_there_is_room(run_directory: RunDirectory) -> None:
    trial, palette = trial_at(**ENDED), Palette(bundled("tbtui-dark"))
    keys = row_of(StillRun(run_directory, "replayed"), Cockpit, trial, run_at(trial))
    last = KeyTable().entry("palette")
    wide, places = key_row(keys, last, 300, palette)
    screen, clock, others = wide.text.split("│")
    assert "filter" in screen
    assert "play" in clock
    assert "quit" in others
    for start, end, key in places[:-1]:
        assert wide.text[start:end] == f" {key.shown} {key.label} "
    # They never take a key's room.
    rows = [key_row(keys, last, width, palette)[0].text for width in range(60, 220)]
    assert {row.count("│") for row in rows} == {0, 2}


# In the app: what each of the shown keys changes

OUTSIDE = {"pager", "prompt-pager", "interrupt"}
"""Keys that start another program, or end the app."""
WAYS: dict[str, tuple[str, ...]] = {
    "cockpit": (),
    "trial": ("enter",),
    "prompt": ("enter", "p"),
    "group": ("g",),
    "charts": ("M",),
    "diagnosis": ("D",),
    "runs": ("R",),
    "settings": ("f3",),
    "history": ("c",),
    "search": ("ctrl+f", "e", "c", "h", "o", "enter"),
    "tasks": ("T",),
}


async def go(pilot: Pilot[int], way: tuple[str, ...], trial: TrialView | None) -> None:
    """Go back to the cockpit, choose the trial and press keys."""
    app = app_of(pilot)
    while not isinstance(app.screen, Cockpit):
        app.pop_screen()
        await pilot.pause()
    if app.screen.full:
        app.screen.action_full(0)
    app.screen.query_one("#trials").focus()
    if trial is not None:
        app.selection.choose(trial.trial)
    await rest(pilot)
    for key in way:
        await pilot.press(key)
        await rest(pilot)
        if key == "enter" and trial is not None and not app.opened_trial and way[0] == "enter":
            await pilot.press("enter")  # its group's terminals were opened first
            await rest(pilot)
        while key == "T" and not isinstance(app.screen, TaskBrowser):
            await rest(pilot)
    app.clear_notifications()


def keys_shown(app: TbtuiApp) -> list[Key]:
    if bars := app.screen.query(KeyBar):
        return bars.first()._keys(app.frames.frame())
    return [key for _, _, key in app.screen.query_one(KeyLine)._places]


def marks(app: TbtuiApp, host: PastHost) -> tuple[object, ...]:
    """All that a key can change."""
    said = tuple(str(each.message) for each in app._notifications)
    return len(app.screen_stack), styled_text(app), len(host.commands), app.clipboard, said


async def idle_keys(
    pilot: Pilot[int], host: PastHost, way: tuple[str, ...], trial: TrialView | None
) -> list[str]:
    """Ids of the shown keys that change nothing, or only say why they don't."""
    app = app_of(pilot)
    await go(pilot, way, trial)
    screen = app.screen
    assert isinstance(screen, Cockpit) == (not way), way
    assert keys_shown(app)
    idle = []
    for key in keys_shown(app):
        if key.id in OUTSIDE or (way and key.scope == "everywhere"):
            continue  # what every screen has is tried in the cockpit
        if app.screen is not screen or getattr(screen, "full", 0):
            await go(pilot, way, trial)
            screen = app.screen
        if key not in keys_shown(app):
            continue  # one that was pressed before has changed what there is to do
        app.clear_notifications()
        host.commands.clear()
        before = marks(app, host)
        await perform(app.screen, key)
        await pilot.pause()
        if app.return_value is not None:
            continue
        await rest(pilot)
        after = marks(app, host)
        told_only = before[:4] == after[:4]
        here = before[0] == after[0]
        refused = here and any(each.severity == "warning" for each in app._notifications)
        if told_only or refused:
            idle.append(key.id)
    return idle


def services(logs_dir: Path) -> Services:
    return Services(
        library=lambda _: CatalogLibrary([tasks_dir() / "starter"], RunConfig(logs_dir=logs_dir)),
        trial_tools=make_trial_tools,
        settings=make_settings,
        live_effect=live_effect,
        add_rule=lambda *_: None,
    )


@asynccontextmanager
async def shown(run: RunDirectory, how: str) -> AsyncIterator[tuple[Pilot[int], PastHost]]:
    host = PastHost(run)
    app = TbtuiApp(host, services(run.path.parent), live=False, clock=lambda: START + 40.0)
    async with app.run_test(size=(240, 45), notifications=True) as pilot:
        if how == "over":
            app.own.has_ended(RunEnd("finished", "2 steps"))
        if how == "replay":
            app.open_runs.show(OpenRun(ReplayedRun(run), RecordedRun(run)))
        await rest(pilot)
        if replay := app.live_run.replay:
            replay.playback.go_to(START + 20.0)
            app.moved()
            await rest(pilot)
        yield pilot, host


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "screen"),
    [*(("live", screen) for screen in WAYS), ("over", "cockpit"), ("replay", "trial")],
)
async def test_every_key_that_is_shown_does_something(
    run_directory: RunDirectory, how: str, screen: str
) -> None:
    async with shown(run_directory, how) as (pilot, host):
        trials = app_of(pilot).live_run.state.trials.values()
        running = how == "live" and screen == "cockpit"
        trial = next(
            each
            for each in trials
            if each.live == running and each.turn > 1 and not each.hold.paused
        )
        assert await idle_keys(pilot, host, WAYS[screen], trial) == []


@pytest.mark.slow
async def test_every_key_that_a_review_shows_does_something(tmp_path: Path) -> None:
    run = ReviewedRun(tmp_path / "reviewed")
    host = ReviewHost(run)
    app = TbtuiApp(host, services(tmp_path), live=False, clock=lambda: run.now)
    async with app.run_test(size=(240, 45), notifications=True) as pilot:
        await rest(pilot)
        for below in (0, 4):  # a suspect trial, and a group that was lost to infrastructure
            assert await idle_keys(pilot, host, ("V", *["down"] * below), None) == [], below
    run.close()
