"""What a random walk goes through: the app over runs that go on, are over, or wait for people."""

from __future__ import annotations

import asyncio
import hashlib
import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tbtui.config import RunConfig
from tbtui.engines.events_of import issued
from tbtui.findings import Rule
from tbtui.journal.commands import Command
from tbtui.journal.events import AlarmRaised, CommandDone, CommandIssued, Noted
from tbtui.journal.rundir import RunDirectory
from tbtui.resources import tasks_dir
from tbtui.show_run import make_trial_tools
from tbtui.task_library import CatalogLibrary
from tbtui.ui.application import TbtuiApp
from tbtui.ui.runs import ReplayedRun
from tbtui.ui.services import RecordedRun, Services
from tests.events import events_of
from tests.ui.hostile import HOSTILE, hostile_run
from tests.ui.opening import SimulatedHost
from tests.ui.picture import PastHost
from tests.ui.review_run import ReviewedRun, ReviewHost
from tests.ui.synthetic import START, Simulation, SyntheticHost, write_run


class World:
    """The app, and what happens around it while somebody uses it."""

    app: TbtuiApp
    commands: list[Command]
    """That were handed over."""

    def __init__(self, recorded: list[Path]) -> None:
        """`recorded`: directories of runs that nobody may write to."""
        self._recorded = recorded
        self.commands = []
        self.seconds = 0.0
        """That have passed."""

    def any_event(self, rng: random.Random) -> tuple[Any, ...]:
        """Something that happens by itself."""
        return ("advance", rng.choice((0.1, 0.5, 1.0, 3.0, 10.0)))

    async def happen(self, event: tuple[Any, ...]) -> None:
        match event:
            case ("advance", float() | int() as seconds):
                self.seconds += seconds
            case ("spare",):
                # As in a quiet moment.
                self.app.trial_screens.prepare()
            case _:
                raise ValueError(f"{event}: no such event")

    def untouched(self) -> Mapping[str, str]:
        """Every file that has to stay as it is."""
        return {
            str(file): hashlib.sha256(file.read_bytes()).hexdigest()
            for directory in self._recorded
            for file in sorted(directory.rglob("*"))
            # SQLite makes these for readers of a journal.
            if file.is_file() and not file.name.startswith("run.db-")
        }

    def check(self) -> None:
        """After the walk."""

    def close(self) -> None:
        """Whatever is open still."""


class _Replayed(World):
    """A recorded run with a clock."""

    def __init__(self, directory: Path) -> None:
        run = self._write(directory / "runs" / "recorded")
        earlier = write_run(directory / "runs" / "earlier", 9.0).run
        super().__init__([run.path, earlier.path])
        self.app = TbtuiApp(
            RecordedRun(run),
            recorded=ReplayedRun(run),
            live=False,
            monotonic=lambda: self.seconds,
            services=Services(library=_library, trial_tools=make_trial_tools, guest=self._guest),
        )

    _guest = False

    def _write(self, path: Path) -> RunDirectory:
        return write_run(path, 34.0).run


class _Guest(_Replayed):
    """The same for somebody who is no user of this machine."""

    _guest = True


class _Hostile(_Replayed):
    """A run whose texts no terminal should be sent."""

    def _write(self, path: Path) -> RunDirectory:
        path.parent.mkdir(parents=True)
        return hostile_run(path, "\n".join(HOSTILE[:8]))


