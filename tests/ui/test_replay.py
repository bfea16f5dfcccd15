"""A recorded run with a clock: the same screens, at any time of the run, both ways."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from copy import deepcopy
from pathlib import Path

import pytest
from textual.pilot import Pilot

from tbtui.journal.rundir import RunDirectory
from tbtui.journal.search import Hit
from tbtui.journal.writer import JournalWriter
from tbtui.ui.application import TbtuiApp
from tbtui.ui.panes.siblings import SiblingsPane
from tbtui.ui.panes.turns import TurnPane
from tbtui.ui.runs import ReplayedRun
from tbtui.ui.screens.search import SearchScreen
from tbtui.ui.services import RecordedRun
from tbtui.ui.transport import seconds_meant
from tests.ui.opening import Opener, Wall, app_of, pane, press, replaying, window
from tests.ui.picture import settle
from tests.ui.synthetic import START

pytestmark = pytest.mark.slow


@pytest.fixture
def replayed(run_directory: RunDirectory, wall: Wall) -> Opener:
    @asynccontextmanager
    async def open_app(
        size: tuple[int, int] = (160, 45), trial: str | None = None
    ) -> AsyncIterator[Pilot[int]]:
        app, _ = replaying(run_directory, trial=trial, monotonic=wall)
        async with window(app, size) as pilot:
            yield pilot

    return open_app


def replay_of(pilot: Pilot[int]) -> ReplayedRun:
    replay = app_of(pilot).live_run.replay
    assert replay is not None
    return replay


async def go_to(pilot: Pilot[int], seconds: float) -> None:
    replay_of(pilot).playback.go_to(START + seconds)
    await settle(app_of(pilot))


async def test_it_plays_stands_still_and_plays_faster(replayed: Opener, wall: Wall) -> None:
    async with replayed() as pilot:
        app, clock = app_of(pilot), replay_of(pilot).playback
        assert "0:00 / 0:" in pane(pilot, "transport").text
        assert "replay" in pane(pilot, "status").text
        await press(pilot, "space")
        wall.now += 5.0
        await settle(app)
        assert clock.position == START + 5.0
        await press(pilot, "plus", "plus")
        wall.now += 2.0
        await settle(app)
        assert clock.position == START + 13.0
        assert "0:13" in pane(pilot, "transport").text
        assert "x4" in pane(pilot, "transport").text
        await press(pilot, "space")
        wall.now += 5.0
        await settle(app)
        assert clock.position == START + 13.0


async def test_back_in_time_everything_is_as_it_was(replayed: Opener) -> None:
    async with replayed() as pilot:

        def screen() -> list[str]:
            names = ("status", "tasks", "trials", "terminal", "rewards", "curve", "queue", "notes")
            return [pane(pilot, name).text for name in names]

        await go_to(pilot, 12.0)
        app_of(pilot).selection.choose(next(iter(app_of(pilot).live_run.state.trials)))
        await settle(app_of(pilot))
        before, state = screen(), deepcopy(app_of(pilot).live_run.state)
        await press(pilot, "dollar_sign")
        assert screen() != before
        await go_to(pilot, 12.0)
        assert app_of(pilot).live_run.state == state
        assert screen() == before


async def test_a_trial_goes_by_turns_and_stops_at_its_end(
    replayed: Opener, run_directory: RunDirectory, wall: Wall
) -> None:
    trial = "s001-append-03-1"
    async with replayed(trial=trial) as pilot:
        replay = replay_of(pilot)
        start, end = replay.span(trial)
        await go_to(pilot, start - START)
        turns = pilot.app.screen.query_one(TurnPane)
        assert not turns.transcript.turns
        await press(pilot, "right_square_bracket")
        assert [turn.turn for turn in turns.transcript.turns] == [1]
        assert turns.transcript.turns[0].observation
        first = pane(pilot, "terminal").text
        await press(pilot, "right_square_bracket")
        assert [turn.turn for turn in turns.transcript.turns if turn.observation] == [1, 2]
        assert pane(pilot, "terminal").text != first
        await press(pilot, "left_square_bracket")
        assert [turn.turn for turn in turns.transcript.turns if turn.observation] == [1]
        assert pane(pilot, "terminal").text == first
        await press(pilot, "circumflex_accent")
        assert not turns.transcript.turns
        assert "after the policy's first" in turns.text
        await press(pilot, "dollar_sign")
        assert turns.transcript.finished is not None
        await press(pilot, "space")
        assert replay.playback.position == start
        wall.now += 1000.0
        await settle(app_of(pilot))
        assert (replay.playback.position, replay.playback.playing) == (end, False)


async def test_a_turn_that_was_chosen_stays_while_it_plays_and_a_jump_leads_on(
    replayed: Opener, wall: Wall
) -> None:
    async with replayed(trial="s001-append-03-1") as pilot:
        await press(pilot, "dollar_sign")
        end = replay_of(pilot).now
        await go_to(pilot, end - START - 2.0)
        turns = pilot.app.screen.query_one(TurnPane)
        await press(pilot, "up", "space")
        chosen = turns.chosen
        for _ in range(2):
            wall.now += 0.5
            await settle(app_of(pilot))
            assert replay_of(pilot).playback.playing
            assert (turns.chosen, turns.follow) == (chosen, False)
        await press(pilot, "dollar_sign")
        assert turns.chosen == len(turns.transcript.turns) - 1 > chosen


async def test_a_group_and_the_trial_below_it_go_back_in_time(replayed: Opener) -> None:
    async with replayed(trial="s001-append-03-1") as pilot:
        await press(pilot, "dollar_sign")
        turns = pilot.app.screen.query_one(TurnPane)
        count = len(turns.transcript.turns)
        await press(pilot, "g")
        group = pilot.app.screen.query_one(SiblingsPane)
        assert group.turns > 0
        await press(pilot, "circumflex_accent")
        assert group.turns == 0
        assert "once one of them has finished a turn" in group.text
        await press(pilot, "dollar_sign")
        assert group.turns > 0
        await press(pilot, "escape")
        assert len(turns.transcript.turns) == count > 0


async def test_a_hit_in_a_run_that_can_not_be_opened_moves_nothing(
    replayed: Opener, tmp_path: Path
) -> None:
    empty = RunDirectory.create(tmp_path / "empty")
    JournalWriter(empty).close()
    async with replayed() as pilot:
        await go_to(pilot, 12.0)
        cockpit = pilot.app.screen
        hit = Hit(empty, "nobody", "nobody", 1, 1, "said", START + 20.0, 1, "", "here", "")
        pilot.app.post_message(SearchScreen.Wanted(hit))
        await settle(app_of(pilot))
        assert (pilot.app.screen, replay_of(pilot).now) == (cockpit, START + 12.0)
        assert any("no journal" in each.message for each in pilot.app._notifications)


async def test_jumps_go_to_what_matters_and_say_what_it_is(replayed: Opener) -> None:
    async with replayed() as pilot:
        app, replay = app_of(pilot), replay_of(pilot)
        for _ in range(20):
            await press(pilot, "greater_than_sign")
            if app.live_run.state.step == 1:
                break
        assert app.live_run.state.steps[0].finished_at == replay.now
        await press(pilot, "less_than_sign")
        assert app.live_run.state.step == 0
        await press(pilot, "right_parenthesis")
        chosen = app.selection.trial
        assert chosen is not None
        trial = app.live_run.state.trials[chosen]
        assert trial.finished_at == replay.now
        assert trial.reward == 0
        before = replay.now
        await press(pilot, "full_stop")
        assert replay.now > before
        await press(pilot, "comma")
        assert replay.now == before


async def test_a_place_in_words(replayed: Opener) -> None:
    async with replayed() as pilot:
        replay = replay_of(pilot)
        clock = replay.playback
        assert seconds_meant("50%", replay) == (clock.start + clock.end) / 2
        assert seconds_meant("1:02:03", replay) == START + 3723
        assert seconds_meant("90", replay) == START + 90
        assert seconds_meant("step 99", replay) == "step 99 was never finished"
        assert "write" in str(seconds_meant("soon", replay))
        await press(pilot, "G", *"step", "space", "1", "enter")
        assert app_of(pilot).live_run.state.step == 1


async def test_q_leaves_at_once_and_that_is_no_failure(replayed: Opener) -> None:
    async with replayed() as pilot:
        await pilot.press("q")
        await pilot.pause()
        assert app_of(pilot).return_code == 0


async def test_a_trial_of_a_long_run_opens_at_its_start_and_never_as_one_that_is_gone(
    run_directory: RunDirectory, wall: Wall, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `tbtui replay RUN TRIAL` does it: it plays from the trial's start on."""
    trial = "s001-append-03-1"
    # Whenever it looks at the clock, time has gone by: each tick reads a little.
    looked = itertools.count(0.0, 0.007)
    recorded = ReplayedRun(run_directory, monotonic=lambda: next(looked))
    start, _ = recorded.span(trial)
    recorded.playback.go_to(start)
    recorded.playback.playing = True
    host = RecordedRun(run_directory)
    app = TbtuiApp(host, recorded=recorded, trial=trial, live=False, monotonic=wall)
    monkeypatch.setattr("tbtui.view.reading._BITE", 20)
    heads: list[str] = []
    async with app.run_test(size=(120, 36)) as pilot:
        for _ in range(1000):
            app.redraw_all()
            heads.append(pane(pilot, "head").text.strip())
            if trial in app.live_run.state.trials:
                break
            assert recorded.playback.position == start
            wall.now += 0.1
            app.tick()
        await settle(app)
        assert "append-03/1" in pane(pilot, "head").text
    *before, last = heads
    assert len(before) > 3
    assert all(head.startswith("catching up") for head in before)
    assert "append-03/1" in last


