"""The first event of a run, the settings of its trials, and the warnings that it begins with."""

from __future__ import annotations

import importlib.metadata
import os
import socket

from tbtui.config import to_json
from tbtui.config.problems import require_no_errors
from tbtui.engines.events_of import task_records
from tbtui.engines.grpo.config_checks import grpo_problems, unsupported
from tbtui.engines.grpo.outcome_policy import outcome_policy
from tbtui.engines.grpo.rollouts import TrialSettings
from tbtui.engines.prepare import PreparedRun
from tbtui.engines.task_fitness import offer
from tbtui.journal.events import RunStarted
from tbtui.policies.base import Policy
from tbtui.rollout.messages import EnvironmentSpec

_COLLAPSING_RATE = 4e-4


def started_event(prepared: PreparedRun, policy: Policy) -> RunStarted:
    return RunStarted(
        run=prepared.directory.name,
        pid=os.getpid(),
        host=socket.gethostname(),
        tbtui_version=importlib.metadata.version("tbtui"),
        harbor_version=importlib.metadata.version("harbor"),
        policy=policy.info.name,
        model_name=policy.info.model_name,
        parameters=policy.info.parameters,
        context_limit=policy.info.context_limit,
        environment=prepared.environment.name,
        environment_reason=prepared.environment.reason,
        tasks_dir=str(prepared.tasks_dir),
        tasks=task_records(prepared.split),
        settings=to_json(prepared.config),
    )


def trial_settings(prepared: PreparedRun, policy: Policy) -> TrialSettings:
    config, environment = prepared.config, prepared.environment
    return TrialSettings(
        config,
        outcome_policy(config.on_outcome),
        trials_dir=prepared.directory.trials,
        environment=EnvironmentSpec(
            environment.type,
            environment.import_path,
            dict(environment.kwargs),
            config.force_build,
        ),
        model_name=policy.info.model_name,
        context_limit=policy.info.context_limit,
        check_zeros=prepared.check_zeros,
        kill_before_verifying=prepared.kill_before_verifying,
    )


def warnings_of(prepared: PreparedRun, policy: Policy) -> list[str]:
    """What a person should know before the run goes on.

    Raises:
        ConfigError: a setting that can't be honoured.
    """
    config = prepared.config
    warnings = [f"{defect.path}: {defect.message}; {defect.remedy}" for defect in prepared.defects]
    if summary := prepared.fitness.summary():
        done = "are tried all the same" if config.unfit_tasks == "try" else "are left out"
        warnings.append(f"{summary}; they {done}{offer(prepared.fitness)}")
    if refused := prepared.split.refused:
        warnings.append(
            f"tasks: {len(refused)} of those that were chosen are held out and not trained on:"
            f" {', '.join(refused)}"
        )
    warnings += outcome_policy(config.on_outcome).warnings()
    warnings += require_no_errors(grpo_problems(config))
    if config.oversample and config.oversample_keep == "first_finished":
        warnings.append(
            "oversample_keep=first_finished: the first trials to finish fill a group, so short"
            " ones are trained on more often"
        )
    # Measured: two of five runs at this rate fell to a fraction of what they had reached.
    if config.policy == "local" and config.learning_rate >= _COLLAPSING_RATE:
        warnings.append(
            f"learning_rate={config.learning_rate:g}: from {_COLLAPSING_RATE:g} on the embedded"
            " policy has been seen to collapse; 2e-4 learns well"
        )
    warnings += require_no_errors(unsupported(config, policy.info))
    return warnings + list(policy.info.notes)
