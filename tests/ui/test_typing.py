"""Typing in a trial: keys and pastes on their way, and the real app over a real trial."""

from __future__ import annotations

import asyncio
import getpass
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion
from textual import events

from tbtui.engines.control.client import ControlClient
from tbtui.journal.commands import MAX_TYPED_BYTES, Command, Typed, from_arguments, to_arguments
from tbtui.journal.events import HumanTyped, Outcome, TrialFinished, TrialGivenBack
from tbtui.ui.app import TbtuiApp
from tbtui.ui.panes.pane import Pane
from tbtui.ui.panes.turns import TurnPane
from tbtui.ui.screens.dialogs import ConfirmDialog
from tbtui.ui.screens.trial import TrialScreen
from tbtui.ui.screens.typing import TypingPane, TypingScreen, commands, pasted, typed_key
from tests.engines.real_run import RealRun
from tests.ui.opening import SimulatedHost, Steered, app_of, press, window
from tests.ui.picture import PastHost, settle
from tests.ui.styled_text import StyledTextExtension, styled_text


@pytest.mark.parametrize(
    ("key", "character", "typed"),
    [
        ("a", "a", Typed("text", "a")),
        ("space", " ", Typed("text", " ")),
        ("semicolon", ";", Typed("text", ";")),
        ("é", "é", Typed("text", "é")),
        ("enter", "\r", Typed("key", "Enter")),
        ("tab", "\t", Typed("key", "Tab")),
        ("shift+tab", None, Typed("key", "BTab")),
        ("escape", "\x1b", Typed("key", "Escape")),
        ("backspace", "\x7f", Typed("key", "BSpace")),
        ("ctrl+c", "\x03", Typed("key", "C-c")),
        ("ctrl+at", "\x00", Typed("key", "C-Space")),
        ("ctrl+underscore", "\x1f", Typed("key", "C-_")),
        ("ctrl+left", None, Typed("key", "C-Left")),
        ("alt+b", None, Typed("key", "M-b")),
        ("pageup", None, Typed("key", "PPage")),
        ("f12", None, Typed("key", "F12")),
        ("f20", None, None),
        ("super+a", None, None),
    ],
)
def test_every_key_has_its_name(key: str, character: str | None, typed: Typed | None) -> None:
    assert typed_key(key, character) == typed
    if typed is not None:
        assert from_arguments(to_arguments([typed])) == (typed,)


def test_a_paste_is_bounded_and_can_not_end_its_brackets() -> None:
    assert list(pasted("a\x1b[201~b\n\0c")) == [Typed("paste", "a[201~b\nc")]
    for text in ("x" * 100_000, "日本" * 30_000):
        parts = list(pasted(text))
        assert "".join(part.text for part in parts) == text
        batches = list(commands(parts))
        assert [part for batch in batches for part in batch] == parts
        for batch in batches:
            assert sum(len(part.text.encode()) for part in batch) <= MAX_TYPED_BYTES
    typed = [Typed("text", "l"), Typed("text", "s"), Typed("key", "Enter")]
    assert list(commands(typed)) == [[Typed("text", "ls"), Typed("key", "Enter")]]


# Over a real trial


class RealHost(PastHost):
    """A run on the test's own loop."""

    def __init__(self, run: RealRun) -> None:
        super().__init__(run.directory)
        self.run = run

    @property
    def read_only(self) -> str:  # type: ignore[override]
        return self.run.controlled.read_only

    def submit(self, command: Command) -> None:
        super().submit(command)
        self.run.controlled.submit(command)


@pytest.fixture
async def real(tmp_path: Path) -> AsyncIterator[RealRun]:
    run = RealRun(tmp_path / "runs" / "real", owner=getpass.getuser())
    await run.begin()
    yield run
    await run.stop()


async def until(app: TbtuiApp, holds: Callable[[], object]) -> None:
    async with asyncio.timeout(20):
        while not holds():
            await settle(app)
            await asyncio.sleep(0.02)


async def until_on(app: TbtuiApp, screen: type) -> None:
    await until(app, lambda: isinstance(app.screen, screen))


async def until_open(app: TbtuiApp) -> TypingPane:
    pane = app.screen.query_one(TypingPane)
    await until(app, lambda: pane.open)
    return pane


@pytest.mark.slow
async def test_a_person_solves_a_trial_by_hand(real: RealRun) -> None:
    app = TbtuiApp(RealHost(real), live=False)
    trial = real.first
    async with window(app, (100, 30)) as pilot:
        app.selection.choose(trial)
        await settle(app)
        await pilot.press("enter")
        assert isinstance(app.screen, TrialScreen)
        await pilot.press("i")
        assert isinstance(app.screen, TypingScreen)
        await settle(app)
        title = str(app.screen.query_one(TypingPane).border_title)
        assert "yours once its turn ends · ctrl+\\ calls it off" in title
        real.policy.go.set()
        pane = await until_open(app)
        real.policy.go.clear()
        await settle(app)
        assert "✎ you type in" in str(pane.border_title)
        assert "ctrl+\\ gives it back" in str(pane.border_title)
        assert "not trained on" in str(pane.border_subtitle)
        # Keys that mean something elsewhere, and those that end or leave the app.
        await pilot.press(
            *"sleep 99", "enter", "ctrl+c", *"echo q-", "tab", "tab", "ctrl+p", "ctrl+q"
        )
        await pilot.press("ctrl+u", *"echo =$((6*7))", "left", "left", "right", "right", "enter")
        await until(app, lambda: "=42" in pane.text)
        assert isinstance(app.screen, TypingScreen)
        assert real.directory and not app._exit
        pane.post_message(events.Paste("touch \\\n  solved\n"))
        await pilot.press("enter")
        await pilot.press(*"ls", "enter")
        await until(app, lambda: "\nsolved" in pane.text)
        await pilot.press("ctrl+backslash")
        await until_on(app, TrialScreen)
        real.policy.go.set()
        await real.end()
        await settle(app)
        await settle(app)
        turns = app.screen.query_one(TurnPane).text
        assert "✎" in turns
        assert "human touched" in turns
        assert "a person typed in its terminal" in turns
    finished = {event.trial: event for event in real.events(TrialFinished)}
    assert finished[trial].outcome is Outcome.HUMAN_TOUCHED
    assert (finished[trial].verdict, finished[trial].reward) == (1.0, None)
    typed = [part for event in real.events(HumanTyped) for part in event.parts]
    assert Typed("paste", "touch \\\n  solved\n") in typed
    assert Typed("key", "C-q") in typed
    assert len(real.events(TrialGivenBack)) == 1