async def test_before_its_start_a_trial_says_when_it_begins(replayed: Opener) -> None:
    trial = "s001-append-03-1"
    async with replayed(trial=trial) as pilot:
        replay = replay_of(pilot)
        begins = int(replay.span(trial)[0] - replay.playback.start)
        await go_to(pilot, 1.0)
        head = pane(pilot, "head").text.strip()
        assert head == f"this trial begins at 0:{begins:02}"


async def test_the_clock_of_a_short_trial_has_tenths(replayed: Opener) -> None:
    trial = "s001-append-03-1"
    async with replayed(trial=trial) as pilot:
        replay = replay_of(pilot)
        start, end = replay.span(trial)
        replay._spans[trial] = (start, start + 0.94)
        await go_to(pilot, start + 0.55 - START)
        clock = pane(pilot, "transport").text
        assert "0:00.5 / 0:00.9" in clock
        replay._spans[trial] = (start, end)


@pytest.mark.parametrize("size", [(80, 24), (160, 45)])
async def test_the_clock_is_marked_with_what_happened(
    replayed: Opener, size: tuple[int, int]
) -> None:
    async with replayed(size) as pilot:
        app, replay = app_of(pilot), replay_of(pilot)
        line = pane(pilot, "transport").text
        assert "◇" in line
        assert "┼" in line
        assert replay.marks is not None
        # At the end of a step the clock's own place covers its mark.
        replay.playback.go_to(replay.marks.times["step"][0])
        app.moved()
        await settle(app)
        assert pane(pilot, "transport").text.count("┼") == line.count("┼") - 1


async def test_what_moving_the_clock_says_stands_beside_it(replayed: Opener) -> None:
    async with replayed() as pilot:
        await press(pilot, "greater_than_sign")
        first = pane(pilot, "transport").text
        assert " sandbox lost: worker 1 was killed (signal 9) " in first
        assert " 0:04 / 0:40 " in first
        await pilot.press(*["greater_than_sign"] * 30)
        await settle(app_of(pilot))
        assert " none after this " in pane(pilot, "transport").text
        assert not pilot.app._notifications
        await press(pilot, "minus", "circumflex_accent")
        assert "none after" not in pane(pilot, "transport").text
