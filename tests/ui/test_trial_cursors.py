"""Terminal, turns and tokens of the trial screen move together; what can be done with them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from textual.pilot import Pilot
from textual.widgets import Input

from tbtui.show_run import make_trial_tools
from tbtui.ui.application import TbtuiApp
from tbtui.ui.panes.terminal import TerminalPane
from tbtui.ui.panes.tokens import TokenPane
from tbtui.ui.panes.turns import TurnPane
from tbtui.ui.screens.prompt import PromptPane, PromptScreen
from tbtui.ui.services import Services
from tests.ui.hostile import HOSTILE, check_screen, hostile_run
from tests.ui.opening import Opener, app_of, open_trial, pane, pressing
from tests.ui.picture import settle

pytestmark = pytest.mark.slow


def panes(pilot: Pilot[int]) -> tuple[TerminalPane, TurnPane, TokenPane]:
    screen = pilot.app.screen
    return screen.query_one(TerminalPane), screen.query_one(TurnPane), screen.query_one(TokenPane)


async def press(pilot: Pilot[int], *keys: str) -> None:
    for key in keys:
        await pilot.press(key)
        await settle(app_of(pilot))


async def work(pilot: Pilot[int], name: str) -> None:
    for worker in list(pilot.app.workers):
        if worker.name == name:
            await worker.wait()
    await settle(app_of(pilot))


async def test_choosing_a_turn_takes_the_terminal_to_its_end(opened: Opener) -> None:
    async with opened() as pilot:
        await open_trial(pilot)
        terminal, turns, _ = panes(pilot)
        now = terminal.text
        await press(pilot, "up", "up")
        assert terminal.at == turns.transcript.turns[turns.chosen].ended_at
        assert "rewound to" in str(terminal.border_title)
        assert terminal.text != now
        await press(pilot, "dollar_sign")
        assert terminal.at is None
        assert turns.follow
        assert terminal.text == now


async def test_scrubbing_the_terminal_takes_the_turns_along(opened: Opener) -> None:
    async with opened() as pilot:
        await open_trial(pilot)
        terminal, turns, tokens = panes(pilot)
        last = turns.chosen
        seen = []
        for key in ("comma", "comma", "comma", "left_curly_bracket"):
            await press(pilot, key)
            seen.append(turns.chosen)
        assert seen == sorted(seen, reverse=True)
        assert seen[-1] == 0 < last
        assert terminal.at is not None
        assert tokens.tokens == app_of(pilot).live_run.tokens(turns.transcript.turns[0].sample or 0)
        await press(pilot, "full_stop", "full_stop", "right_curly_bracket")
        assert turns.chosen == last
        assert terminal.at is None


async def test_a_command_is_found_in_the_tokens_and_a_token_in_the_commands(
    opened: Opener,
) -> None:
    async with opened() as pilot:
        await open_trial(pilot)
        terminal, turns, tokens = panes(pilot)
        await press(pilot, "K")
        turn = turns.turn
        assert turn is not None
        assert turns.command is not None
        said = "".join(tokens.tokens[index][0] for index in tokens.span)
        assert turn.commands[turns.command].keystrokes.strip() in said
        assert terminal.at == turn.command_at(turns.command)
        inside = tokens.span.start
        await press(pilot, "left_square_bracket", "right_square_bracket")
        assert turns.command is None
        turns.point(turns.transcript.turns.index(turn))
        await settle(app_of(pilot))
        tokens.place(inside)
        await pilot.pause()
        assert turns.command is not None


async def test_the_focused_pane_is_copied_without_what_a_terminal_obeys(
    opened: Opener, tmp_path: Path
) -> None:
    directory = hostile_run(tmp_path / "run", HOSTILE[2])
    async with opened((112, 34), directory=directory) as pilot:
        await press(pilot, "enter", "y")
        assert "turn 1" in pilot.app.clipboard
        assert "\x1b" not in pilot.app.clipboard
        pane(pilot, "tokens").focus()
        await press(pilot, "y")
        assert "␛" in pilot.app.clipboard


@pytest.mark.parametrize("text", [HOSTILE[n] for n in (1, 2, 5, 8)], ids=(1, 2, 5, 8))
async def test_a_prompt_is_text_whatever_it_says(opened: Opener, tmp_path: Path, text: str) -> None:
    directory = hostile_run(tmp_path / "run", text)
    async with opened((112, 34), directory=directory) as pilot:
        await press(pilot, "enter", "p")
        assert isinstance(pilot.app.screen, PromptScreen)
        check_screen(pilot)
        await press(pilot, "slash", *text[:1].strip(), "enter")
        check_screen(pilot)


async def test_a_prompt_is_searched_and_its_parts_are_told_apart(opened: Opener) -> None:
    async with opened((100, 30)) as pilot:
        await open_trial(pilot)
        await press(pilot, "p")
        text = pilot.app.screen.query_one(PromptPane)
        origins = [part.origin for part in text.parts]
        given = origins.count("given")
        assert origins == [*(["given", "sampled"] * (given - 1)), "given"]
        await press(pilot, "slash", *"root", "enter")
        assert len(text.hits) == given > 1
        assert "1 of" in str(text.border_title)
        await press(pilot, "n")
        assert text.hit == 1
        await press(pilot, "escape", "escape")
        assert not isinstance(pilot.app.screen, PromptScreen)


async def test_a_trial_is_exported_and_no_file_is_overwritten(
    opened: Opener, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    async with opened((80, 24), services=Services(trial_tools=make_trial_tools)) as pilot:
        name = await open_trial(pilot)
        await pilot.press("E", "down", "enter")
        await work(pilot, "export")
        assert (tmp_path / f"{name}.cast").read_text().startswith('{"version": 2')
        await pilot.press("E", "down")
        await pilot.pause()
        assert pilot.app.screen.query_one("#path", Input).value.endswith(".cast")
        await pilot.press("enter")
        await pilot.pause()
        assert "exists already" in str(pilot.app.screen.query_one("#problem").render())


async def test_a_pager_that_is_none_is_told(
    opened: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened((100, 30)) as pilot:
        await open_trial(pilot)
        for pager, problem in (("no-such-pager", "pager"), ("less 'a", "no closing quotation")):
            monkeypatch.setenv("PAGER", pager)
            await press(pilot, "v")
            await asyncio.sleep(0)
            told = [each.message for each in pilot.app._notifications]
            assert any(problem in message for message in told)


@pytest.mark.parametrize(
    "size",
    [
        (80, 24),
        pytest.param((120, 40), marks=pytest.mark.slow),
        pytest.param((200, 55), marks=pytest.mark.slow),
    ],
    ids=["80x24", "120x40", "200x55"],
)
@pytest.mark.parametrize(
    "keys", [("up", "K"), ("up", "p"), ("5",)], ids=["back", "prompt", "verdict"]
)
def test_the_trial_screen_looks_as_it_did(
    snap_compare: Callable[..., bool],
    past_app: Callable[..., TbtuiApp],
    keys: tuple[str, ...],
    size: tuple[int, int],
) -> None:
    app = past_app()

    assert snap_compare(app, terminal_size=size, run_before=pressing(keys, open_trial))
