from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from textual.notifications import Notification
from textual.pilot import Pilot

from tbtui.journal.rundir import RunDirectory
from tbtui.ui.app import TbtuiApp
from tbtui.ui.user import Preferences, write_preferences
from tests.ui.opening import Opener, SimulatedHost, Steered, Wall, window
from tests.ui.picture import PastHost
from tests.ui.synthetic import START, Simulation, write_run


@pytest.fixture(autouse=True)
def nobodys_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Keeps the themes, keys and preferences of the person out of the tests."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    write_preferences(tmp_path / "state/tbtui/app.json", Preferences(toured=True))


@pytest.fixture(autouse=True)
def anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pictures show every colour and one name, whatever terminal the tests are run in, and by
    whom."""
    monkeypatch.setenv("COLORTERM", "truecolor")
    monkeypatch.setenv("LOGNAME", "ann")


@pytest.fixture(autouse=True)
def fixed_time_zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    monkeypatch.delenv("NO_COLOR", raising=False)
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.fixture(autouse=True)
def lasting_notifications(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is said stays until the app takes it back, however long a busy machine takes to look."""
    monkeypatch.setattr(Notification, "time_left", 3600.0)


@pytest.fixture(scope="session")
def run_directory(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    """Forty seconds of a run: an evaluation, a step, and a step under way."""
    return write_run(tmp_path_factory.mktemp("runs") / "starter-demo", 40.0).run


@pytest.fixture(scope="session")
def served_run(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    """The same with a thinking policy on a server, which has been paused for eleven seconds."""
    path = tmp_path_factory.mktemp("runs") / "tinker-demo"
    return write_run(path, 39.0, policy="tinker").run


@pytest.fixture
def wall() -> Wall:
    return Wall()


@pytest.fixture
def past_app(run_directory: RunDirectory) -> Callable[..., TbtuiApp]:
    """An app over that run; its clock stands still and no timer runs."""

    def build(directory: RunDirectory = run_directory, **options: Any) -> TbtuiApp:
        options.setdefault("clock", lambda: START + 40.0)
        return TbtuiApp(PastHost(directory), live=False, **options)

    return build


@pytest.fixture
def opened(past_app: Callable[..., TbtuiApp]) -> Opener:
    """Opens the app in a window and shows all that there is."""

    @asynccontextmanager
    async def open_app(
        size: tuple[int, int] = (200, 60), **options: object
    ) -> AsyncIterator[Pilot[int]]:
        app = past_app(**options)
        async with window(app, size) as pilot:
            yield pilot

    return open_app


@pytest.fixture
def simulated(tmp_path: Path) -> Iterator[SimulatedHost]:
    """A run half-way through its second step, to be steered."""
    simulation = Simulation(RunDirectory.create(tmp_path / "steered"))
    simulation.advance(START + 39.0)
    yield SimulatedHost(simulation)
    simulation.close()


@pytest.fixture
def steered(simulated: SimulatedHost) -> Steered:
    """Opens the app over the simulated run."""

    @asynccontextmanager
    async def open_app(
        size: tuple[int, int] = (80, 24),
    ) -> AsyncIterator[tuple[Pilot[int], SimulatedHost]]:
        app = TbtuiApp(simulated, live=False, clock=lambda: simulated.simulation.now)
        async with window(app, size) as pilot:
            yield pilot, simulated

    return open_app
