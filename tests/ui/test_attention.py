"""What calls for somebody: the terminal's title, notifications and bell, and who is there."""

from __future__ import annotations

from collections import deque
from pathlib import Path

import pytest
from textual import events

from tbtui.findings import Rule
from tbtui.journal.commands import RUN
from tbtui.journal.events import AlarmRaised
from tbtui.ui.notifications import AWAY_SEC, KEEP_TITLE, Attention, Presence
from tbtui.ui.user import Notify, read_settings
from tbtui.view.state import CommandView, EvalView, RunState
from tbtui.view.times import Outlook
from tests.ui.opening import Opener, Wall, app_of
from tests.ui.picture import settle


def looked(notify: Notify, *states: RunState) -> list[str]:
    """What is written after the first state has been seen."""
    written: list[str] = []
    attention = Attention(written.append, notify)
    attention.look(Outlook(states[0], 0.0))
    written.clear()
    for state in states[1:]:
        attention.look(Outlook(state, 0.0))
    return written


def alarm(step: int) -> AlarmRaised:
    return AlarmRaised(
        alarm=Rule.SAMPLER_MISMATCH, step=step, text="\x1b]0;evil\a", numbers={}, action="warn"
    )


def alarmed(count: int) -> RunState:
    alarms = deque([alarm(3)] * count)
    return RunState(run="demo", alarms=alarms, alarms_raised=count)


@pytest.mark.parametrize(
    ("notify", "written"),
    [
        ("desktop", ["\x1b]9;tbtui: sampler mismatch at step 3\a", "\a"]),
        ("bell", ["\a"]),
        ("none", []),
    ],
)
def test_an_alarm_calls_once_as_the_person_wants_it(notify: Notify, written: list[str]) -> None:
    assert looked(notify, alarmed(1), alarmed(2), alarmed(2)) == written


def test_what_happened_before_the_app_was_opened_is_no_news() -> None:
    for from_start, calls in ((False, []), (True, ["\a"])):
        written: list[str] = []
        Attention(written.append, "bell", from_start=from_start).look(Outlook(alarmed(4), 0.0))
        assert [each for each in written if not each.startswith("\x1b")] == calls


def test_a_run_that_pauses_itself_calls_and_one_that_was_paused_does_not() -> None:
    begun = RunState(run="demo", step=2)
    paused = RunState(run="demo", step=2, paused=True)
    assert looked("desktop", begun, paused, paused) == [
        *("\x1b]9;tbtui: the run has paused itself\a", "\a"),
        "\x1b]2;! tbtui demo: the run has paused itself\a",
    ]
    by_hand = RunState(run="demo", step=2, paused=True)
    by_hand.commands.append(CommandView("c", "pause", RUN, "the run", "ada", "", 1.0))
    # The title says what the header and the notes say; who has paused it needs no bell.
    assert looked("desktop", begun, by_hand) == ["\x1b]2;! tbtui demo: the run is paused\a"]


def test_a_name_cant_end_the_title_early() -> None:
    written: list[str] = []
    Attention(written.append, "none").look(Outlook(RunState(run="x\a\x1b]0;evil"), 0.0))
    assert written == [KEEP_TITLE, "\x1b]2;tbtui x␇␛]0;evil: starting\a"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('notify = "shout"', "notify"),
        ("fps = 60", "fps: '60' is not low, normal or a number from 1 to 10"),
        ('colour = "red"', "colour"),
        ("fps = [", "not TOML"),
    ],
)
def test_settings_that_cant_be_followed_are_named(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "app.toml"
    path.write_text(text)
    settings, (problem,) = read_settings(path)
    assert settings.notify == "desktop"
    assert problem.startswith("app.toml: ")
    assert words in problem


def test_settings_are_followed(tmp_path: Path) -> None:
    path = tmp_path / "app.toml"
    path.write_text('notify = "none"\nfps = "low"\n')
    settings, problems = read_settings(path)
    assert (settings.notify, settings.fps, problems) == ("none", "low", ())


async def test_with_fewer_frames_a_tick_stands_for_more_time(opened: Opener) -> None:
    async with opened(fps=2) as pilot:
        app = app_of(pilot)
        before = app.frames.beat
        app.tick()
        app.tick()
        assert app.frames.beat - before == 10


def run_at(step: int, held_out: float, alarms: int = 0) -> RunState:
    state = RunState(run="demo", step=step, alarms_raised=alarms)
    state.evals.append(EvalView(step, 0.7, held_out, 24, 0, {}, 1.0))
    state.alarms.extend([alarm(step)] * alarms)
    return state


def test_who_comes_back_reads_what_has_changed(wall: Wall) -> None:
    presence = Presence(wall)
    presence.leave(run_at(3, 0.29))
    wall.now += 12 * 60
    news = presence.come_back(run_at(9, 0.52, alarms=1))
    assert news == "in 12m00s: step 3 → 9, held out .29 → .52, an alarm"
    assert presence.come_back(run_at(9, 0.52, alarms=1)) == ""


def test_a_short_look_away_and_a_run_that_stands_still_are_no_news(wall: Wall) -> None:
    presence = Presence(wall)
    presence.leave(run_at(3, 0.29))
    wall.now += AWAY_SEC - 1
    assert presence.come_back(run_at(4, 0.29)) == ""
    presence.leave(run_at(4, 0.29))
    wall.now += AWAY_SEC + 1
    assert presence.come_back(run_at(4, 0.29)) == ""


def test_no_desktop_notification_is_sent_to_somebody_who_is_there(wall: Wall) -> None:
    """A terminal that reports no focus gets it as before."""
    presence = Presence(wall)
    written: list[str] = []
    attention = Attention(written.append, "desktop", watching=lambda: presence.watching)

    def alarm(count: int) -> bool:
        written.clear()
        attention.look(Outlook(run_at(3, 0.29, alarms=count), 0.0))
        return any(each.startswith("\x1b]9;") for each in written)

    alarm(0)
    assert alarm(1)
    presence.leave(run_at(3, 0.29))
    assert alarm(2)
    presence.come_back(run_at(3, 0.29))
    assert not alarm(3)
    assert "\a" in written  # the bell still rings


async def test_the_app_takes_the_terminals_focus_events(opened: Opener) -> None:
    async with opened() as pilot:
        app = app_of(pilot)
        await app.on_event(events.AppBlur())
        assert not app.presence.watching
        await app.on_event(events.AppFocus())
        assert app.presence.watching
        await settle(app_of(pilot))
