"""Empties what the agent could have prepared for the verifier, in a sandbox that both use."""

from __future__ import annotations

from pathlib import PurePath

from harbor.environments.base import BaseEnvironment
from harbor.models.task.config import TaskOS, VerifierEnvironmentMode
from harbor.models.task.verifier_mode import (
    resolve_step_verifier_mode,
    resolve_task_verifier_mode,
)
from harbor.trial.trial import Trial
from harbor.utils.scripts import quote_shell_arg

from tbtui.rollout.environments.errors import SandboxError


async def clean_for_verifier(trial: Trial) -> None:
    """Empty the verifier's directory and that of the tests, if the agent's sandbox is verified.

    A verdict planted in advance, a link to a file of the host that happens to hold a 1, a
    `conftest.py` beside the tests. Harbor uploads the tests after this. A verifier with a sandbox
    of its own finds none of it, and the agent's may be gone by then.

    Raises:
        SandboxError: something is left in there, or the sandbox does not answer.
    """
    if not _shares_sandbox(trial):
        return
    paths = trial.agent_env_paths
    await _empty(trial.agent_environment, paths.verifier_dir, chmod=True)
    await _empty(trial.agent_environment, paths.tests_dir, chmod=False)


def _shares_sandbox(trial: Trial) -> bool:
    """Does the verifier that comes next run in the agent's sandbox?"""
    config = trial.task.config
    if config.steps:
        step = config.steps[len(trial.result.step_results or ()) - 1]
        mode = resolve_step_verifier_mode(config, step)
    else:
        mode = resolve_task_verifier_mode(config)
    return mode is VerifierEnvironmentMode.SHARED


async def _empty(environment: BaseEnvironment, directory: PurePath, *, chmod: bool) -> None:
    emptied = await environment.empty_dirs([directory], chmod=chmod)
    if emptied is None:  # by the sandbox's own means, which nothing in it takes part in
        return
    if emptied.return_code != 0:
        raise SandboxError(f"{directory} can't be emptied: {emptied.stderr or emptied.stdout}")
    if environment.os is TaskOS.WINDOWS:
        return
    # Harbor's command runs the sandbox's `find` and `rm`, which an agent that is root there can
    # replace. What is built into the shell is harder to.
    looked = await environment.exec(_looking(directory, environment.os), user="root")
    if looked.return_code != 0:
        raise SandboxError(f"{directory} is not empty: {looked.stdout or looked.stderr}")


def _looking(directory: PurePath, os: TaskOS) -> str:
    """Fails if anything is in there. Only what POSIX builds into the shell."""
    place = quote_shell_arg(directory, os)
    return (
        f"cd -P {place} || exit 2; for entry in * .[!.]* ..?*; do"
        ' if [ -e "$entry" ] || [ -L "$entry" ]; then echo "$entry"; exit 1; fi; done'
    )
