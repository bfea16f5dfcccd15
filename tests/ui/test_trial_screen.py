"""The trial screen: terminal, turns and tokens move together, and follow what comes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion
from textual.pilot import Pilot
from textual.widgets import Input

from tbtui.journal.events import (
    AnyEvent,
    ForksStarted,
    TrialFinished,
    TrialPhase,
    TrialPhaseChanged,
    TrialQueued,
    TurnStarted,
    TurnsValued,
    TurnValue,
    TurnWriting,
)
from tbtui.journal.reader import JournalReader
from tbtui.journal.rundir import RunDirectory
from tbtui.journal.writer import JournalWriter
from tbtui.show_run import make_trial_tools
from tbtui.ui.application import TbtuiApp
from tbtui.ui.panes.pane import GrowingPane
from tbtui.ui.panes.terminal import TerminalPane
from tbtui.ui.panes.tokens import TokenPane, unlikely_tokens
from tbtui.ui.panes.turns import TurnPane
from tbtui.ui.screens.base import SMALLEST
from tbtui.ui.screens.cockpit import Cockpit
from tbtui.ui.screens.prompt import PromptPane, PromptScreen
from tbtui.ui.screens.trial import TrialScreen
from tbtui.ui.services import Services
from tests.events import events_of, trial_queued
from tests.ui.hostile import HOSTILE, check_screen, hostile_run
from tests.ui.opening import (
    Opener,
    SimulatedHost,
    Steered,
    advance_until,
    app_of,
    later,
    open_trial,
    pane,
    press,
    run_at,
    toasts,
    wheel,
    window,
    write_on,
)
from tests.ui.picture import PastHost, settle
from tests.ui.styled_text import StyledTextExtension, styled_text
from tests.ui.synthetic import START, Simulation


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


async def test_tokens_without_log_probabilities_are_not_coloured_as_likely(
    opened: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = JournalReader.sample_tokens

    def absent(reader: JournalReader, sample: int) -> list[tuple[str, float]]:
        return [(text, 0.0) for text, _ in read(reader, sample)]

    monkeypatch.setattr(JournalReader, "sample_tokens", absent)
    async with opened() as pilot:
        await open_trial(pilot)
        tokens = pilot.app.screen.query_one(TokenPane)
        assert "without log-probabilities" in tokens.text
        app = app_of(pilot)
        parts = [each for y in range(1, 4) for each in tokens.render_line(y) if each.text.strip()]
        colours = {part.style.color for part in parts if part.style is not None}
        assert colours == {app.palette.muted.color}


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
    searches: list[AnyEvent] = []
    for number, end in enumerate(ends, 1):
        search = {"parent": end.trial, "trials": 6, "temperature": 1.0, "search": "all"}
        passed = [max(0, 5 - 4 * (turn > 2)) for turn in range(1, end.turns + 1)]
        values = tuple(TurnValue(turn=turn, passed=n, scored=6) for turn, n in enumerate(passed, 1))
        searches += [
            ForksStarted(group=f"f{number:04d}", task=tasks[end.trial], step=1, turn=2, **search),
            TurnsValued(turns=end.turns, solved=False, values=values, turning_point=2, **search),
        ]
    with JournalWriter(run, lambda: START + 40.0, continues=True) as writer:
        for event in searches:
            writer.append(event)
    return run


@pytest.mark.parametrize(("size", "keys"), [((160, 45), ()), ((80, 24), ("4",))])
async def test_values_of_turns_are_drawn_and_the_drop_is_marked(
    tmp_path: Path, snapshot: SnapshotAssertion, size: tuple[int, int], keys: tuple[str, ...]
) -> None:
    app = TbtuiApp(PastHost(valued_run(tmp_path / "run")), live=False, clock=lambda: START + 40.0)
    async with window(app, size) as pilot:
        await open_trial(pilot)
        assert "V 83% ▇" in pane(pilot, "turns").text
        await press(pilot, *keys)
        assert "▼ lost at turn 2: 83% before it, 17% after" in pane(pilot, "facts").text
        assert styled_text(app) == snapshot.use_extension(StyledTextExtension)


def panes(pilot: Pilot[int]) -> tuple[TerminalPane, TurnPane, TokenPane]:
    screen = pilot.app.screen
    return screen.query_one(TerminalPane), screen.query_one(TurnPane), screen.query_one(TokenPane)


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
async def test_a_command_is_found_in_the_tokens_and_a_token_in_the_commands(opened: Opener) -> None:
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


@pytest.mark.slow
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


@pytest.mark.slow
@pytest.mark.parametrize("text", ["\n".join(HOSTILE[:8]), HOSTILE[8]], ids=range(2))
async def test_a_prompt_is_text_whatever_it_says(opened: Opener, tmp_path: Path, text: str) -> None:
    directory = hostile_run(tmp_path / "run", text)
    async with opened((112, 34), directory=directory) as pilot:
        await press(pilot, "enter", "p")
        assert isinstance(pilot.app.screen, PromptScreen)
        check_screen(pilot)
        await press(pilot, "slash", *text[:1].strip(), "enter")
        check_screen(pilot)


async def test_what_a_slow_model_writes_is_shown_before_it_is_whole(
    opened: Opener, tmp_path: Path
) -> None:
    run = run_at(tmp_path / "run", 0.5)
    write_on(
        run,
        1.0,
        trial_queued("slow", label="slow/1"),
        TurnStarted(trial="slow", turn=1, prompt="Delete the file."),
        TrialPhaseChanged(trial="slow", phase=TrialPhase.MODEL),
        *(
            TurnWriting(trial="slow", turn=1, before=before, tokens=2, text=text)
            for before, text in ((0, "never mind"), (0, "\nI will "), (2, "run rm"))
        ),
    )
    async with opened((112, 34), directory=run) as pilot:
        tokens = pane(pilot, "tokens")
        assert "I will run rm" in tokens.text and "never mind" not in tokens.text
        assert str(tokens.border_title) == "4 tokens so far"
        await press(pilot, "enter")
        assert "the model writes: 4 tokens" in pane(pilot, "head").text
        assert "I will run rm" in pane(pilot, "tokens").text
        assert pane(pilot, "turns").text.count("I will run rm") == 2
        await press(pilot, "p")
        assert "Delete the file." in pilot.app.screen.query_one(PromptPane).text


@pytest.mark.slow
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


@pytest.mark.slow
async def test_a_trial_is_exported_and_no_file_is_overwritten(
    opened: Opener, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    async with opened((80, 24), services=Services(trial_tools=make_trial_tools)) as pilot:
        name = await open_trial(pilot)
        await press(pilot, "E", "down", "enter")
        assert (tmp_path / f"{name}.cast").read_text().startswith('{"version": 2')
        await press(pilot, "E", "down")
        path = pilot.app.screen.query_one("#path", Input)
        for given, problem in (
            (path.value, "exists already"),
            ("~nosuch/x", "no such user"),
            ("/tmp/" + "x" * 300, "name too long"),
        ):
            path.value = given
            await press(pilot, "enter")
            assert problem in str(pilot.app.screen.query_one("#problem").render())


@pytest.mark.slow
async def test_a_pager_that_is_none_is_told(
    opened: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened((100, 30)) as pilot:
        await open_trial(pilot)
        for pager, problem in (("no-such-pager", "pager"), ("less 'a", "no closing quotation")):
            monkeypatch.setenv("PAGER", pager)
            await press(pilot, "v")
            assert any(problem in message for message in toasts(pilot))


@pytest.mark.slow
async def test_the_pager_has_what_an_agent_printed_for_programs(
    opened: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    paged: list[str] = []
    monkeypatch.setattr("tbtui.ui.screens.trial.page", lambda app, text: paged.append(text))
    async with opened((100, 30)) as pilot:
        stream = app_of(pilot).shown.run.directory.agent_stream(await open_trial(pilot))
        pilot.app.screen.query_one(TerminalPane).focus()
        await press(pilot, "v")
        stream.parent.mkdir(parents=True, exist_ok=True)
        stream.write_text('{"type": "text"}\n')
        try:
            await press(pilot, "v")
        finally:
            stream.unlink()
    assert [text == '{"type": "text"}\n' for text in paged] == [False, True]


@pytest.fixture
def begun(tmp_path: Path) -> Iterator[SimulatedHost]:
    """A run whose first trials have had a turn of about three."""
    simulation = Simulation(RunDirectory.create(tmp_path / "begun"))
    simulation.advance(START + 3.0)
    yield SimulatedHost(simulation)
    simulation.close()


@asynccontextmanager
async def watching(host: SimulatedHost) -> AsyncIterator[Pilot[int]]:
    """One of its trials, in the smallest window."""
    app = TbtuiApp(host, live=False, clock=lambda: host.simulation.now)
    async with app.run_test(size=SMALLEST) as pilot:
        await settle(app)
        app.push_screen(TrialScreen(host.simulation.acting()[0]))
        await later(pilot, host, 0.0)
        yield pilot


async def test_turns_stay_where_they_were_scrolled_to_and_count_what_comes(
    begun: SimulatedHost,
) -> None:
    async with watching(begun) as pilot:
        turns = pilot.app.screen.query_one(TurnPane)
        await advance_until(pilot, begun, lambda: turns.max_scroll_y > 1)
        assert turns.follow
        assert turns.scroll_y == turns.max_scroll_y

        await wheel(pilot, "#turns", -1, row=3)
        assert not turns.follow
        chosen, at = turns.chosen, turns.scroll_y
        assert at < turns.max_scroll_y
        await advance_until(pilot, begun, lambda: len(turns.transcript.turns) > chosen + 1)
        assert (turns.chosen, turns.scroll_y) == (chosen, at)
        assert str(turns.border_title).rstrip().endswith(f" · {turns.unseen} new")
        assert turns.unseen == len(turns.transcript.turns) - chosen - 1

        turns.focus()
        await pilot.press("end")
        await later(pilot, begun, 0.0)
        assert turns.follow
        assert turns.chosen == len(turns.transcript.turns) - 1
        assert "new" not in str(turns.border_title)


async def test_reading_the_tokens_holds_the_turn(begun: SimulatedHost) -> None:
    async with watching(begun) as pilot:
        turns = pilot.app.screen.query_one(TurnPane)
        tokens = pilot.app.screen.query_one(TokenPane)
        await advance_until(pilot, begun, lambda: tokens.max_scroll_y > 2)
        await wheel(pilot, "#tokens", 1, row=3)
        held, before = tokens.contents, len(turns.transcript.turns)
        assert not turns.follow
        await advance_until(pilot, begun, lambda: len(turns.transcript.turns) > before)
        assert tokens.contents == held
        assert "new" in str(turns.border_title)
        tokens.focus()
        await pilot.press("end")
        await later(pilot, begun, 0.0)
        assert turns.follow


@pytest.mark.slow
async def test_notes_and_commands_count_what_comes_below(steered: Steered) -> None:
    async with steered() as (pilot, simulated):
        app = app_of(pilot)
        await pilot.press("c")
        given = app.screen.query_one("#given", GrowingPane)
        trial = simulated.simulation.acting()[0]
        for _ in range(30):
            app.steering.submit("pause", trial, "one")
        await later(pilot, simulated, 0.0)
        assert given.follow
        assert given.scroll_y == given.max_scroll_y > 0
        await wheel(pilot, "#given", -2, row=3)
        at = given.scroll_y
        app.steering.submit("resume", trial, "one")
        await later(pilot, simulated, 0.0)
        assert given.scroll_y == at
        assert str(given.border_title).rstrip().endswith(" · 1 new")
        await wheel(pilot, "#given", 9, row=3)
        assert given.follow
        await later(pilot, simulated, 0.0)
        assert "new" not in str(given.border_title)
