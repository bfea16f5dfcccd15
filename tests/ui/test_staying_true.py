"""Dialogs and toasts say what holds now, and go when they no longer do."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual.widgets import Static
from textual.widgets._toast import Toast

from tbtui.journal.rundir import RunDirectory
from tbtui.ui.application import TbtuiApp
from tbtui.ui.notifications import MAX_NOTIFICATIONS
from tbtui.ui.panes.clock import TransportLine
from tbtui.ui.runs import ReplayedRun
from tbtui.ui.screens.cockpit import Cockpit
from tbtui.ui.screens.dialogs import ConfirmDialog, Hint, LeaveDialog, ReasonDialog, hint_rows
from tbtui.ui.screens.help import HelpDialog
from tbtui.ui.screens.task_sets import SetNameDialog
from tbtui.ui.services import RecordedRun, RunEnd
from tests.ui.opening import Opener, SimulatedHost, app_of, pane, run_at
from tests.ui.picture import PastHost, settle
from tests.ui.synthetic import START


def said(app: TbtuiApp) -> list[str]:
    return [each.message for each in app._notifications]


async def test_the_question_whether_to_leave_counts_on_and_goes_with_the_run(
    steered: Opener, simulated: SimulatedHost
) -> None:
    async with steered() as pilot:
        app = app_of(pilot)
        await pilot.press("q")
        assert isinstance(app.screen, LeaveDialog)
        told = set()
        for _ in range(30):
            simulated.advance(0.5)
            app.tick()
            running = len(app.live_run.state.running_trials())
            detail = str(app.screen.query_one("#detail", Static).content)
            told.add(detail)
            assert detail.startswith(f"{running} trial") or (not running and "No trial" in detail)
        assert len(told) > 1
        app.lifecycle._ended(RunEnd("finished", "2 steps"))
        await pilot.pause()
        assert not isinstance(app.screen, LeaveDialog)
        assert app.is_running


@pytest.mark.parametrize(("key", "kind"), [("x", ConfirmDialog), ("e", ReasonDialog)])
async def test_a_question_about_a_trial_goes_when_it_can_no_longer_be_done(
    steered: Opener, simulated: SimulatedHost, key: str, kind: type
) -> None:
    async with steered() as pilot:
        app = app_of(pilot)
        trial = next(
            each
            for each in app.live_run.state.running_trials()
            if each.turn and each.purpose == "train"
        )
        app.selection.choose(trial.trial)
        await pilot.press(key)
        assert isinstance(app.screen, kind)
        simulated.advance(0.2)
        app.tick()
        assert isinstance(app.screen, kind)
        for _ in range(100):
            simulated.advance(1.0)
            app.tick()
            if not isinstance(app.screen, kind):
                break
        await pilot.pause()
        assert isinstance(app.screen, Cockpit)
        (told,) = [each for each in said(app) if trial.label in each]
        assert told.endswith(("it has ended already.", ": nothing to exclude."))


async def test_toasts_over_a_replay_leave_its_clock_alone(
    run_directory: RunDirectory,
) -> None:
    recorded = ReplayedRun(run_directory)
    host = RecordedRun(run_directory)
    app = TbtuiApp(host, recorded=recorded, live=False, monotonic=lambda: 0.0)
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await settle(app)
        clock = app.screen.query_one(TransportLine).region
        await pilot.press("?")
        await pilot.pause()
        assert isinstance(app.screen, HelpDialog)
        for number in range(6):
            app.notify(f"one that is said for the {number}th time")
            await pilot.pause()
        assert len(said(app)) == MAX_NOTIFICATIONS
        toasts = list(app.screen.query(Toast))
        assert toasts
        assert not [each for each in toasts if each.region.overlaps(clock)]


async def test_the_oldest_toast_goes_first_and_errors_last(opened: Opener) -> None:
    async with opened() as pilot:
        app = app_of(pilot)
        app.notify("broken", severity="error")
        for text in ("a", "b", "b", "c", "d"):
            app.notify(text)
        await pilot.pause()
        assert said(app) == ["broken", "c", "d"]


async def test_a_toast_goes_with_what_it_promises(
    steered: Opener, simulated: SimulatedHost
) -> None:
    async with steered() as pilot:
        app = app_of(pilot)
        app.notify("space pauses a trial", holds=lambda: not app.shown.refusal)
        await settle(app)
        assert "space pauses a trial" in said(app)[0]
        app.own.has_ended(RunEnd("finished", "2 steps"))
        app.tick()
        assert said(app) == []


def test_a_key_and_what_it_does_stay_in_one_row() -> None:
    parts = ["enter  save it; replaces a set of that name", "esc  go back", "x  delete"]
    assert hint_rows(parts, 58) == [parts[:1], parts[1:]]
    assert hint_rows(parts, 1000) == [parts]
    assert hint_rows(parts, 10) == [[part] for part in parts]


@pytest.mark.parametrize("width", [60, 80, 160])
async def test_a_dialogs_keys_are_whole_at_any_width(opened: Opener, width: int) -> None:
    async with opened(size=(width, 24)) as pilot:
        app = app_of(pilot)
        app.push_screen(SetNameDialog(3, ""))
        await pilot.pause()
        await pilot.pause()
        hint = app.screen.query_one(Hint)
        rows = [hint.render_line(y).text.rstrip() for y in range(hint.size.height)]
        together = "enter  save it; replaces a set of that name     esc  go back"
        apart = together.split("     ")
        assert rows == ([together] if len(together) <= hint.size.width else apart)


async def test_nothing_to_tell_is_called_no_alerts(tmp_path: Path) -> None:
    young = PastHost(run_at(tmp_path / "young", 1.0))
    app = TbtuiApp(young, live=False, clock=lambda: START + 1.0)
    async with app.run_test(size=(160, 45)) as pilot:
        await settle(app)
        app.live_run.state.notes.clear()
        app.live_run.state.notes_made += 1
        await settle(app)
        assert pane(pilot, "notes").text.strip() == "no alerts"
