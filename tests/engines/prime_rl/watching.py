"""A watcher that is moved by hand."""

from __future__ import annotations

from pathlib import Path

from tbtui.console import HumanLines
from tbtui.engines.prime_rl.watch.recorder import Savepoint, TraceRecorder
from tbtui.engines.prime_rl.watch.source import SourceDirectory
from tbtui.engines.prime_rl.watch.watcher import Watcher
from tbtui.journal.events import AnyEvent
from tbtui.journal.reader import JournalReader
from tbtui.journal.rundir import RunDirectory
from tbtui.view.fold import Fold
from tbtui.view.state import RunState

from .recorded_run import BEGIN, RecordedRun


class Watching:
    """A watcher that is moved by hand, and what it wrote."""

    def __init__(
        self,
        run: RecordedRun,
        into: Path,
        stall_sec: float = 120.0,
        trials_dir: Path | None = None,
    ) -> None:
        self.run = run
        self.now = BEGIN + 10_000
        self.into = RunDirectory(into)
        self._stall_sec = stall_sec
        self._trials_dir = trials_dir
        self.start()

    def start(self) -> None:
        fresh = not self.into.database.exists()
        if fresh:
            RunDirectory.create(self.into.path)
        savepoint = Savepoint.load(self.into.path / "watch.json", self.run.path)
        self.recorder = TraceRecorder(self.into, continues=not fresh)
        self.watcher = Watcher(
            SourceDirectory.open(self.run.path),
            self.into,
            self.recorder,
            savepoint,
            self._stall_sec,
            clock=lambda: self.now,
            trials_dir=self._trials_dir,
        )

    def read(self) -> None:
        """All that is there."""
        while self.watcher.poll():
            pass
        self.watcher.poll()

    def restart(self, *, killed: bool = False) -> None:
        """Another watcher goes on; a killed one saved what it last saved."""
        if not killed:
            self.watcher.close()
        with self.recorder:
            pass
        self.start()

    def stop(self) -> None:
        self.watcher.close()
        with self.recorder:
            pass

    def events(self) -> list[AnyEvent]:
        return [entry.event for entry in self.reader().read(0, limit=100_000)]

    def of[T](self, kind: type[T]) -> list[T]:
        return [event for event in self.events() if isinstance(event, kind)]

    def state(self) -> RunState:
        fold = Fold()
        fold.apply_all(self.reader().read(0, limit=100_000))
        return fold.state

    def lines(self) -> list[str]:
        human = HumanLines()
        return [line for entry in self.reader().read(0, 100_000) for line in human.lines(entry)]

    def reader(self) -> JournalReader:
        return JournalReader(self.into)
