"""Trials of Harbor's own agents, through Harbor's own Trial."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from harbor.models.trial.config import AgentConfig, EnvironmentConfig, TaskConfig, TrialConfig
from harbor.models.trial.result import TrialResult
from harbor.trial.trial import Trial

from tbtui.rollout.environments.choose import SANDBOX_IMPORT_PATH


async def run_trial(
    task: Path, agent: str, trials: Path, *, import_path: str = SANDBOX_IMPORT_PATH, **kwargs: Any
) -> TrialResult:
    """A trial of `oracle` or `nop`; `kwargs` are the environment's."""
    trial = await Trial.create(
        TrialConfig(
            task=TaskConfig(path=task),
            trials_dir=trials,
            trial_name=f"trial-{agent}",
            agent=AgentConfig(name=agent),
            environment=EnvironmentConfig(import_path=import_path, kwargs=kwargs),
        )
    )
    return await trial.run()


def reward_of(result: TrialResult) -> float | None:
    """The verdict of a trial in which nothing went wrong."""
    assert result.exception_info is None, result.exception_info
    return result.verifier_result and result.verifier_result.rewards["reward"]
