"""What calls for somebody: the terminal's title, its notifications and its bell."""

from __future__ import annotations

import os
import re
from collections import deque
from pathlib import Path

import pytest

from tbtui.journal.commands import RUN
from tbtui.ui.app import TbtuiApp
from tbtui.ui.notifications import KEEP_TITLE, RESTORE_TITLE, Attention
from tbtui.ui.user import Notify, read_settings
from tbtui.view.state import AlarmView, CommandView, RunState
from tbtui.view.times import Outlook
from tests.ui.opening import Opener
from tests.ui.process import start_process


def looked(notify: Notify, *states: RunState) -> list[str]:
    """What is written after the first state has been seen."""
    written: list[str] = []
    attention = Attention(written.append, notify)
    attention.look(Outlook(states[0], 0.0))
    written.clear()
    for state in states[1:]:
        attention.look(Outlook(state, 0.0))
    return written


def alarmed(count: int) -> RunState:
    alarms = deque([AlarmView("sampler_mismatch", 3, "\x1b]0;evil\a", "warn", 1.0)] * count)
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


@pytest.mark.slow
def test_the_title_tells_of_the_run_and_is_given_back(tmp_path: Path) -> None:
    session = start_process(tmp_path, "fail")
    try:
        session.wait_for(b"has failed")
        os.write(session.master, b"q")
        assert session.finish() == 1
        seen = session.seen.decode(errors="replace")
        assert seen.count(KEEP_TITLE) == seen.count(RESTORE_TITLE) == 1
        assert seen.index(KEEP_TITLE) < seen.index("\x1b]2;") < seen.index(RESTORE_TITLE)
        titles = re.findall("\x1b\\]2;(.*?)\a", seen)
        assert titles[-1] == "! tbtui run: the run has failed"
        assert "\x1b]9;tbtui: the run has failed\a\a" in seen
        assert session.cooked()
    finally:
        session.process.kill()
        session.process.wait()


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
        app = pilot.app
        assert isinstance(app, TbtuiApp)
        before = app.frames.beat
        app.tick()
        app.tick()
        assert app.frames.beat - before == 10
