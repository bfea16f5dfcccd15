"""Every workshop task through real Harbor trials in the sandbox: what must score 1, and what 0.

The oracle solution scores 1; doing nothing and each committed shortcut (`shortcuts/<task>/`) 0.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from tbtui.catalog.tasks import discover
from tbtui.resources import tasks_dir
from tbtui.rollout.environments.base import EnvironmentUnavailable
from tbtui.rollout.environments.choose import EnvironmentChoice, choose_environment
from tests.rollout.harbor_trial import run_trial

SHORTCUTS = Path(__file__).parent / "shortcuts"
WORKSHOP = discover(tasks_dir() / "workshop")
TRIALS_AT_ONCE = 3
ORACLE, NOTHING = "oracle", "nop"


@dataclass(frozen=True)
class Attempt:
    """One trial: a task, and what acts in place of an agent."""

    task: str
    actor: str  # "oracle", "nop", or the name of a shortcut's script

    def __str__(self) -> str:
        return f"{self.task}/{self.actor}"


@dataclass(frozen=True)
class Verdict:
    reward: float | None
    evidence: str


def shortcuts(task: str) -> list[str]:
    return sorted(script.name for script in (SHORTCUTS / task).glob("*.sh"))


ATTEMPTS = [
    Attempt(task.name, actor)
    for task in WORKSHOP.tasks
    for actor in (ORACLE, NOTHING, *shortcuts(task.name))
]


def task_directory(attempt: Attempt, work: Path) -> Path:
    """The task itself, or for a shortcut a copy whose solution is the shortcut."""
    original = WORKSHOP.task(attempt.task).path
    if attempt.actor in {ORACLE, NOTHING}:
        return original
    copy = work / "tasks" / str(attempt).replace("/", "--") / attempt.task
    shutil.copytree(original, copy)
    shutil.rmtree(copy / "solution")  # a shortcut must not find the real one
    (copy / "solution").mkdir()
    shutil.copy(SHORTCUTS / attempt.task / attempt.actor, copy / "solution" / "solve.sh")
    return copy


async def run_attempt(attempt: Attempt, work: Path, environment: EnvironmentChoice) -> Verdict:
    assert environment.import_path is not None
    place = work / str(attempt).replace("/", "--")
    agent = NOTHING if attempt.actor == NOTHING else ORACLE
    result = await run_trial(
        task_directory(attempt, work),
        agent,
        place,
        import_path=environment.import_path,
        **environment.kwargs,
    )
    output = place / f"trial-{agent}" / "verifier" / "test-stdout.txt"
    evidence = output.read_text() if output.is_file() else ""
    if result.exception_info is not None:
        evidence += result.exception_info.exception_message
    rewards = result.verifier_result.rewards if result.verifier_result else None
    return Verdict(rewards["reward"] if rewards else None, evidence[-2000:])


async def run_trials(attempts: list[Attempt], work: Path) -> dict[Attempt, Verdict]:
    environment = choose_environment("sandbox")
    gate = asyncio.Semaphore(TRIALS_AT_ONCE)

    async def run(attempt: Attempt) -> Verdict:
        async with gate:
            return await run_attempt(attempt, work, environment)

    return dict(zip(attempts, await asyncio.gather(*map(run, attempts)), strict=True))


@pytest.fixture(scope="module")
def verdicts(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[Attempt, Verdict]:
    """All selected attempts, run side by side: one at a time would take three times as long."""
    names = {item.name for item in request.session.items}
    selected = [attempt for attempt in ATTEMPTS if f"test_reward[{attempt}]" in names]
    work = tmp_path_factory.mktemp("workshop")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(work / "state"))
        logging.getLogger("harbor").setLevel(logging.CRITICAL)
        try:
            return asyncio.run(run_trials(selected, work))
        except EnvironmentUnavailable as reason:
            pytest.skip(str(reason))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Task.checksum:DeprecationWarning")  # Harbor's own use of it
@pytest.mark.parametrize("attempt", ATTEMPTS, ids=str)
def test_reward(attempt: Attempt, verdicts: dict[Attempt, Verdict]) -> None:
    verdict = verdicts[attempt]
    wanted = 1.0 if attempt.actor == ORACLE else 0.0
    assert verdict.reward == wanted, verdict.evidence


def test_every_task_is_usable() -> None:
    assert WORKSHOP.defects == ()
    assert len(WORKSHOP.tasks) >= 12
    assert all(task.has_solution for task in WORKSHOP.tasks)
    assert {task.difficulty for task in WORKSHOP.tasks} == {"easy", "medium", "hard"}
    assert not any(task.allows_network for task in WORKSHOP.tasks)


def test_every_task_has_two_shortcuts_that_say_what_they_cheat() -> None:
    assert sorted(path.name for path in SHORTCUTS.iterdir()) == [t.name for t in WORKSHOP.tasks]
    for task in WORKSHOP.tasks:
        assert len(shortcuts(task.name)) >= 2, task.name
        for script in shortcuts(task.name):
            path = SHORTCUTS / task.name / script
            assert path.read_text().splitlines()[1].startswith("# Cheat: "), path
            assert os.access(path, os.X_OK), path


def test_the_workshop_is_small() -> None:
    sizes = {
        task.name: sum(file.stat().st_size for file in task.path.rglob("*") if file.is_file())
        for task in WORKSHOP.tasks
    }
    assert max(sizes.values()) < 200_000
    assert sum(sizes.values()) < 1_500_000
