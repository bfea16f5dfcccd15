from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tbtui.catalog.split import Split
from tbtui.catalog.tasks import TaskInfo
from tbtui.config import RunConfig
from tbtui.engines.grpo.checkpoint_state import fixed_settings
from tbtui.engines.grpo.checkpoints import CheckpointKeeper
from tbtui.engines.grpo.engine import AlarmCheck, GrpoEngine
from tbtui.engines.grpo.failures import UnusableTasks
from tbtui.engines.grpo.outcome_policy import outcome_policy
from tbtui.engines.grpo.recorded import StartingPoint
from tbtui.engines.grpo.trials import TrialRunner, TrialSettings
from tbtui.journal.events import AnyEvent
from tbtui.journal.rundir import RunDirectory
from tbtui.journal.writer import JournalWriter
from tbtui.rollout.messages import EnvironmentSpec, TrialSpec
from tests.events import events_of

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
        set_aside = self.start.set_aside if self.start else {}
        self.runner = TrialRunner(
            shared,
            self.policy,
            self.journal,
            lambda runner: FakePool(runner, self.script),
            UnusableTasks(self.journal, config.max_unusable, set_aside),
        )
        split = Split(
            train=tuple(TASKS[:6]),
            heldout=tuple(TASKS[6:][: self.heldout]),
            honeypots=self.honeypots,
        )
        keeper = CheckpointKeeper(
            self.directory,
            self.journal,
            self.policy,
            config.keep_checkpoints,
            fixed_settings(config),
        )
        return GrpoEngine(
            config,
            split,
            self.policy,
            self.runner,
            self.journal,
            keeper,
            self.watch,
            self.start,
        )

    @property
    def pool(self) -> FakePool:
        return self.runner.pool

    def events[E: AnyEvent](self, kind: type[E]) -> list[E]:
        return events_of(self.directory, kind)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    directory = RunDirectory.create(tmp_path / "run")
    with JournalWriter(directory) as journal:
        yield Bench(directory, journal, RotePolicy())


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 - what is waited for is in another's hands
            await asyncio.sleep(0.005)
