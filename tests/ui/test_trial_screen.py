"""The trial screen: terminal, turns and tokens of one trial."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from textual.pilot import Pilot

from tbtui.journal.events import ForksStarted, TrialFinished, TrialQueued, TurnsValued, TurnValue
from tbtui.journal.rundir import RunDirectory
from tbtui.journal.writer import JournalWriter
from tbtui.ui.application import TbtuiApp
from tbtui.ui.panes.tokens import TokenPane, unlikely_tokens
from tbtui.ui.panes.turns import TurnPane
from tbtui.ui.screens.cockpit import Cockpit
from tbtui.ui.screens.trial import TrialScreen
from tests.events import events_of
from tests.ui.opening import Opener, app_of, commands, open_trial, pane, pressing, run_at
from tests.ui.picture import PastHost
from tests.ui.synthetic import START


async def test_a_trial_shows_its_terminal_turns_tokens_and_verdict(opened: Opener) -> None:
    async with opened() as pilot:
        name = await open_trial(pilot)
        trial = app_of(pilot).live_run.state.trials[name]
        assert trial.label in pane(pilot, "head").text
        assert trial.reason in pane(pilot, "head").text
        assert str(pane(pilot, "terminal").border_title) == "terminal 160x40"
        assert "root@box:/app#" in pane(pilot, "terminal").text
        turns = pane(pilot, "turns").text
        assert "declares the task complete" in turns
        assert " tokens · turn " in str(pilot.app.screen.query_one("#tokens").border_title)
        assert trial.reason in turns
        assert ", highest -log p" in str(pane(pilot, "tokens").border_title)
        await pilot.press("end")
        assert '"task_complete": true' in pane(pilot, "tokens").text
        await pilot.press("escape")
        assert isinstance(pilot.app.screen, Cockpit)


async def test_turns_are_walked_and_tokens_follow(opened: Opener) -> None:
    async with opened() as pilot:
        await open_trial(pilot)
        turns = pilot.app.screen.query_one(TurnPane)
        last = turns.chosen
        assert turns.follow
        await pilot.press("left_square_bracket")
        assert turns.chosen == last - 1
        assert not turns.follow
        assert str(pane(pilot, "tokens").border_title).endswith(f"turn {turns.chosen + 1}")
        assert f"turns {turns.chosen + 1}/" in str(turns.border_title)
        await pilot.press("up")
        assert turns.chosen == last - 2
        assert "ls --color" in turns.text
        assert "New Terminal Output" in turns.text
        await pilot.press("right_square_bracket", "down")
        assert turns.chosen == last
        assert turns.follow


async def test_n_goes_to_the_next_surprising_token_and_shift_n_back(opened: Opener) -> None:
    async with opened() as pilot:
        await open_trial(pilot)
        await pilot.press("left_square_bracket", "left_square_bracket")
        tokens = pilot.app.screen.query_one(TokenPane)
        places = unlikely_tokens(tokens.tokens)
        assert len(places) > 1
        await pilot.press("n")
        assert tokens.cursor == places[0]
        assert "p=" in tokens.text
        await pilot.press("n")
        assert tokens.cursor == places[1]
        await pilot.press("N")
        assert tokens.cursor == places[0]
        turns = pilot.app.screen.query_one(TurnPane)
        turn = turns.chosen
        await pilot.press("N")
        assert turns.chosen != turn
        assert tokens.cursor == unlikely_tokens(tokens.tokens)[-1]
        await pilot.press("n")
        assert (turns.chosen, tokens.cursor) == (turn, places[0])


async def test_pause_and_stop_mean_the_trial_on_the_screen(opened: Opener) -> None:
    async with opened() as pilot:
        name = await open_trial(pilot, finished=False)
        await pilot.press("space", "s")
        assert commands(pilot) == [("pause", name), ("stop", name)]


async def test_panes_in_full_and_at_80x24(opened: Opener) -> None:
    async with opened((80, 24)) as pilot:
        await open_trial(pilot)
        for name in ("terminal", "turns", "tokens"):
            assert pane(pilot, name).region.height >= 5
        for key, name in (("1", "terminal"), ("2", "turns"), ("3", "tokens")):
            await pilot.press(key)
            assert pane(pilot, name).region.height >= 20
        await pilot.press("escape")
        assert isinstance(pilot.app.screen, TrialScreen)
        await pilot.press("escape")
        assert isinstance(pilot.app.screen, Cockpit)


def valued_run(where: Path) -> RunDirectory:
    """A run in which the values of each ended trial's turns were measured by six forks each."""
    run = run_at(where, 40.0)
    ends = events_of(run, TrialFinished)
    tasks = {event.trial: event.task for event in events_of(run, TrialQueued)}
    with JournalWriter(run, lambda: START + 40.0, continues=True) as writer:
        for number, end in enumerate(ends, 1):
            writer.append(
                ForksStarted(
                    group=f"f{number:04d}", task=tasks[end.trial], step=1, parent=end.trial,
                    turn=2, trials=6, temperature=1.0, search="all",
                )
            )  # fmt: skip
            passed = [max(0, 5 - 4 * (turn > 2)) for turn in range(1, end.turns + 1)]
            values = [
                TurnValue(turn=turn, passed=count, scored=6) for turn, count in enumerate(passed, 1)
            ]
            writer.append(
                TurnsValued(
                    parent=end.trial, search="all", trials=6, temperature=1.0, turns=end.turns,
                    solved=False, values=tuple(values), turning_point=2,
                )
            )  # fmt: skip
    return run


@pytest.mark.parametrize(("size", "keys"), [((160, 45), ()), ((80, 24), ("4",))])
def test_values_of_turns_are_drawn_and_the_drop_is_marked(
    tmp_path: Path,
    snap_compare: Callable[..., bool],
    size: tuple[int, int],
    keys: tuple[str, ...],
) -> None:
    app = TbtuiApp(PastHost(valued_run(tmp_path / "run")), live=False, clock=lambda: START + 40.0)

    async def opens(pilot: Pilot[int]) -> None:
        await open_trial(pilot)
        assert "V 83% ▇" in pane(pilot, "turns").text
        await pilot.press(*keys)
        assert "▼ lost at turn 2: 83% before it, 17% after" in pane(pilot, "facts").text

    assert snap_compare(app, terminal_size=size, run_before=pressing((), opens))
