from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tbtui.catalog.split import Split
from tbtui.catalog.tasks import TaskInfo
from tbtui.config import RunConfig
from tbtui.engines.command_queue import CommandQueue
from tbtui.engines.grpo.checkpoint_state import fixed_settings
from tbtui.engines.grpo.checkpoints import CheckpointKeeper
from tbtui.engines.grpo.context import EngineContext
from tbtui.engines.grpo.engine import AlarmCheck, GrpoEngine
from tbtui.engines.grpo.outcome_policy import outcome_policy
from tbtui.engines.grpo.recorded import StartingPoint
from tbtui.engines.grpo.trials import TrialRunner, TrialSettings
from tbtui.journal.events import AnyEvent, TrialFinished
from tbtui.journal.rundir import RunDirectory
from tbtui.journal.writer import JournalWriter
from tbtui.rollout.messages import EnvironmentSpec, TrialSpec
from tests.events import events_of
from tests.waiting import until

from .fakes import FakePool, RotePolicy


def task(name: str, kind: str | None = None) -> TaskInfo:
    return TaskInfo(
        name=name,
        path=Path("/tasks") / name,
        dataset="demo",
        instruction=name,
        difficulty="easy",
        category=None,
        kind=kind or name.partition("-")[0],
        tags=(),
        split=None,
        agent_timeout_sec=60,
        verifier_timeout_sec=20,
        allows_network=False,
        has_solution=True,
        steps=(),
    )


TASKS = [task(f"copy-{i}") for i in range(4)] + [task(f"move-{i}") for i in range(4)]


@dataclass
class Bench:
    """An engine with a stand-in pool and policy, and its journal."""

    directory: RunDirectory
    journal: JournalWriter
    policy: RotePolicy
    script: Callable[[FakePool, TrialSpec], object] | None = None
    start: StartingPoint | None = None
    watch: AlarmCheck = field(default=lambda _: ())
    honeypots: tuple[TaskInfo, ...] = ()
    heldout: int = 2
    """Tasks to evaluate on, at most 2."""

    def engine(self, **settings: Any) -> GrpoEngine:
        defaults: dict[str, Any] = {
            "max_steps": 1,
            "batch_size": 2,
            "group_size": 2,
            "retry_wait_sec": 0,
        }
        config = RunConfig(**{**defaults, **settings})
        shared = TrialSettings(
            config.replace(max_turns=3),
            outcome_policy(config.on_outcome),
            trials_dir=self.directory.trials,
            environment=EnvironmentSpec("sandbox", None),
            model_name="rote",
            context_limit=10_000,
        )
        split = Split(
            train=tuple(TASKS[:6]),
            heldout=tuple(TASKS[6:][: self.heldout]),
            honeypots=self.honeypots,
        )
        run = EngineContext(config, split, self.policy, self.journal, self.start or StartingPoint())
        self.runner = TrialRunner(run, shared, lambda runner: FakePool(runner, self.script))
        keeper = CheckpointKeeper(
            self.journal,
            self.policy,
            config.keep_checkpoints,
            fixed_settings(config),
        )
        return GrpoEngine(run, self.runner, keeper, self.watch, CommandQueue())

    @contextlib.asynccontextmanager
    async def running(self, **settings: Any) -> AsyncIterator[GrpoEngine]:
        """An engine at work; its run is over after the block."""
        engine = self.engine(**settings)
        running = asyncio.create_task(engine.run())
        try:
            yield engine
            await running
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    @property
    def pool(self) -> FakePool:
        return self.runner.pool

    async def at_work(self, trial: str) -> TrialSpec:
        """A trial, once it has been started."""
        await until(lambda: any(spec.trial == trial for spec in self.pool.started))
        return next(spec for spec in self.pool.started if spec.trial == trial)

    async def ended(self, trial: str) -> TrialFinished:
        """How a trial has ended, once it has."""
        await until(lambda: any(e.trial == trial for e in self.events(TrialFinished)))
        return next(e for e in self.events(TrialFinished) if e.trial == trial)

    def events[E: AnyEvent](self, kind: type[E]) -> list[E]:
        return events_of(self.directory, kind)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    directory = RunDirectory.create(tmp_path / "run")
    with JournalWriter(directory) as journal:
        yield Bench(directory, journal, RotePolicy())
