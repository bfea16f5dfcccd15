from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tbtui.config import RunConfig, parse_settings
from tbtui.engines.prime_rl.launch.checkout import CHECKOUT_VARIABLE
from tbtui.journal.events import AnyEvent
from tbtui.journal.rundir import RunDirectory
from tests.events import events_of
from tests.tasks import make_task

from .stand_in import a_file, make_checkout, write_file

if sys.platform == "linux":
    from tbtui.engines.prime_rl.launch.guard import PATIENCE_VARIABLE
else:
    collect_ignore_glob = ["test_*"]  # Prime-RL is launched on Linux


@dataclass
class Place:
    """A checkout, tasks and a file of Prime-RL's."""

    root: Path
    checkout: Path
    tasks: Path
    file: Path
    pids: Path

    def config(self, *settings: str) -> RunConfig:
        return parse_settings(
            [str(self.file), f"logs_dir={self.root / 'runs'}", "run_name=tb", *settings]
        )

    @property
    def run(self) -> Path:
        return self.root / "runs" / "tb"

    def events[E: AnyEvent](self, kind: type[E]) -> list[E]:
        """None where there is no journal yet."""
        directory = RunDirectory(self.run)
        return events_of(directory, kind) if directory.database.exists() else []


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    checkout = make_checkout(tmp_path / "prime-rl", python_answers=True)
    tasks = tmp_path / "tasks"
    make_task(tasks / "copy-file", "Write hi into hello.txt.")
    file = write_file(tmp_path / "tb.toml", a_file(tasks))
    monkeypatch.setenv(CHECKOUT_VARIABLE, str(checkout))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    monkeypatch.setenv("STAND_IN_PIDS", str(tmp_path / "pids"))
    monkeypatch.setenv(PATIENCE_VARIABLE, "0.3")
    return Place(tmp_path, checkout, tasks, file, tmp_path / "pids")
