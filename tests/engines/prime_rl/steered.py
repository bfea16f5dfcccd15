"""A run of Prime-RL's that is followed in this process, and steered."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from tbtui.engines.prime_rl.control import PrimeRlControl
from tbtui.engines.prime_rl.plugin.files import ControlFile
from tbtui.engines.prime_rl.watch.recorder import TraceRecorder
from tbtui.engines.prime_rl.watch.run import PreparedWatch, WatchOptions, follow, prepare_watch
from tbtui.journal.commands import RUN, Command
from tbtui.journal.events import CommandVerb
from tbtui.view.fold import Fold
from tbtui.view.state import RunState
from tests.events import entries_of

from .recorded_run import RecordedRun


class Steered:
    def __init__(self, tmp_path: Path, trials_dir: Path | None = None) -> None:
        self.run = RecordedRun(tmp_path / "tb")
        self.run.launch()
        self.run.ready()
        self.trials_dir = trials_dir or tmp_path / "trials_dir"
        self.control = PrimeRlControl(self.trials_dir)
        self.prepared = self.prepare(tmp_path / "journal")

    def prepare(self, into: Path) -> PreparedWatch:
        return prepare_watch(self.run.path, into, WatchOptions(trials_dir=self.trials_dir))

    @contextlib.asynccontextmanager
    async def followed(self) -> AsyncIterator[None]:
        continues = self.prepared.directory.database.exists()
        with TraceRecorder(self.prepared.directory, continues=continues) as recorder:
            following = asyncio.create_task(follow(self.prepared, recorder, self.control))
            try:
                yield
            finally:
                following.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await following

    async def ask(self, verb: CommandVerb, target: str = RUN) -> Command:
        command = Command(verb, target, "ada")
        self.control.submit(command)
        return command

    async def answer(self, command: Command) -> tuple[bool, str]:
        """What came of it."""
        done = await self.seen("command_done", command=command.id)
        return done.ok, done.result

    async def seen(self, kind: str, **fields: Any) -> Any:
        """The first such event, as soon as it is in the journal."""
        while True:
            if self.prepared.directory.database.exists():
                for event in self.events():
                    given = {name: getattr(event, name, None) for name in fields}
                    if event.kind == kind and given == fields:
                        return event
            await asyncio.sleep(0.02)  # a file announces nothing

    def events(self) -> list[Any]:
        return [entry.event for entry in entries_of(self.prepared.directory)]

    def kinds(self) -> list[str]:
        return [event.kind for event in self.events()]

    def state(self) -> RunState:
        fold = Fold()
        fold.apply_all(entries_of(self.prepared.directory))
        return fold.state

    def passed_on(self) -> list[tuple[str, str]]:
        return [(each.verb, each.target) for each in ControlFile(self.trials_dir).poll()]
