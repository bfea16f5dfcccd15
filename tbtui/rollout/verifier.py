"""Harbor's verifier, whose verdict counts only if the uploaded test script ran to its own end.

Harbor reads the reward file, whoever wrote it and whatever became of the test script. In a sandbox
that the agent has worked in too, a process that the agent has left can write a 1 and kill the
script, or put another script in its place. Here such a verdict is none, and the exception says
what was seen; `verdict_check` finds out whose doing it was.
"""

from __future__ import annotations

import signal
from typing import Any, override

from harbor.models.task.config import VerifierEnvironmentMode
from harbor.models.task.task import Task
from harbor.models.task.verifier_mode import (
    resolve_step_verifier_mode,
    resolve_task_verifier_mode,
)
from harbor.models.trial.paths import EnvironmentPaths
from harbor.models.verifier.result import VerifierResult
from harbor.verifier.verifier import (
    AddTestsDirError,
    DownloadVerifierDirError,
    RewardFileEmptyError,
    RewardFileNotFoundError,
    Verifier,
    VerifierOutputParseError,
)

from tbtui.rollout.environments.test_scripts import (
    KnowsItsRoom,
    ScriptEnd,
    WatchesScripts,
)

IMPORT_PATH = "tbtui.rollout.verifier:WatchedVerifier"
_OWN_MODULES = {"PYTHONSAFEPATH": "1", "PYTHONPATH": str(EnvironmentPaths().tests_dir)}
"""For the Python of a verifier with an environment of its own, where the task does not say
otherwise. Its working directory may hold the agent's artifacts: `/app/json.py` is no module of
Python's. The first also takes away the directory of the script that is run; the second gives back
that of the tests."""
NO_VERDICT = (RewardFileNotFoundError, RewardFileEmptyError, VerifierOutputParseError)


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
            VerifierDisturbedError: what it says is nobody's verdict.
            VerifierOutOfMemoryError: it had no room to come to one.
        """
        result: VerifierResult | None = None
        failure: Exception | None = None
        try:
            result = await super().verify()
        except AddTestsDirError as error:
            sources, _, _ = self._resolve_tests()
            room = self.environment
            if isinstance(room, KnowsItsRoom) and not await room.has_room(sources):
                raise VerifierDisturbedError("the sandbox has no room for the tests") from error
            raise
        except (DownloadVerifierDirError, *NO_VERDICT) as error:
            failure = error
        if isinstance(self.environment, WatchesScripts):
            await self._require_own_end(self.environment, silent=isinstance(failure, NO_VERDICT))
        if isinstance(failure, DownloadVerifierDirError) and not await self._has_directory():
            raise VerifierDisturbedError("the directory of its verdict is gone") from failure
        if result is None:
            assert failure is not None
            raise failure
        return result

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


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return f"signal {number}"
