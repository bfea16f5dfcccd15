"""A live run in the test's own process: the real engine, journal and socket; trials by rote."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from tbtui.catalog.split import Split
from tbtui.config import RunConfig, to_toml
from tbtui.engines.control.client import ControlClient
from tbtui.engines.control.protocol import Answer, Welcome
from tbtui.engines.control.run import ControlledRun
from tbtui.engines.grpo.trials import TrialRunner
from tbtui.engines.prepare import PreparedRun
from tbtui.engines.run import Run
from tbtui.journal.commands import RunEnd
from tbtui.journal.events import AnyEvent, TurnSampled
from tbtui.journal.rundir import RunDirectory
from tbtui.policies.base import Sample, SampleRequest
from tbtui.rollout.environments.choose import EnvironmentChoice
from tbtui.rollout.messages import TrialSpec
from tests.engines.conftest import TASKS
from tests.engines.fakes import FakePool, RotePolicy, facts
from tests.events import events_of
from tests.waiting import until

TURN_SEC = 0.05


class UnhurriedPolicy(RotePolicy):
    async def sample(self, request: SampleRequest) -> Sample:
        await asyncio.sleep(TURN_SEC)
        return await super().sample(request)


def endless(pool: FakePool, spec: TrialSpec) -> object:
    """Trials that take turns until somebody ends them."""
    return pool.end(spec, facts(), turns=10_000)


class LiveRun:
    """Two trials of one group, which go on until the run is stopped."""

    def __init__(self, where: Path | RunDirectory, owner: str = "", **settings: Any) -> None:
        """`where`: a directory that is made, or that of another run."""
        self.directory = RunDirectory.create(where) if isinstance(where, Path) else where
        defaults = {"max_steps": 5, "batch_size": 1, "group_size": 2, "n_parallel_envs": 4}
        self._config = config = RunConfig(**{**defaults, **settings})
        self.directory.config.write_text(to_toml(config))
        split = Split(train=tuple(TASKS[:6]), heldout=())
        choice = EnvironmentChoice("fake", "")
        prepared = PreparedRun(config, Path("/tasks"), split, (), choice, self.directory)
        self.run = ControlledRun(
            Run(prepared, lambda *_: UnhurriedPolicy(), self._pool), self.directory, owner
        )
        self._task: asyncio.Task[RunEnd] | None = None

    def _pool(self, _: object, runner: TrialRunner[Any]) -> FakePool:
        return FakePool(runner, endless)

    async def begin(self) -> None:
        """Until its trials are at work."""
        self._task = asyncio.create_task(self.run.run())
        at_once = min(self._config.n_parallel_envs, self._config.group_size)
        await until(lambda: len(self.at_work()) == at_once)

    def at_work(self) -> set[str]:
        """The trials that have taken a turn."""
        return {event.trial for event in self.events(TurnSampled)}

    async def end(self) -> RunEnd:
        assert self._task is not None
        async with asyncio.timeout(20):
            return await self._task

    @property
    def going(self) -> bool:
        return self._task is not None and not self._task.done()

    async def stop(self) -> None:
        if self._task is not None and self.going:
            self._task.cancel()
            await self.end()

    def events[E: AnyEvent](self, kind: type[E]) -> list[E]:
        return events_of(self.directory, kind)


class Viewer:
    """A client that stays connected, with the answers it got."""

    def __init__(self, client: ControlClient, welcome: Welcome) -> None:
        self.client = client
        self.welcome = welcome
        self.told: list[Answer] = []
        self.gone = False
        self._task = asyncio.create_task(self._listen())

    @classmethod
    async def join(cls, directory: RunDirectory, name: str) -> Viewer:
        return cls(*await ControlClient.open(directory, name, viewer=True))

    async def hears(self, answer: Answer) -> None:
        await until(lambda: answer in self.told)
        self.told.clear()

    def leave(self) -> None:
        self._task.cancel()
        self.client.close()

    async def _listen(self) -> None:
        while (answer := await self.client.receive()) is not None:
            self.told.append(answer)
        self.gone = True
