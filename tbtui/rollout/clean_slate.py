"""Empties what the agent could have prepared for the verifier, in a sandbox that both use."""

from __future__ import annotations

from pathlib import PurePath
from typing import Protocol, runtime_checkable

from harbor.environments.base import BaseEnvironment
from harbor.models.task.config import TaskOS, VerifierEnvironmentMode
from harbor.models.task.verifier_mode import (
    resolve_step_verifier_mode,
    resolve_task_verifier_mode,
)
from harbor.trial.trial import Trial
from harbor.utils.scripts import quote_shell_arg

from tbtui.rollout.environments.errors import SandboxError, SandboxLostError
from tbtui.rollout.environments.sandbox import SandboxEnvironment
from tbtui.rollout.verifier import VerifierDisturbedError


@runtime_checkable
class EndsProcesses(Protocol):
    """An environment that can kill all that runs in it, by means that are not in it."""

    async def end_processes(self) -> None:
        """Kill every process but the environment's own first one.

        Raises:
            SandboxError: one of them does not go.
        """
        ...


async def clean_for_verifier(trial: Trial, *, end_processes: bool) -> None:
    """Empty the verifier's directory and that of the tests, if the agent's sandbox is verified.

    With `end_processes` everything that the agent has left running is killed first, unless the
    task's verifier needs it (`[metadata] verifier_needs_processes = true` in task.toml), or a
    later step of the task.

    A verdict planted in advance, a link to a file of the host that happens to hold a 1, a
    `conftest.py` beside the tests. Harbor uploads the tests after this. A verifier with a sandbox
    of its own finds none of it, and the agent's may be gone by then.

    Raises:
        VerifierDisturbedError: something is left in there.
        SandboxError: the sandbox does not answer.
    """
    if not _shares_sandbox(trial):
        return
    paths, environment = trial.agent_env_paths, trial.agent_environment
    if end_processes and isinstance(environment, EndsProcesses) and _may_end(trial):
        try:
            await environment.end_processes()
        except SandboxLostError:
            raise
        except SandboxError as error:
            raise VerifierDisturbedError(str(error)) from error
    if isinstance(environment, SandboxEnvironment):
        await environment.make_room()
    await _empty(trial.agent_environment, paths.verifier_dir, chmod=True)
    await _empty(trial.agent_environment, paths.tests_dir, chmod=False)


def _may_end(trial: Trial) -> bool:
    steps = trial.task.config.steps or ()
    if len(trial.result.step_results or ()) < len(steps):
        return False
    return trial.task.config.metadata.get("verifier_needs_processes") is not True


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
    try:
        emptied = await environment.empty_dirs([directory], chmod=chmod)
    except SandboxLostError:
        raise
    except (OSError, SandboxError) as error:
        raise VerifierDisturbedError(f"{directory} can't be emptied: {error}") from error
    if emptied is None:  # by the sandbox's own means, which nothing in it takes part in
        return
    if emptied.return_code != 0:
        said = emptied.stderr or emptied.stdout
        raise VerifierDisturbedError(f"{directory} can't be emptied: {said}")
    if environment.os is TaskOS.WINDOWS:
        return
    # Harbor's command runs the sandbox's `find` and `rm`, which an agent that is root there can
    # replace. What is built into the shell is harder to.
    looked = await environment.exec(_looking(directory, environment.os), user="root")
    if looked.return_code != 0:
        raise VerifierDisturbedError(f"{directory} is not empty: {looked.stdout or looked.stderr}")


def _looking(directory: PurePath, os: TaskOS) -> str:
    """Fails if anything is in there. Only what POSIX builds into the shell."""
    place = quote_shell_arg(directory, os)
    return (
        f"cd -P {place} || exit 2; for entry in * .[!.]* ..?*; do"
        ' if [ -e "$entry" ] || [ -L "$entry" ]; then echo "$entry"; exit 1; fi; done'
    )