class _Steered(World):
    """A run that goes on and obeys, whose controls others take now and then."""

    def __init__(self, directory: Path) -> None:
        earlier = write_run(directory / "runs" / "earlier", 9.0).run
        super().__init__([earlier.path])
        broken = directory / "runs" / "broken"
        broken.mkdir()
        (broken / "run.db").write_text("no database" * 500)
        self._simulation = Simulation(
            RunDirectory.create(directory / "runs" / "own"), steps=3, deadline=60.0
        )
        self._simulation.advance(START + 20.0)
        self._host = SimulatedHost(self._simulation)
        self.commands = self._host.commands
        self.app = TbtuiApp(
            self._host,
            live=False,
            clock=lambda: self._simulation.now,
            monotonic=lambda: self.seconds,
            services=Services(library=_library, trial_tools=make_trial_tools),
        )

    def any_event(self, rng: random.Random) -> tuple[Any, ...]:
        kind = rng.choice(("advance", "advance", "advance", "note", "print", "spare", "controls"))
        match kind:
            case "note" | "print":
                return (kind, rng.randrange(len(HOSTILE)))
            case "spare" | "controls":
                return (kind,)
        return super().any_event(rng)

    async def happen(self, event: tuple[Any, ...]) -> None:
        match event:
            case ("note", int() as number):
                self._simulation._write(Noted(level="warning", text=HOSTILE[number]))
                self._simulation._write(
                    AlarmRaised(
                        alarm=Rule.SAMPLER_MISMATCH,
                        step=1,
                        text=HOSTILE[number],
                        numbers={"kl": 0.1},
                        action="warn",
                    )
                )
            case ("print", int() as number):
                for trial in self._simulation.acting()[:3]:
                    self._simulation.print_in(trial, HOSTILE[number][:5_000])
            case ("controls",):
                self._host.read_only = "" if self._host.read_only else "ada has the controls"
            case _:
                await super().happen(event)
        if event[0] == "advance" and self._simulation.end is None:
            self._host.advance(event[1])

    def check(self) -> None:
        """What was asked for is in the journal, once, and answered once."""
        asked = [command.id for command in self.commands]
        journalled = [event.command for event in events_of(self._simulation.run, CommandIssued)]
        answered = [event.command for event in events_of(self._simulation.run, CommandDone)]
        assert len(set(asked)) == len(asked)
        assert journalled == asked
        assert len(set(answered)) == len(answered)
        assert set(answered) <= set(asked)

    def close(self) -> None:
        self._simulation.close()


class _Live(World):
    """A run that goes on by itself, in an app whose timers run."""

    def __init__(self, directory: Path) -> None:
        super().__init__([])
        self._host = SyntheticHost(directory / "runs" / "own", steps=3, tempo=8.0)
        self.commands = self._host.commands
        self.app = TbtuiApp(
            self._host, services=Services(library=_library, trial_tools=make_trial_tools)
        )

    async def happen(self, event: tuple[Any, ...]) -> None:
        await asyncio.sleep(min(0.5, event[1]))

    def close(self) -> None:
        self._host.interrupt()


class _CarefulReviewHost(ReviewHost):
    """Refuses what a step under review can't be asked for."""

    def submit(self, command: Command) -> None:
        reviewing = command.verb in ("accept", "exclude", "include", "relabel", "refill")
        if self.reviewed.closed or not reviewing:
            PastHost.submit(self, command)
            self.reviewed.write(issued(command))
            self.reviewed.write(CommandDone(command=command.id, ok=False, result="not now"))
        else:
            super().submit(command)


class _Reviewed(World):
    """A step that waits for what people decide."""

    def __init__(self, directory: Path) -> None:
        super().__init__([])
        self._reviewed = ReviewedRun(directory / "runs" / "reviewed")
        host = _CarefulReviewHost(self._reviewed)
        self.commands = host.commands
        self.app = TbtuiApp(
            host,
            live=False,
            clock=lambda: self._reviewed.now + self.seconds,
            monotonic=lambda: self.seconds,
            services=Services(
                library=_library, trial_tools=make_trial_tools, add_rule=lambda file, rule: None
            ),
        )

    def close(self) -> None:
        self._reviewed.close()


class _Library(CatalogLibrary):
    """A few of the bundled tasks: walks go through the browser often."""

    def entries(self) -> Any:
        return super().entries()[:20]


def _library(run: RunDirectory) -> CatalogLibrary:
    return _Library([tasks_dir() / "workshop"], RunConfig(logs_dir=run.path.parent))


WORLDS: Mapping[str, Callable[[Path], World]] = {
    "steered": _Steered,
    "replayed": _Replayed,
    "live": _Live,
    "reviewed": _Reviewed,
    "hostile": _Hostile,
    "guest": _Guest,
}
