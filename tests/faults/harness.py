"""What a run puts together around its trials: the real runner and the real worker pool."""

from __future__ import annotations

from pathlib import Path

from tbtui.catalog.load import load_task
from tbtui.catalog.split import Split
from tbtui.config import RunConfig
from tbtui.engines.grpo.context import EngineContext
from tbtui.engines.grpo.outcome_policy import outcome_policy
from tbtui.engines.grpo.plan import plan_groups
from tbtui.engines.grpo.rollouts import TrialPlan
from tbtui.engines.grpo.trials import TrialRunner, TrialSettings
from tbtui.journal.events import Outcome
from tbtui.journal.rundir import RunDirectory
from tbtui.journal.writer import JournalWriter
from tbtui.outcomes import UNSCORED
from tbtui.policies.base import Policy
from tbtui.rollout.messages import EnvironmentSpec
from tbtui.rollout.pool import SILENCE_SEC, WorkerPool
from tbtui.sampling import MODEL_ITSELF

SANDBOX = EnvironmentSpec(None, "tbtui.rollout.environments.sandbox:SandboxEnvironment")


def trial_runner(
    directory: RunDirectory,
    policy: Policy,
    journal: JournalWriter,
    *,
    n_parallel: int,
    n_workers: int = 2,
    max_turns: int = 6,
    max_tokens: int = 512,
    max_retries: int = 0,
    environment: EnvironmentSpec = SANDBOX,
    silence_sec: float = SILENCE_SEC,
    sample_timeout_sec: float = 600.0,
    worker_module: str = "tbtui.rollout.worker",
) -> TrialRunner[WorkerPool]:
    """A runner whose pool isn't started yet. It never halts, and trains on whatever the policy
    did, so that every reward there is comes to light."""
    scored = (outcome for outcome in Outcome if outcome not in UNSCORED)
    config = RunConfig(
        max_turns=max_turns,
        max_tokens=max_tokens,
        max_retries=max_retries,
        n_parallel_envs=n_parallel,
        sample_timeout_sec=sample_timeout_sec,
        on_outcome={outcome.value: "train" for outcome in scored},
        retry_wait_sec=0.0,
        halt_after=0,
        max_unusable=1.0,
    )
    settings = TrialSettings(
        config,
        outcome_policy(config.on_outcome),
        trials_dir=directory.trials,
        environment=environment,
        model_name=policy.info.model_name,
        context_limit=policy.info.context_limit,
    )
    return TrialRunner(
        EngineContext(config, Split((), ()), policy, journal),
        settings,
        lambda runner: WorkerPool(
            n_workers,
            directory.trials.parent / "logs",
            runner.on_message,
            runner.on_worker_lost,
            silence_sec=silence_sec,
            worker_module=worker_module,
        ),
    )


def plan_trial(task: Path, seed: int) -> TrialPlan:
    """One trial of a task, as a group of its own."""
    info, defects = load_task(task, "faults")
    if info is None:
        raise ValueError(f"a broken task: {defects}")
    (group,) = plan_groups(
        [info], step=0, size=1, purpose="train", sampling=MODEL_ITSELF, seed=seed
    )
    return group.trials[0]
