"""Opening the app over a run, and reaching what it shows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

from textual import events
from textual._xterm_parser import XTermParser
from textual.pilot import Pilot
from textual.screen import Screen

from tbtui.journal.commands import Command
from tbtui.journal.events import AnyEvent
from tbtui.journal.rundir import RunDirectory
from tbtui.journal.writer import JournalWriter
from tbtui.ui.application import TbtuiApp
from tbtui.ui.panes.pane import Pane
from tbtui.ui.runs import ReplayedRun
from tbtui.ui.screens.trial import TrialScreen
from tbtui.ui.services import RecordedRun
from tbtui.view.current import current_trials
from tests.ui.picture import PastHost, settle
from tests.ui.synthetic import START, Simulation, write_run

Opener = Callable[..., AbstractAsyncContextManager[Pilot[int]]]


def run_at(path: Path, seconds: float, **options: object) -> RunDirectory:
    return write_run(path, seconds, **options).run


def write_on(run: RunDirectory, seconds: float, *events: AnyEvent) -> None:
    """These events come next in a run of so many seconds, a second after one another."""
    moments = iter(range(1, len(events) + 1))
    begun = run.database.exists()
    with JournalWriter(run, lambda: START + seconds + next(moments), continues=begun) as writer:
        for event in events:
            writer.append(event)


class SimulatedHost(PastHost):
    """A run that stands still until it is advanced, and obeys commands."""

    def __init__(self, simulation: Simulation) -> None:
        super().__init__(simulation.run)
        self.simulation = simulation

    def submit(self, command: Command) -> None:
        super().submit(command)
        self.simulation.command(command)

    def advance(self, seconds: float) -> None:
        self.simulation.advance(self.simulation.now + seconds)


class Wall:
    """The clock on the wall, moved by the test."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def host_of(pilot: Pilot[int]) -> PastHost:
    host = app_of(pilot).own.host
    assert isinstance(host, PastHost)
    return host


Steered = Callable[..., AbstractAsyncContextManager[tuple[Pilot[int], SimulatedHost]]]


def commands(pilot: Pilot[int]) -> list[tuple[str, str]]:
    return [(command.verb, command.target) for command in host_of(pilot).commands]


def app_of(pilot: Pilot[int]) -> TbtuiApp:
    assert isinstance(pilot.app, TbtuiApp)
    return pilot.app


def pane(pilot: Pilot[int], name: str) -> Pane:
    return pilot.app.screen.query_one(f"#{name}", Pane)


async def wheel(pilot: Pilot[int], selector: str, turns: int, row: int = 0) -> None:
    """Down, or up where `turns` is negative, with the pointer over a pane."""
    kind = events.MouseScrollUp if turns < 0 else events.MouseScrollDown
    for _ in range(abs(turns)):
        await pilot._post_mouse_events([kind], selector, offset=(6, row), button=0)


LASTING = ("engine", "joined")
"""Workers that go on as long as the app does, or a run of another process that it follows."""


async def rest(pilot: Pilot[Any]) -> None:
    """Wait until all that was asked for has been read, and is on the screen."""
    await pilot.pause()
    while any(w.name not in LASTING and not w.is_finished for w in pilot.app.workers):  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    if isinstance(pilot.app, TbtuiApp):
        await settle(pilot.app)
    await pilot.pause()


async def press(pilot: Pilot[int], *keys: str) -> None:
    """Press keys, each once what came of the one before is on the screen."""
    for key in keys:
        await pilot.press(key)
        await rest(pilot)


def burst(pilot: Pilot[Any], text: str) -> None:
    """Type it at once, as a terminal hands on what was typed while the app was busy."""
    for message in XTermParser().feed(text):
        pilot.app.post_message(message)


async def later(pilot: Pilot[int], host: SimulatedHost, seconds: float = 0.5) -> None:
    """Advance the run, and show what has come."""
    host.advance(seconds)
    await settle(app_of(pilot))
    await pilot.pause()


async def advance_until(
    pilot: Pilot[int], host: SimulatedHost, happened: Callable[[], bool]
) -> None:
    """Advance the run until something has happened on the screen."""
    for _ in range(20):
        if happened():
            return
        await later(pilot, host)
    raise AssertionError("it never happened")


def screen_of[S: Screen[Any]](pilot: Pilot[Any], kind: type[S]) -> S:
    """The screen that is on top, which is of this kind."""
    screen = pilot.app.screen
    assert isinstance(screen, kind)
    return screen


def toasts(pilot: Pilot[Any]) -> list[str]:
    """What notifications say."""
    return [str(toast.message) for toast in pilot.app._notifications]


@asynccontextmanager
async def window(app: TbtuiApp, size: tuple[int, int] = (160, 45)) -> AsyncIterator[Pilot[int]]:
    """Opens an app in a window, and shows all that there is."""
    async with app.run_test(size=size, notifications=True) as pilot:
        await settle(app)
        yield pilot


def replaying(run: RunDirectory, **options: Any) -> tuple[TbtuiApp, ReplayedRun]:
    """An app over a recorded run, and the run with its clock."""
    recorded = ReplayedRun(run)
    return TbtuiApp(RecordedRun(run), recorded=recorded, live=False, **options), recorded


async def open_trial(pilot: Pilot[int], finished: bool = True) -> str:
    """Open the first trial that has the most turns behind it."""
    app = app_of(pilot)
    shown = current_trials(app.live_run.state)
    trials = [t for t in shown if t.live != finished and t.turn > 1]
    trial = max(trials, key=lambda each: each.turn)
    app.selection.choose(trial.trial)
    await pilot.press("enter")
    await settle(app)
    if not isinstance(app.screen, TrialScreen):  # its group's terminals were opened first
        await pilot.press("enter")
        await settle(app)
    assert isinstance(app.screen, TrialScreen)
    return trial.trial
