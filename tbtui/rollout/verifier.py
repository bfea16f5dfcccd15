"""Harbor's verifier, whose verdict counts only if the uploaded test script ran to its own end; and
what is emptied before it, in a sandbox that the agent has used.

Harbor reads the reward file, whichever process wrote it and however the test script ended.
In a sandbox that the agent has worked in too, a process that the agent has left can write a 1 and
kill the script, or put another script in its place. Here such a verdict is none, and the exception
says what was seen; `verdict_check` finds out whose doing it was.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import signal
from collections.abc import AsyncIterator, Collection, Mapping
from pathlib import Path, PurePath
from typing import Any, override

from harbor.environments.base import BaseEnvironment
from harbor.models.task.config import TaskOS, VerifierEnvironmentMode
from harbor.models.task.task import Task
from harbor.models.task.verifier_mode import (
    resolve_step_verifier_mode,
    resolve_task_verifier_mode,
)
from harbor.models.trial.paths import EnvironmentPaths
from harbor.models.trial.result import ExceptionInfo, TrialResult
from harbor.models.verifier.result import VerifierResult
from harbor.trial.trial import Trial
from harbor.utils.scripts import quote_shell_arg
from harbor.verifier.verifier import (
    AddTestsDirError,
    DownloadVerifierDirError,
    RewardFileEmptyError,
    RewardFileNotFoundError,
    Verifier,
    VerifierOutputParseError,
)
from pydantic import ValidationError

from tbtui.rollout.environments.base import (
    EndsProcesses,
    KnowsDamage,
    KnowsItsRoom,
    SandboxError,
    SandboxLostError,
    ScriptEnd,
    WatchesPrograms,
    WatchesScripts,
)
from tbtui.rollout.environments.sandbox import SandboxEnvironment
from tbtui.rollout.environments.transfer import DownloadRefusedError
from tbtui.rollout.messages import RewardChoice
from tbtui.verifier_fault import VerifierFault, find_fault
from tbtui.vocabulary import MAX_REWARD, is_reward

IMPORT_PATH = "tbtui.rollout.verifier:WatchedVerifier"
_OWN_MODULES = {"PYTHONSAFEPATH": "1", "PYTHONPATH": str(EnvironmentPaths().tests_dir)}
"""For the Python of a verifier with an environment of its own, where the task does not say
otherwise. Its working directory may hold the agent's artifacts: `/app/json.py` is no module of
Python's. The first also takes away the directory of the script that is run; the second gives back
that of the tests."""
NO_VERDICT = (RewardFileNotFoundError, RewardFileEmptyError, VerifierOutputParseError)
_SHOWN_KEYS = 8
_LONGEST_REWARD = 64 << 10
"""Bytes of a reward file. As objects they are many times as much, in a process of many trials."""


class UnknownRewardError(Exception):
    """The verifier wrote a reward file, and there is no reward in it."""


class RewardKeysError(Exception):
    """The verifier gives rewards, and none is the one that counts: it is a matter of settings."""


_SILENT = frozenset(error.__name__ for error in (UnknownRewardError, RewardKeysError, *NO_VERDICT))


class VerifierDisturbedError(Exception):
    """The test script was killed, could not start, isn't what was uploaded, or has no room."""


class VerifierOutOfMemoryError(Exception):
    """The test script was killed while the environment or the machine was out of memory."""


def verifier_mode(task: Task, step: str | None) -> VerifierEnvironmentMode:
    """Whether the verifier of a task, or of one of its steps, has an environment of its own."""
    for config in task.config.steps or ():
        if config.name == step:
            return resolve_step_verifier_mode(task.config, config)
    return resolve_task_verifier_mode(task.config)


