"""One Harbor trial, from its specification to the facts about how it went."""

from __future__ import annotations

import asyncio
import math
import os
import stat
import time
from collections.abc import Mapping
from pathlib import Path

from harbor.environments.base import BaseEnvironment
from harbor.models.trial.config import (
    AgentConfig,
    EnvironmentConfig,
    TaskConfig,
    TrialConfig,
)
from harbor.models.trial.result import TrialResult
from harbor.trial.hooks import TrialEvent, TrialHookEvent
from harbor.trial.trial import Trial

from tbtui.journal.events import PhaseSeconds, TrialPhase
from tbtui.rollout.link import LINK, TrialLink
from tbtui.rollout.messages import TrialFacts, TrialSpec
from tbtui.rollout.terminus import IMPORT_PATH, PANE_HEIGHT, PANE_WIDTH, answers

VERIFIER_OUTPUT_CHARS = 4_000
_MESSAGE_CHARS = 2_000
_NEVER_SEC = 1e8
"""Harbor can't be told to set no time limit for the agent; ours counts active seconds only."""


def trial_config(spec: TrialSpec) -> TrialConfig:
    """What Harbor is told."""
    return TrialConfig(
        task=TaskConfig(path=spec.task_dir),
        trials_dir=spec.trials_dir,
        trial_name=spec.trial,
        agent=AgentConfig(
            import_path=IMPORT_PATH,
            model_name=spec.model_name,
            override_timeout_sec=_NEVER_SEC,
            kwargs={
                "max_turns": spec.max_turns,
                "suppress_max_turns_warning": True,
                "parser_name": spec.parser_name,
                "enable_summarize": spec.enable_summarize,
                # Harbor's default of 8,000 free tokens is more than a small context has.
                "proactive_summarization_threshold": min(8_000, spec.context_limit // 4),
                "collect_rollout_details": False,
                "record_terminal_session": False,  # installs asciinema in every sandbox
                "tmux_pane_width": PANE_WIDTH,
                "tmux_pane_height": PANE_HEIGHT,
            },
        ),
        environment=EnvironmentConfig.model_validate(
            {
                "type": spec.environment.type,
                "import_path": spec.environment.import_path,
                "kwargs": spec.environment.kwargs,
            }
        ),
    )


async def run_trial(link: TrialLink) -> TrialFacts:
    """Run the trial of `link` in the current task, and tell how it went.

    Never raises for what happens in the trial: that is in the facts. Cancelling the task ends
    the trial without a verdict; its sandbox is torn down before the task ends. If the trial's
    control says that a person cancelled it, the facts say so, else the cancellation goes on.
    """
    run = _TrialRun(link)
    token = LINK.set(link)
    try:
        return await run.run()
    finally:
        LINK.reset(token)
        link.finish_recording()


class _TrialRun:
    def __init__(self, link: TrialLink) -> None:
        self._link = link
        self._began = time.monotonic()
        self._set_up: float | None = None
        """When the agent began to act."""
        self._agent_began = 0.0
        self._acting = 0.0
        """Seconds of the agent's runs; a task of several steps has several."""
        self._stopping = 0.0
        """Seconds of tearing the sandbox down."""
        self._sandbox_lost = False
        self._trial: Trial | None = None

    async def run(self) -> TrialFacts:
        link = self._link
        result: TrialResult | None = None
        failure: BaseException | None = None
        try:
            trial = await Trial.create(trial_config(link.spec))
            self._watch(trial)
            result = await trial.run()
        except asyncio.CancelledError as error:
            if not link.control.cancelled:
                raise
            link.notes.finish = "cancelled"
            failure = error
        except Exception as error:  # noqa: BLE001  whatever it is, it is how the trial went
            failure = error
        return self._facts(result, failure)

    def _watch(self, trial: Trial) -> None:
        for event, hook in (
            (TrialEvent.ENVIRONMENT_START, self._on_environment_start),
            (TrialEvent.AGENT_START, self._on_agent_start),
            (TrialEvent.AGENT_END, self._on_agent_end),
            (TrialEvent.VERIFICATION_START, self._on_verification_start),
        ):
            trial.add_hook(event, hook)
        self._trial = trial
        self._watch_teardown(trial, trial.agent_environment)

    def _watch_teardown(self, trial: Trial, environment: BaseEnvironment) -> None:
        # Harbor has no hook for the end of verification, and none before a failed trial's
        # sandbox is gone, when it can still be asked whether it answers.
        stop = environment.stop

        async def watched_stop(delete: bool) -> None:
            since = time.monotonic()
            failed = trial.result.exception_info is not None and not self._link.control.cancelled
            if failed and self._link.stage != "environment":
                self._sandbox_lost = not await answers(environment)
            if trial.result.verifier_result is not None:
                self._link.stage = "teardown"
            self._link.enter(TrialPhase.TEARDOWN)
            try:
                await stop(delete=delete)
            finally:
                self._stopping += time.monotonic() - since

        setattr(environment, "stop", watched_stop)  # noqa: B010  a method is replaced on purpose

    async def _on_environment_start(self, _: TrialHookEvent) -> None:
        self._link.enter(TrialPhase.SETUP, "sandbox")

    async def _on_agent_start(self, _: TrialHookEvent) -> None:
        self._link.stage = "agent"
        self._agent_began = time.monotonic()
        if self._set_up is None:
            self._set_up = self._agent_began

    async def _on_agent_end(self, event: TrialHookEvent) -> None:
        self._acting += time.monotonic() - self._agent_began
        if event.result.agent_result is not None:
            event.result.agent_result.rollout_details = None

    async def _on_verification_start(self, _: TrialHookEvent) -> None:
        self._link.stage = "verifier"
        self._link.enter(TrialPhase.VERIFYING)
        if self._trial is not None:
            # The agent could write here: a verdict planted in advance, or a link to a file of
            # the host that happens to hold a 1.
            directory = self._trial.agent_env_paths.verifier_dir
            await self._trial.agent_environment.empty_dirs([directory], chmod=True)

    def _facts(self, result: TrialResult | None, failure: BaseException | None) -> TrialFacts:
        link, notes = self._link, self._link.notes
        kind = type(failure).__name__ if failure is not None else None
        message = str(failure) if failure is not None else None
        if result is not None and result.exception_info is not None:
            kind = result.exception_info.exception_type
            message = result.exception_info.exception_message
        verdict, complaint = _verdict(result)
        if complaint is not None and kind is None:
            kind, message = "UnknownRewardError", complaint
        finish = "sandbox_lost" if self._sandbox_lost and verdict is None else notes.finish
        return TrialFacts(
            finish=finish,
            turns=notes.turns,
            verdict=verdict,
            exception_type=kind,
            exception_message=message[:_MESSAGE_CHARS] if message is not None else None,
            failed_phase=link.stage if kind is not None else None,
            last_parse_error=notes.last_parse_error,
            last_truncated=notes.last_truncated,
            seconds=self._seconds(),
            verifier_output=_tail(self._trial.paths.test_stdout_path) if self._trial else "",
        )

    def _seconds(self) -> PhaseSeconds:
        notes = self._link.notes
        total = time.monotonic() - self._began
        setup = self._set_up - self._began if self._set_up is not None else total - self._stopping
        return PhaseSeconds(
            setup=setup,
            sampling=notes.sampling_sec,
            paused=notes.paused_sec,
            commands=max(0.0, self._acting - notes.sampling_sec - notes.paused_sec),
            verifying=max(0.0, total - setup - self._acting - self._stopping),
            teardown=self._stopping,
        )


def _verdict(result: TrialResult | None) -> tuple[float | None, str | None]:
    """The verifier's reward, or None and, if it did speak, why that is no verdict."""
    if result is None or result.verifier_result is None:
        return None, None
    rewards: Mapping[str, float] = result.verifier_result.rewards or {}
    if "reward" in rewards:
        verdict = float(rewards["reward"])
    elif len(rewards) == 1:
        (verdict,) = map(float, rewards.values())
    else:
        named = ", ".join(rewards) or "none"
        return None, f"the verifier must give one reward or name one `reward`; it gave: {named}"
    if not math.isfinite(verdict):
        return None, f"the verifier's reward is {verdict}"
    return verdict, None


def _tail(path: Path) -> str:
    """The end of a text file that something in the sandbox wrote; never follows a link."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return ""
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            return ""
        file.seek(max(0, status.st_size - 4 * VERIFIER_OUTPUT_CHARS))
        text = file.read(4 * VERIFIER_OUTPUT_CHARS).decode("utf-8", "replace")
    return text[-VERIFIER_OUTPUT_CHARS:]
