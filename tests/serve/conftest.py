from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tbtui.journal.rundir import RunDirectory
from tbtui.ui.user import Preferences, write_preferences
from tests.ui.synthetic import START, Simulation, write_run

from .serving import Serving


@pytest.fixture(autouse=True)
def nobodys_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Keep the developer's own themes, keys and preferences out of the tests."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("TBTUI_SERVE_TOKEN", raising=False)
    write_preferences(tmp_path / "state/tbtui/app.json", Preferences(full=4))


@pytest.fixture(scope="session")
def past_run(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    """Forty seconds of a run whose process is gone."""
    return write_run(tmp_path_factory.mktemp("runs") / "past", 40.0).run


@pytest.fixture
def live_run(tmp_path: Path) -> Iterator[Simulation]:
    """A run in its first step, with a writer; it stands still until it is advanced."""
    simulation = Simulation(RunDirectory.create(tmp_path / "live"))
    simulation.advance(START + 20.0)
    yield simulation
    simulation.close()


@pytest.fixture
def serving() -> Iterator[Callable[..., Serving]]:
    """Starts `tbtui serve`, which ends with the test."""
    started: list[Serving] = []

    def start(run: RunDirectory, *options: str, **environment: str) -> Serving:
        started.append(Serving.start(run, *options, **environment))
        return started[-1]

    yield start
    for each in started:
        each.end()


@pytest.fixture
def server(serving: Callable[..., Serving], past_run: RunDirectory) -> Serving:
    """Serves that run, with all defaults."""
    return serving(past_run)