class WatchedVerifier(Verifier):
    """Built by Harbor from its import path."""

    def __init__(
        self,
        *,
        task: Task,
        verifier_env: dict[str, str] | None = None,
        step_name: str | None = None,
        **kwargs: Any,
    ) -> None:
        if verifier_mode(task, step_name) is VerifierEnvironmentMode.SEPARATE:
            given = {**task.config.verifier.env, **(verifier_env or {})}
            verifier_env = {**_OWN_MODULES, **given}
        super().__init__(task=task, verifier_env=verifier_env, step_name=step_name, **kwargs)
        self._directories = EnvironmentPaths.for_os(self.environment.os)

    @override
    async def verify(self) -> VerifierResult:
        """Run the test script and read its verdict.

        Raises:
            VerifierDisturbedError: what it says is not the verdict of the task's own tests.
            VerifierOutOfMemoryError: it had no room to come to one.
        """
        result: VerifierResult | None = None
        failure: Exception | None = None
        try:
            async with losses_examined(self.environment):
                result = await super().verify()
            for value in (result.rewards or {}).values():
                float(value)  # JSON has integers beyond any float
        except AddTestsDirError as error:
            sources, _, _ = self._resolve_tests()
            room = self.environment
            if isinstance(room, KnowsItsRoom) and not await room.has_room(sources):
                raise VerifierDisturbedError("the sandbox has no room for the tests") from error
            raise
        except (DownloadVerifierDirError, *NO_VERDICT) as error:
            failure = error
        except (ValidationError, RecursionError, OverflowError):
            result = None
            failure = VerifierOutputParseError("reward.json is no object of numbers")
        except (IsADirectoryError, PermissionError) as error:
            failure = VerifierOutputParseError(f"the reward file can't be read: {error.strerror}")
        if isinstance(self.environment, WatchesScripts):
            await self._require_own_end(self.environment, silent=isinstance(failure, NO_VERDICT))
        if isinstance(failure, DownloadVerifierDirError):
            if isinstance(failure.__cause__, DownloadRefusedError):
                raise VerifierDisturbedError(f"its verdict: {failure.__cause__}") from failure
            if not await self._has_directory():
                raise VerifierDisturbedError("the directory of its verdict is gone") from failure
        if result is None:
            assert failure is not None
            raise failure
        return result

    @override
    def _parse_reward_text(self) -> dict[str, float | int]:
        _require_short(self.trial_paths.reward_text_path)
        return super()._parse_reward_text()

    @override
    def _parse_reward_json(self) -> dict[str, float | int]:
        _require_short(self.trial_paths.reward_json_path)
        return super()._parse_reward_json()

    async def _require_own_end(self, environment: WatchesScripts, *, silent: bool) -> None:
        end = environment.script_end or ScriptEnd()
        if end.memory and (end.signal or silent):
            raise VerifierOutOfMemoryError("processes were killed for want of memory meanwhile")
        if self._skip_tests_upload:
            changed = None
        else:
            sources, _, _ = self._resolve_tests()
            changed = await environment.changed_file(sources, str(self._directories.tests_dir))
        if changed is not None:
            raise VerifierDisturbedError(f"{changed} is not what was uploaded")
        if end.signal:
            raise VerifierDisturbedError(f"the test script was killed ({_name(end.signal)})")
        if end.not_started:
            raise VerifierDisturbedError(f"the test script can't run: {end.not_started}")

    async def _has_directory(self) -> bool:
        return await self.environment.is_dir(str(self._directories.verifier_dir))


def _require_short(path: Path) -> None:
    """Raises `VerifierOutputParseError` for a reward file that is not worth being read."""
    if path.stat().st_size > _LONGEST_REWARD:
        raise VerifierOutputParseError(f"{path.name} has more than {_LONGEST_REWARD >> 10} KiB")


@contextlib.asynccontextmanager
async def losses_examined(environment: BaseEnvironment) -> AsyncIterator[None]:
    """In the block the verifier's sandbox is in use. One that its own programs have ended
    meanwhile is no loss.

    Raises:
        VerifierDisturbedError: they have.
    """
    try:
        yield
    except (SandboxLostError, AddTestsDirError) as error:
        lost = error if isinstance(error, SandboxLostError) else error.__cause__
        if isinstance(lost, SandboxLostError) and isinstance(environment, KnowsDamage):
            with contextlib.suppress(SandboxError):
                if damage := await environment.damage():
                    raise VerifierDisturbedError(f"what ran in the sandbox has {damage}") from lost
        raise


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return f"signal {number}"


