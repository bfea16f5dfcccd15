"""Bombs in some trials change no outcome of the trials beside them, and earn no fresh attempt.

As root with control groups, as root without any, and as an ordinary user. The same with sixteen
honest trials at once, and timed: `tests/benchmarks/neighbours.py`.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from tbtui.rollout.disk import MAX_TRIAL_FILES
from tests.attacks.bombs import Ended, Neighbourhood
from tests.rollout.environments.ordinary_user import run_as_ordinary_user

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.starves]

MODES = ["root", "root without control groups", "ordinary user"]
# The fork bomb by itself: without groups it keeps the CPU from other bombs, too, which is no fault
# of theirs, and said so.
BATCHES = [("fork",), ("memory", "inode"), ("disk", "cpu", "log")]
HONEST = 4


@pytest.fixture(scope="module", params=MODES)
def results(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, list[Ended]]:
    """How the honest trials ended ("honest"), and each bomb's."""
    mode = str(request.param)
    folder = tmp_path_factory.mktemp("neighbours")
    if os.geteuid() != 0 and mode != MODES[-1]:
        pytest.skip("not root")

    async def body(work: Path) -> dict[str, list[Ended]]:
        found: dict[str, list[Ended]] = {"honest": []}
        async with Neighbourhood(work, grouped=mode == "root") as neighbours:
            for bombs in BATCHES:
                honest, ended = await neighbours.run(HONEST, bombs, bomb_sec=12)
                found["honest"] += honest
                found.update({name: [bomb] for name, bomb in zip(bombs, ended, strict=True)})
        return found

    if os.geteuid() == 0 and mode == MODES[-1]:
        return run_as_ordinary_user(lambda: body(Path.home()), folder / "home")
    return asyncio.run(body(folder))


def test_honest_trials_are_solved(results: dict[str, list[Ended]]) -> None:
    ended = [(trial.decision.outcome, trial.decision.reward) for trial in results["honest"]]
    reasons = [trial.decision.reason for trial in results["honest"]]
    assert ended == [("solved", 1.0)] * HONEST * len(BATCHES), reasons


@pytest.mark.parametrize("name", [name for bombs in BATCHES for name in bombs])
def test_a_bomb_is_a_failure(results: dict[str, list[Ended]], name: str) -> None:
    (bomb,) = results[name]
    assert not bomb.decision.outcome.infrastructure, bomb.decision
    assert bomb.decision.reward == 0.0, bomb.decision


def test_files_without_number_stay_in_the_box(results: dict[str, list[Ended]]) -> None:
    (bomb,) = results["inode"]
    assert 100 < bomb.files <= MAX_TRIAL_FILES
    assert "files and directories left out" in bomb.log
