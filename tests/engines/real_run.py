"""A run with real trials in the sandbox, of a model by rote: one group, which a test can steer."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from tbtui.catalog.split import Split
from tbtui.catalog.tasks import discover
from tbtui.config import RunConfig, to_toml
from tbtui.engines.control.run import ControlledRun
from tbtui.engines.prepare import PreparedRun
from tbtui.engines.run import Run
from tbtui.journal.commands import Command, RunEnd
from tbtui.journal.events import AnyEvent, CommandDone, TrialQueued
from tbtui.journal.rundir import RunDirectory
from tbtui.policies.base import Sample, SampleRequest
from tbtui.rollout.environments.choose import EnvironmentChoice
from tests.events import events_of
from tests.rollout.scripted import DONE, act
from tests.tasks import make_task
from tests.waiting import until

from .fakes import RotePolicy

SANDBOX = EnvironmentChoice(
    "sandbox", "asked for", import_path="tbtui.rollout.environments.sandbox:SandboxEnvironment"
)


SOLVED = "[ -e /app/solved ]; echo $((1 - $?)) > $R"
"""The test of its task."""


class Idler(RotePolicy):
    """Looks around in its first turn and says then that it is done. Turns wait for `go`."""

    def __init__(self) -> None:
        super().__init__(self._answer)
        self.go = asyncio.Event()
        self.prompts: list[str] = []

    async def sample(self, request: SampleRequest) -> Sample:
        self.prompts.append("".join(map(chr, request.prompt_ids)))
        await self.go.wait()
        return await super().sample(request)

    def _answer(self, request: SampleRequest) -> str:
        begun = "pwd" in "".join(map(chr, request.prompt_ids))
        return DONE if begun else act("pwd\n")


class RealRun:
    """One step of one group, with a worker."""

    def __init__(
        self,
        where: Path,
        owner: str = "",
        environment: EnvironmentChoice = SANDBOX,
        **settings: Any,
    ) -> None:
        make_task(where.parent / "tasks" / "solve", "Create the file /app/solved.", SOLVED)
        self.directory = RunDirectory.create(where)
        defaults: dict[str, Any] = {
            "max_steps": 1,
            "batch_size": 1,
            "group_size": 3,
            "n_workers": 1,
        }
        config = RunConfig(**{**defaults, **settings})
        self.directory.config.write_text(to_toml(config))
        tasks = discover(where.parent / "tasks").require_tasks()
        split = Split(train=tuple(tasks), heldout=())
        prepared = PreparedRun(
            config, where.parent / "tasks", split, (), environment, self.directory
        )
        self.policy = Idler()
        self._run = Run(prepared, lambda *_: self.policy)
        self.controlled = ControlledRun(self._run, self.directory, owner)
        self._task: asyncio.Task[RunEnd] | None = None

    async def begin(self) -> None:
        """Until all its trials have asked for their first turn."""
        self._task = asyncio.create_task(self.controlled.run())
        await until(lambda: len(self.policy.prompts) == 3 or self._over())

    def _over(self) -> bool:
        assert self._task is not None
        return self._task.done()

    def submit(self, command: Command) -> None:
        """As a script would that has the controls."""
        self._run.submit(command)

    async def asked(self, command: Command) -> CommandDone:
        self.submit(command)
        return await self.done(command)

    async def done(self, command: Command) -> CommandDone:
        await until(lambda: self._done(command))
        return self._done(command)[0]

    def _done(self, command: Command) -> list[CommandDone]:
        return [done for done in self.events(CommandDone) if done.command == command.id]

    @property
    def first(self) -> str:
        """A trial."""
        return self.events(TrialQueued)[0].trial

    async def end(self) -> RunEnd:
        assert self._task is not None
        async with asyncio.timeout(40):
            return await self._task

    async def stop(self) -> None:
        if self._task is not None and not self._task.done():
            self._task.cancel()
            await self.end()

    def events[E: AnyEvent](self, kind: type[E]) -> list[E]:
        return events_of(self.directory, kind)
