"""Opening the app over a run, and reaching what it shows."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from textual.pilot import Pilot

from tbtui.journal.commands import Command
from tbtui.journal.rundir import RunDirectory
from tbtui.ui.application import TbtuiApp
from tbtui.ui.panes.pane import Pane
from tbtui.ui.screens.trial import TrialScreen
from tbtui.view.current import current_trials
from tests.ui.picture import PastHost, settle
from tests.ui.synthetic import Simulation, write_run

Opener = Callable[..., AbstractAsyncContextManager[Pilot[int]]]


def run_at(path: Path, seconds: float, **options: object) -> RunDirectory:
    return write_run(path, seconds, **options).run


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


def commands(pilot: Pilot[int]) -> list[tuple[str, str]]:
    host = app_of(pilot).own.host
    assert isinstance(host, PastHost)
    return [(command.verb, command.target) for command in host.commands]


def app_of(pilot: Pilot[int]) -> TbtuiApp:
    assert isinstance(pilot.app, TbtuiApp)
    return pilot.app


def pane(pilot: Pilot[int], name: str) -> Pane:
    return pilot.app.screen.query_one(f"#{name}", Pane)


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


def pressing(
    keys: Sequence[str], first: Callable[[Pilot[int]], Awaitable[object]] | None = None
) -> Callable[[Pilot[int]], Awaitable[None]]:
    """For `snap_compare`: presses these keys, each once the app has come to rest."""

    async def press(pilot: Pilot[int]) -> None:
        await settle(app_of(pilot))
        if first is not None:
            await first(pilot)
        for key in keys:
            await pilot.press(key)
            await settle(app_of(pilot))
        await pilot.pause()

    return press