async def clean_for_verifier(
    trial: Trial, *, end_processes: bool, fixed_programs: bool = False
) -> None:
    """Empty the verifier's directory and that of the tests, if the agent's sandbox is verified.

    With `end_processes` everything that the agent has left running is killed first, unless the
    task's verifier needs it (`[metadata] verifier_needs_processes = true` in task.toml), or a
    later step of the task. With `fixed_programs` an agent that has changed programs or libraries
    below /usr has disturbed the verifier, which may run them.

    A verdict planted in advance, a link to a file of the host that happens to hold a 1, a
    `conftest.py` beside the tests. Harbor uploads the tests after this. A verifier with a sandbox
    of its own finds none of it, and the agent's may be gone by then.

    Raises:
        VerifierDisturbedError: something is left in there, or programs were changed.
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
    if fixed_programs and isinstance(environment, WatchesPrograms):
        changed = await environment.changed_programs()
        if changed:
            raise VerifierDisturbedError(f"the agent has changed {changed}")
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


def verdict_of(result: TrialResult | None, choice: RewardChoice) -> float | None:
    """The verifier's reward, or None where it gave none.

    Raises:
        RewardKeysError: none of those that it gave is the one.
        UnknownRewardError: it is out of range.
    """
    if result is None or result.verifier_result is None:
        return None
    rewards = {name: float(each) for name, each in (result.verifier_result.rewards or {}).items()}
    names = list(choice.weights) or [choice.key or _own_key(rewards)]
    if missing := [name for name in names if name not in rewards]:
        setting = "reward_weights" if choice.weights else "reward_key"
        raise RewardKeysError(f"{setting}: no reward {_listed(missing)}, but {_listed(rewards)}")
    weights = choice.weights or dict.fromkeys(names, 1.0)
    parts = [rewards[name] * weight for name, weight in weights.items()]
    # The exact sum is that of numbers alone.
    verdict = math.fsum(parts) if all(map(is_reward, parts)) else sum(parts)
    if not is_reward(verdict):
        said = f"the verifier's reward is {verdict:g}"
        raise UnknownRewardError(f"{said}; rewards are within ±{MAX_REWARD:,.0f}")
    return verdict


def _own_key(rewards: Mapping[str, float]) -> str:
    """The name of the reward that counts where no setting says which.

    Raises:
        RewardKeysError: there are several, none called `reward`.
        UnknownRewardError: there is none.
    """
    if "reward" in rewards:
        return "reward"
    if not rewards:
        raise UnknownRewardError("the verifier gave no reward")
    if len(rewards) > 1:
        first, second, *_ = rewards
        raise RewardKeysError(
            f"several rewards, none called `reward`: {_listed(rewards)};"
            f" choose one (reward_key={first}), or weigh them (reward_weights.{first}=1"
            f" reward_weights.{second}=-0.5)"
        )
    return next(iter(rewards))


def _listed(names: Collection[str]) -> str:
    shown = ", ".join(itertools.islice(names, _SHOWN_KEYS)) or "none"
    return f"{shown} and {len(names) - _SHOWN_KEYS} more" if len(names) > _SHOWN_KEYS else shown


def step_without_verdict(result: TrialResult | None) -> ExceptionInfo | None:
    """Why a step has none. Harbor's mean over the other steps is no verdict on the trial."""
    for step in (result.step_results or ()) if result is not None else ():
        if step.verifier is not None and step.verifier_result is None:
            return step.exception_info
    return None


_NO_PROGRAMS = "Failed to remove verifier reward files"
"""What Harbor (0.26 on) says where its own `rm` fails in the box: an agent may have removed it."""


def fault_of(exception: str | None, message: str | None, printed: str) -> VerifierFault | None:
    """What says that the verifier could not work: its exception, or what it printed."""
    disturbed = exception == VerifierDisturbedError.__name__
    if disturbed or (message or "").startswith(_NO_PROGRAMS):
        return VerifierFault("disturbed", message or "", network=False)
    if fault := find_fault(printed):
        return fault
    if exception in _SILENT:  # it ended and wrote none, or none that can be read
        evidence = f"{exception}: {(message or '').partition(' at ')[0]}"
        return VerifierFault("tests", evidence, network=False)
    return None


def within_sandbox(fault: VerifierFault, exception: str | None, *, offline: bool) -> bool:
    """Whether nothing outside the sandbox can have caused the fault."""
    # A script that ends without a verdict may have met a network or a machine in trouble. Without a
    # network, and with memory to be had, nothing but its sandbox is left.
    silent = exception in _SILENT and offline and not fault.network
    return fault.kind == "disturbed" or silent
