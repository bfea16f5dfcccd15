"""Dialogs, toasts and panes say what holds now, and the same in several places."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from textual.pilot import Pilot
from textual.widgets import Static
from textual.widgets._toast import Toast

from tbtui.journal.rundir import RunDirectory
from tbtui.ui.application import TbtuiApp
from tbtui.ui.notifications import MAX_NOTIFICATIONS
from tbtui.ui.panes.clock import TransportLine
from tbtui.ui.screens.cockpit import Cockpit
from tbtui.ui.screens.dialogs import ConfirmDialog, Hint, LeaveDialog, ReasonDialog
from tbtui.ui.screens.help import HelpDialog
from tbtui.ui.screens.task_sets import SetNameDialog
from tbtui.ui.services import RunEnd
from tests.ui.opening import Opener, Steered, app_of, pane, replaying, rest, run_at, toasts, window
from tests.ui.picture import PastHost, settle
from tests.ui.synthetic import START


async def test_the_question_whether_to_leave_counts_on_and_goes_with_the_run(
    steered: Steered,
) -> None:
    async with steered() as (pilot, simulated):
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
    steered: Steered, key: str, kind: type
) -> None:
    async with steered() as (pilot, simulated):
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
        (told,) = [each for each in toasts(pilot) if trial.label in each]
        assert told.endswith(("it has ended already.", ": nothing to exclude."))


async def test_toasts_over_a_replay_leave_its_clock_alone(run_directory: RunDirectory) -> None:
    app, _ = replaying(run_directory, monotonic=lambda: 0.0)
    async with window(app, (80, 24)) as pilot:
        clock = app.screen.query_one(TransportLine).region
        await pilot.press("?")
        await pilot.pause()
        assert isinstance(app.screen, HelpDialog)
        for number in range(6):
            app.notify(f"one that is said for the {number}th time")
            await pilot.pause()
        assert len(toasts(pilot)) == MAX_NOTIFICATIONS
        shown = list(app.screen.query(Toast))
        assert shown
        assert not [each for each in shown if each.region.overlaps(clock)]


async def test_the_oldest_toast_goes_first_and_errors_last(opened: Opener) -> None:
    async with opened() as pilot:
        app = app_of(pilot)
        app.notify("broken", severity="error")
        for text in ("a", "b", "b", "c", "d"):
            app.notify(text)
        await pilot.pause()
        assert toasts(pilot) == ["broken", "c", "d"]


async def test_a_toast_goes_with_what_it_promises(steered: Steered) -> None:
    async with steered() as (pilot, _):
        app = app_of(pilot)
        app.notify("space pauses a trial", holds=lambda: not app.shown.refusal)
        await settle(app)
        assert "space pauses a trial" in toasts(pilot)[0]
        app.own.has_ended(RunEnd("finished", "2 steps"))
        app.tick()
        assert toasts(pilot) == []


async def test_a_dialogs_keys_are_whole_at_any_width(opened: Opener) -> None:
    async with opened(size=(60, 24)) as pilot:
        pilot.app.push_screen(SetNameDialog(3, ""))
        together = "enter  save it; replaces a set of that name     esc  go back"
        for width in (60, 80, 160):
            await pilot.resize_terminal(width, 24)
            await rest(pilot)
            hint = pilot.app.screen.query_one(Hint)
            rows = [hint.render_line(y).text.rstrip() for y in range(hint.size.height)]
            whole = len(together) <= hint.size.width
            assert rows == ([together] if whole else together.split("     "))


async def test_nothing_to_tell_is_called_no_alerts(tmp_path: Path) -> None:
    young = PastHost(run_at(tmp_path / "young", 1.0))
    app = TbtuiApp(young, live=False, clock=lambda: START + 1.0)
    async with window(app) as pilot:
        app.live_run.state.notes.clear()
        app.live_run.state.notes_made += 1
        await settle(app)
        assert pane(pilot, "notes").text.strip() == "no alerts"


def written(pilot: Pilot[int], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What goes to the terminal beside the screen."""
    escapes: list[str] = []
    monkeypatch.setattr(app_of(pilot).attention, "_write", escapes.append)
    return escapes


@pytest.mark.slow
async def test_counts_and_what_is_waited_for_agree_at_every_beat(
    steered: Steered, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with steered(size=(160, 45)) as (pilot, simulated):
        app, escapes = app_of(pilot), written(pilot, monkeypatch)
        seen = set()
        for _ in range(60):
            simulated.advance(0.3)
            app.tick()
            header = pane(pilot, "status").text
            grid = str(pane(pilot, "trials").border_title)
            timeline = pane(pilot, "timeline").text
            count = re.search(r"(?:sampling|step \d+) (\d+/\d+)", header)
            if count is not None:
                assert f"{count[1]} done" in grid, (header, grid)
                seen.add(count[1])
            if waiting := re.search(r"waiting for ([\w-]+/\d+) ", header):
                assert f"now: {waiting[1]}" in timeline, (header, timeline)
            selected = app.frames.frame().selected
            assert selected is not None
            title = str(pane(pilot, "terminal").border_title)
            (tile,) = [
                line
                for line in re.split(r"\n|   ", pane(pilot, "trials").text)
                if re.search(rf"\S {selected.label} ", f"{line} ")
            ] or [""]
            if (turn := re.search(r"turn (\d+)", title)) and (at := re.search(r" t(\d+) ", tile)):
                assert turn[1] == at[1], (title, tile)
            titles = [each for each in escapes if each.startswith("\x1b]2;")]
            # On a loaded machine a frame may not have read all; the title waits for that.
            due = app.frames.beat % 9 == 0 and not app.own.run.behind
            if titles and due and (m := re.search(r"(\d+) running", grid)):
                assert int(m[1]) == 0 or f"{m[1]} running" in titles[-1], (grid, titles[-1])
        assert len(seen) > 5


async def test_header_notes_title_and_bell_tell_of_a_frozen_trial_that_is_waited_for(
    steered: Steered, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with steered(size=(160, 45)) as (pilot, simulated):
        app, escapes = app_of(pilot), written(pilot, monkeypatch)
        frozen = next(each for each in app.live_run.state.running_trials() if each.turn)
        app.selection.choose(frozen.trial)
        await pilot.press("z")
        for _ in range(400):
            simulated.advance(0.5)
            app.tick()
            if not [each for each in app.live_run.state.live_trials() if not each.hold.paused]:
                break
        await settle(app)
        app.frames.call_for_attention()
        assert f"waiting for {frozen.label}, frozen · z resumes" in pane(pilot, "status").text
        notes = " ".join(pane(pilot, "notes").text.split())
        assert f"▲ {frozen.label} holds the step up, frozen " in notes
        assert " · z resumes" in notes
        titles = [each for each in escapes if each.startswith("\x1b]2;")]
        assert titles[-1].endswith(f": {frozen.label} holds the step up, frozen\a")
        assert titles[-1].startswith("\x1b]2;! ")
        call = f"\x1b]9;tbtui: {frozen.label} holds the step up, frozen\a"
        assert escapes[escapes.index(call) + 1] == "\a"
        assert escapes.count(call) == 1
        await pilot.press("space")
        simulated.advance(1.0)
        await settle(app)
        app.frames.call_for_attention()
        assert "holds the step up" not in pane(pilot, "notes").text
        assert [each for each in escapes if each.startswith("\x1b]2;")][-1].startswith(
            "\x1b]2;tbtui"
        )
        assert escapes.count(call) == 1
