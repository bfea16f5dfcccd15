"""What the terminal's focus events lead to."""

from __future__ import annotations

import pytest
from textual import events

from tbtui.ui.notifications import AWAY_SEC, Attention, Presence
from tbtui.view.state import AlarmView, EvalView, RunState
from tbtui.view.times import Outlook
from tests.ui.opening import Opener, app_of
from tests.ui.picture import settle


def run_at(step: int, held_out: float, alarms: int = 0) -> RunState:
    state = RunState(run="demo", step=step, alarms_raised=alarms)
    state.evals.append(EvalView(step, 0.7, held_out, 24, 0, {}, 1.0))
    state.alarms.extend([AlarmView("sampler_mismatch", step, "", "warn", 1.0)] * alarms)
    return state


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_who_comes_back_reads_what_has_changed(clock: Clock) -> None:
    presence = Presence(clock)
    presence.leave(run_at(3, 0.29))
    clock.now += 12 * 60
    news = presence.come_back(run_at(9, 0.52, alarms=1))
    assert news == "in 12m00s: step 3 → 9, held out .29 → .52, an alarm"
    assert presence.come_back(run_at(9, 0.52, alarms=1)) == ""


def test_a_short_look_away_and_a_run_that_stands_still_are_no_news(clock: Clock) -> None:
    presence = Presence(clock)
    presence.leave(run_at(3, 0.29))
    clock.now += AWAY_SEC - 1
    assert presence.come_back(run_at(4, 0.29)) == ""
    presence.leave(run_at(4, 0.29))
    clock.now += AWAY_SEC + 1
    assert presence.come_back(run_at(4, 0.29)) == ""


def test_no_desktop_notification_is_sent_to_somebody_who_is_there(clock: Clock) -> None:
    """A terminal that reports no focus gets it as before."""
    presence = Presence(clock)
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