@pytest.mark.slow
async def test_calling_it_off_and_thawing(real: RealRun) -> None:
    app = TbtuiApp(RealHost(real), live=False)
    trial = real.first
    async with window(app, (80, 24)) as pilot:
        app.selection.choose(trial)
        await settle(app)
        # From the cockpit; the turn does not end, so it is called off.
        await pilot.press("i")
        assert isinstance(app.screen, TypingScreen)
        await pilot.press("ctrl+backslash")
        await until_on(app, type(app.screen_stack[1]))
        assert not app.live_run.state.trials[trial].hold.typist
        await pilot.press("z")
        await until(app, lambda: app.live_run.state.trials[trial].hold.frozen)
        await pilot.press("i")
        assert isinstance(app.screen, ConfirmDialog)
        await pilot.press("y")
        real.policy.go.set()
        await until_on(app, TypingScreen)
        await until_open(app)
        # Somebody else takes the controls: the trial is given back, and stays paused.
        before = len(real.events(TrialGivenBack))
        bob, _ = await ControlClient.open(real.directory, "bob", viewer=True)
        bob.send_take()
        await until(app, lambda: len(real.events(TrialGivenBack)) > before)
        await until(app, lambda: not isinstance(app.screen, TypingScreen))
        await settle(app)
        view = app.live_run.state.trials[trial]
        assert (view.hold.paused, view.hold.typist) == (True, "")
        bob.close()


# Over a simulated one


async def test_the_frame_can_not_be_mistaken(steered: Steered, snapshot: SnapshotAssertion) -> None:
    async with steered() as (pilot, simulated):
        app = app_of(pilot)
        app.selection.choose(simulated.simulation.acting()[0])
        await press(pilot, "i")
        # The notification that the command was given is replaced by the one that answers it.
        while not any(
            "is typing in it" in row.text for row in app.screen._compositor.render_strips()
        ):
            await pilot.pause()
        assert styled_text(app) == snapshot(extension_class=StyledTextExtension)


@pytest.mark.slow
async def test_who_types_is_seen_by_all(steered: Steered) -> None:
    async with steered() as (pilot, simulated):
        app = app_of(pilot)
        trial = simulated.simulation.acting()[0]
        # Somebody else's: a script, or another app.
        simulated.submit(Command("take_over", trial, actor="ada"))
        await settle(app)
        view = app.live_run.state.trials[trial]
        assert view.hold.typist == "ada"
        grid = app.screen.query_one("#trials", Pane)
        (row,) = (line for line in grid.text.splitlines() if f"▸ {view.task} " in line)
        assert "✎" in row
        await pilot.press("q")
        await pilot.press("escape")
        app.selection.choose(trial)
        await press(pilot, "enter")
        assert "taken over by ada" in app.screen.query_one("#head", Pane).text


async def test_waiting_for_a_trial_ends_under_help_too_and_with_esc(
    simulated: SimulatedHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = TbtuiApp(simulated, live=False, clock=lambda: simulated.simulation.now)
    # Nobody answers.
    monkeypatch.setattr(simulated, "submit", simulated.commands.append)
    async with window(app, (80, 24)) as pilot:
        cockpit, trial = app.screen, simulated.simulation.acting()[0]
        app.selection.choose(trial)
        await settle(app)
        await pilot.press("i", "escape")
        assert app.screen is cockpit
        assert [each.verb for each in simulated.commands] == ["take_over", "resume"]
        await press(pilot, "i")
        await pilot.press("question_mark")
        simulated.simulation.command(Command("cancel", trial))
        simulated.advance(5.0)
        simulated.simulation.command(simulated.commands[-1])
        await settle(app)
        assert isinstance(app.screen_stack[-2], TypingScreen)
        await press(pilot, "escape")
        assert app.screen is cockpit


async def test_no_key_of_the_app_works_while_somebody_types(steered: Steered) -> None:
    async with steered() as (pilot, simulated):
        app = app_of(pilot)
        app.selection.choose(simulated.simulation.acting()[0])
        await settle(app)
        await press(pilot, "i")
        keys = ["q", "ctrl+c", "ctrl+q", "ctrl+p", "tab", "escape", "question_mark", "P", "space"]
        await pilot.press(*keys)
        await pilot.pause()
        assert isinstance(app.screen, TypingScreen)
        typed = [each for each in simulated.commands if each.verb == "type"]
        parts = [part for each in typed for part in from_arguments(each.arguments)]
        assert [part.text for part in parts] == [
            *("q", "C-c", "C-q", "C-p", "Tab", "Escape", "?", "P", " "),
        ]
        assert {each.verb for each in simulated.commands} == {"take_over", "type"}
