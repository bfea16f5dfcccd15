"""One Harbor trial, from its specification to the facts about how it went."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

from harbor.agents.installed.base import NonZeroAgentExitCodeError
from harbor.environments.base import BaseEnvironment, HealthcheckError
from harbor.models.task.config import NetworkMode
from harbor.models.trial.config import (
    AgentConfig,
    EnvironmentConfig,
    TaskConfig,
    TrialConfig,
    VerifierConfig,
)
from harbor.models.trial.result import TrialResult
from harbor.trial.errors import AgentTimeoutError, VerifierTimeoutError
from harbor.trial.hooks import TrialEvent, TrialHookEvent
from harbor.trial.trial import Trial

from tbtui.findings import UnusableKind
from tbtui.journal.events import TrialPhase
from tbtui.paths import open_plain
from tbtui.rollout.agent_layers import InstallFailedEverywhereError
from tbtui.rollout.agents import agent_class, needs_endpoint
from tbtui.rollout.budget import MachineStarvedError, Starvation, is_starved
from tbtui.rollout.disk import tidy
from tbtui.rollout.ending import PROBE_SEC, answers
from tbtui.rollout.environments.base import KnowsDamage, SandboxError, WatchesPrograms
from tbtui.rollout.environments.build import UnbuildableError
from tbtui.rollout.environments.host_variables import host_variables, unusable_for_variables
from tbtui.rollout.environments.limits import BoxReport
from tbtui.rollout.environments.sandbox import SandboxEnvironment
from tbtui.rollout.link import LINK, TrialLink
from tbtui.rollout.linked_agent import IMPORT_PATH as LINKED_AGENT_IMPORT_PATH
from tbtui.rollout.linked_agent import AgentHost, AgentRun
from tbtui.rollout.messages import TrialFacts, TrialSpec
from tbtui.rollout.oracle import IMPORT_PATH as ORACLE_IMPORT_PATH
from tbtui.rollout.oracle import NOP_IMPORT_PATH
from tbtui.rollout.outcome import decide
from tbtui.rollout.reach import reach_from
from tbtui.rollout.shell import IMPORT_PATH as SHELL_IMPORT_PATH
from tbtui.rollout.states import prepare_states
from tbtui.rollout.supervision import TEARDOWN, Patience, Supervisor, WatchedStretch
from tbtui.rollout.task_digest import keep_digests_inside
from tbtui.rollout.terminus import IMPORT_PATH, PANE_HEIGHT, PANE_WIDTH
from tbtui.rollout.verifier import IMPORT_PATH as VERIFIER_IMPORT_PATH
from tbtui.rollout.verifier import (
    RewardKeysError,
    UnknownRewardError,
    clean_for_verifier,
    fault_of,
    losses_examined,
    step_without_verdict,
    verdict_of,
    within_sandbox,
)
from tbtui.terminal import both_ends

VERIFIER_OUTPUT_CHARS = 4_000
_EXAMINED_CHARS = 1 << 16
"""Bytes of each end of the verifier's output: where its set-up begins and where its tests end."""
_MESSAGE_CHARS = 2_000
_NEVER_SEC = 1e8
"""Harbor always sets a time limit for the agent; ours counts active seconds only."""
_INSTALL_SEC = 3600.0
"""What an agent may take to be installed, once for all trials, those that wait for it included."""
PATIENCE = Patience()
_IN_TERMINAL = {"terminus-2": IMPORT_PATH, "shell": SHELL_IMPORT_PATH}

_log = logging.getLogger(__name__)


class SandboxHangsError(Exception):
    """Something in the trial did not come to an end."""


class NothingToVerifyError(Exception):
    """The agent failed, so that there is no work of its own to judge."""


class HostVariableError(Exception):
    """The task takes a variable of the host that is not set, or a credential that is not its."""


_VERIFIED_ALL_THE_SAME = (AgentTimeoutError.__name__, NonZeroAgentExitCodeError.__name__)
_UNUSABLE: dict[str | None, UnusableKind] = {
    UnbuildableError.__name__: "image",
    HostVariableError.__name__: "variables",
    RewardKeysError.__name__: "verifier",
}
"""Name of an error that any other attempt in the same environment would meet -> what of the task
it is about."""


def trial_config(spec: TrialSpec) -> TrialConfig:
    """Harbor's configuration of the trial."""
    return TrialConfig(
        task=TaskConfig(path=spec.task_dir),
        trials_dir=spec.trials_dir,
        trial_name=spec.trial,
        agent=_agent(spec),
        verifier=VerifierConfig(import_path=VERIFIER_IMPORT_PATH),
        environment=EnvironmentConfig.model_validate(
            {
                "type": spec.environment.type,
                "import_path": spec.environment.import_path,
                "kwargs": spec.environment.kwargs,
                "force_build": spec.environment.force_build,
            }
        ),
    )


def _agent(spec: TrialSpec) -> AgentConfig:
    if spec.agent not in _IN_TERMINAL:
        own = {"oracle": ORACLE_IMPORT_PATH, "untouched": NOP_IMPORT_PATH}
        return AgentConfig(
            import_path=own.get(spec.agent, LINKED_AGENT_IMPORT_PATH),
            override_timeout_sec=_NEVER_SEC,
            override_setup_timeout_sec=(
                agent_class(spec.agent).DEFAULT_SETUP_TIMEOUT_SEC
                if needs_endpoint(spec.agent)
                else None
            ),
        )
    return AgentConfig(
        import_path=_IN_TERMINAL[spec.agent],
        model_name=spec.model_name,
        override_timeout_sec=_NEVER_SEC,
        kwargs={
            "max_turns": spec.max_turns,
            "suppress_max_turns_warning": True,
            "enable_summarize": spec.enable_summarize,
            "proactive_summarization_threshold": spec.proactive_summarization_threshold,
            "collect_rollout_details": False,
            "record_terminal_session": False,  # installs asciinema in every sandbox
            "tmux_pane_width": PANE_WIDTH,
            "tmux_pane_height": PANE_HEIGHT,
        },
    )


async def run_trial(
    link: TrialLink,
    patience: Patience = PATIENCE,
    host: Callable[[], AgentHost] = AgentHost,
) -> TrialFacts:
    """Run the trial of `link` in the current task, and tell how it went.

    `host` gives what this process has for agents that call a model endpoint.

    Never raises for what happens in the trial: that is in the facts. Cancelling the task ends
    the trial without a verdict; its sandbox is torn down before the task ends. If the trial's
    control says that a person cancelled it, the facts say so, else the cancellation goes on.

    Always ends: what hangs, its own cancellation included, is put into `link.left_behind`.
    """
    run = _TrialRun(link, patience, host)
    token = LINK.set(link)
    try:
        return await run.run()
    finally:
        LINK.reset(token)
        if link.agent_run is not None:
            await link.agent_run.close()
        link.control.close("it has ended")
        link.finish_recording()
        _forget_loggers(link.spec.trial)


class _TrialRun:
    def __init__(self, link: TrialLink, patience: Patience, host: Callable[[], AgentHost]) -> None:
        self._link = link
        self._host = host
        self._patience = patience
        self._acted = False
        self._stop: Callable[[bool], Coroutine[Any, Any, None]] | None = None
        self._stopping: asyncio.Task[Any] | None = None
        """Tears the sandbox down."""
        self._sandbox_lost = False
        self._torn_down = False
        self._trial: Trial | None = None
        self._damage = ""
        self._lost_before_verifier = 0.0
        self._starvation = link.starvation = Starvation(link.budget, self._stalled)

    async def run(self) -> TrialFacts:
        link = self._link

        async def unplug() -> None:
            if self._stopping is None and self._stop is not None:
                self._stopping = asyncio.create_task(self._stop(True), name="the sandbox's end")
                await supervisor.wait_at_most(self._stopping, self._patience.teardown_sec)

        supervisor = Supervisor(self._patience, self._stretch, unplug)
        work = asyncio.create_task(self._work(), name=f"{link.spec.trial} in Harbor")
        watching = asyncio.create_task(self._starvation.run(), name=f"{link.spec.trial}'s time")
        ended = await supervisor.wait_for(work)
        watching.cancel()
        if ended and self._stopping is not None and not self._stopping.done():
            # Harbor does not wait for it when it is cancelled in the middle of it.
            await supervisor.wait_at_most(self._stopping, self._patience.teardown_sec)
        if self._stopping is not None and not self._stopping.done():
            self._stopping.cancel()
            await supervisor.wait_at_most(self._stopping, self._patience.cancel_sec)
        if supervisor.cancelled and not link.control.cancelled:
            raise asyncio.CancelledError
        link.left_behind |= {
            task for task in (work, self._stopping) if task is not None and not task.done()
        }
        if link.left_behind:
            self._sandbox_lost = True
            await asyncio.to_thread(self._write_result)
        result: TrialResult | None = None
        failure: BaseException | None = None
        if ended and not work.cancelled():
            failure = work.exception()
            result = work.result() if failure is None else self._result()
        else:
            result = self._result()
            failure = asyncio.CancelledError()
        if supervisor.hang is not None:
            self._sandbox_lost |= self._acted
            failure = SandboxHangsError(supervisor.hang)
        if link.control.cancelled:
            link.notes.finish = "cancelled"
        link.finish_recording()
        facts = self._facts(result, failure)
        folder = link.spec.trials_dir / link.spec.trial
        await asyncio.to_thread(tidy, folder, link.spec.keep, decide(facts).outcome)
        return replace(facts, seconds=link.watch.seconds())

    async def _stalled(self) -> float | None:
        report = await self._report()
        if report is None:
            return 0.0
        over_limits = report.bombs or report.memory_kills
        return None if over_limits else report.stalled_sec

    async def _report(self) -> BoxReport | None:
        """What the sandbox has counted; None where it doesn't."""
        environment = self._trial.agent_environment if self._trial is not None else None
        if not isinstance(environment, SandboxEnvironment):
            return None
        return await environment.report()

    async def _look_for_starvation(self) -> None:
        with contextlib.suppress(TimeoutError):  # whether it answers at all is asked next
            async with asyncio.timeout(PROBE_SEC):
                await self._starvation.look()

    async def _damage_so_far(self) -> str:
        """What the agent has done to its sandbox, as far as that can be asked."""
        environment = self._trial.agent_environment if self._trial is not None else None
        # What happens to a sandbox before the agent's first turn is none of its doing. A task's own
        # solution has no turns.
        acted = self._link.notes.turns > 0 or self._link.spec.agent == "oracle"
        if not acted or not isinstance(environment, KnowsDamage):
            return ""
        try:
            async with asyncio.timeout(PROBE_SEC):
                return await environment.damage()
        except (TimeoutError, SandboxError) as error:
            _log.warning("%s: no report of its sandbox: %s", self._link.spec.trial, error)
            return ""

    async def _work(self) -> TrialResult:
        link, spec = self._link, self._link.spec
        agent: AgentRun | None = None
        if needs_endpoint(spec.agent):
            host = self._host()
            reach = await reach_from(spec.environment, spec.endpoint)
            link.agent_run = agent = AgentRun(link, host.endpoint, reach)
            spec = await agent.layered(host.layers)
        # Harbor meets some of them only when the verifier starts, after a whole rollout.
        needed = host_variables(spec.task_dir)
        for unusable in unusable_for_variables(
            needed, os.environ, solution=spec.agent == "oracle", allowed=spec.credentials
        ):
            raise HostVariableError(unusable.text)
        keep_digests_inside()
        trial = await Trial.create(trial_config(spec))
        if agent is not None:
            user = trial.task.config.agent.user
            await agent.prepare(trial.agent_environment, user, self._host().layers)
        await prepare_states(link, trial.agent_environment)
        self._watch(trial)
        return await trial.run()

    def _stretch(self) -> WatchedStretch:
        """What the trial is at, and how long that may take."""
        link, trial, grace = self._link, self._trial, self._patience.grace_sec
        handling = self._patience.handling_sec
        if self._stopping is not None:
            return WatchedStretch(TEARDOWN, self._patience.teardown_sec)
        if trial is None and link.stage == "agent_setup":
            return WatchedStretch("installing the agent", _INSTALL_SEC + grace)
        if trial is None:
            return WatchedStretch("reading the task", handling)
        build = trial.environment_build_timeout_sec
        match link.stage:
            case "environment":
                return WatchedStretch("starting the sandbox", build + handling + grace)
            case "agent_setup":
                return WatchedStretch("setting the agent up", trial.agent_setup_timeout_sec + grace)
            case "agent" if link.budget.is_spending:
                return WatchedStretch("the agent", grace if link.budget.overdue else None)
            case "agent":
                return WatchedStretch("handling the agent's files", handling)
            case "verifier":
                steps = trial.task.config.steps or ()
                longest = max(
                    [trial.verifier_timeout_sec, *(s.verifier.timeout_sec or 0 for s in steps)]
                )
                return WatchedStretch("the verifier", longest + build + handling + grace)
            case "teardown":
                return WatchedStretch(TEARDOWN, self._patience.teardown_sec)

    def _watch(self, trial: Trial) -> None:
        for event, hook in (
            (TrialEvent.ENVIRONMENT_START, self._on_environment_start),
            (TrialEvent.AGENT_START, self._on_agent_start),
            (TrialEvent.AGENT_END, self._on_agent_end),
            (TrialEvent.VERIFICATION_START, self._on_verification_start),
            (TrialEvent.END, self._on_end),
        ):
            trial.add_hook(event, hook)
        self._trial = trial
        if isinstance(trial.agent_environment, SandboxEnvironment):
            trial.agent_environment.on_build = self._on_build
        self._watch_teardown(trial, trial.agent_environment)

    def _watch_teardown(self, trial: Trial, environment: BaseEnvironment) -> None:
        # Harbor has no hook for the end of verification, and none before a failed trial's
        # sandbox is gone, when it can still be asked whether it answers.
        self._stop = stop = environment.stop
        link = self._link

        async def watched_stop(delete: bool) -> None:
            failed = trial.result.exception_info is not None and not link.control.cancelled
            if link.stage != "verifier" and trial.result.exception_info is None:
                # Not the end yet: the verifier gets a sandbox of its own, or an environment
                # cleans up in its `start`, perhaps to try again.
                await stop(delete=delete)
                return
            if trial.result.verifier_result is not None:
                link.stage = "teardown"
            self._stopping = asyncio.current_task()
            self._tear_down()
            try:
                if failed and link.stage != "environment":
                    known = link.notes.finish == "sandbox_lost"
                    if link.stage == "verifier":
                        await self._look_for_starvation()
                        # Whose doing it is that it is gone, the verifier's failure says.
                        gone = not await answers(environment) and not await self._damage_so_far()
                    else:
                        self._damage = await self._damage_so_far()
                        gone = not await answers(environment)
                    self._sandbox_lost = known or gone
            finally:  # cancelled while it waited for an answer, too
                await stop(delete=delete)

        setattr(environment, "stop", watched_stop)  # noqa: B010  a method is replaced on purpose

    def _tear_down(self) -> None:
        # Said first of all: the trial's place is free from now on.
        self._link.control.close("it is being torn down")
        self._link.watch.enter("teardown")
        if not self._torn_down:
            self._torn_down = True
            self._link.enter(TrialPhase.TEARDOWN)

    async def _on_environment_start(self, _: TrialHookEvent) -> None:
        self._link.enter(TrialPhase.SETUP, "sandbox")

    def _on_build(self, step: str) -> None:
        self._link.enter(TrialPhase.SETUP, f"sandbox: {step}")

    async def _on_agent_start(self, _: TrialHookEvent) -> None:
        self._link.stage = "agent"
        self._link.watch.enter("commands")
        self._acted = True
        environment = self._trial.agent_environment if self._trial is not None else None
        if self._link.spec.fixed_programs and isinstance(environment, WatchesPrograms):
            await environment.mark_programs()

    async def _on_agent_end(self, event: TrialHookEvent) -> None:
        self._link.watch.enter("verifying")
        steps = event.result.step_results or ()
        for context in (event.result.agent_result, *(step.agent_result for step in steps)):
            if context is not None:
                context.rollout_details = None
                # Without it Harbor, and its class of the agent, read what the agent has written
                # about itself, and where they can't there would be no verdict.
                context.model_usage = {}

    async def _on_verification_start(self, event: TrialHookEvent) -> None:
        link = self._link
        self._require_an_end(event.result)
        link.stage = "verifier"
        self._lost_before_verifier = self._starvation.lost
        link.enter(TrialPhase.VERIFYING)
        if self._trial is not None:
            if not self._trial.task.has_steps:
                link.control.close("it is being verified, which is never held")
            self._damage = await self._damage_so_far()
            async with losses_examined(self._trial.agent_environment):
                await clean_for_verifier(
                    self._trial,
                    end_processes=link.spec.kill_before_verifying,
                    fixed_programs=link.spec.fixed_programs,
                )

    def _require_an_end(self, result: TrialResult) -> None:
        """Raises where the agent failed: Harbor 0.26 verifies nearly every such trial, too.

        Harbor keeps the agent's exception as the trial's. A step's it keeps with the step.
        """
        failure = result.exception_info
        if failure is not None and failure.exception_type not in _VERIFIED_ALL_THE_SAME:
            raise NothingToVerifyError(f"the agent failed: {failure.exception_type}")

    async def _on_end(self, _: TrialHookEvent) -> None:
        self._tear_down()

    def _result(self) -> TrialResult | None:
        try:
            return self._trial.result if self._trial is not None else None
        except RuntimeError:  # it has not begun
            return None

    def _write_result(self) -> None:
        """In place of Harbor, which does so when the sandbox is gone."""
        result = self._result()
        if self._trial is not None and result is not None:
            self._trial.paths.result_path.write_text(result.model_dump_json(indent=4))

    def _facts(self, result: TrialResult | None, failure: BaseException | None) -> TrialFacts:
        link, notes = self._link, self._link.notes
        kind = type(failure).__name__ if failure is not None else None
        message = str(failure) if failure is not None else None
        if (
            not isinstance(failure, SandboxHangsError)
            and result is not None
            and result.exception_info is not None
        ):
            kind = result.exception_info.exception_type
            message = result.exception_info.exception_message
        stage = link.stage
        verdict: float | None = None
        complaint: Exception | None = None
        try:
            verdict = verdict_of(result, link.spec.rewards)
        except (RewardKeysError, UnknownRewardError) as error:
            complaint = error
        if kind is None and (step := step_without_verdict(result)) is not None:
            verdict, stage = None, "verifier"
            kind, message = step.exception_type, step.exception_message
        if complaint is not None and kind is None:
            kind, message, stage = type(complaint).__name__, str(complaint), "verifier"
        finish = "sandbox_lost" if self._sandbox_lost and verdict is None else notes.finish
        if kind == VerifierTimeoutError.__name__ and (starved := self._verifier_starved()):
            finish, kind, message = "sandbox_lost", MachineStarvedError.__name__, starved
        printed = _ends(self._trial.paths.test_stdout_path) if self._trial else ""
        offline = self._trial is not None and _offline(self._trial.agent_environment)
        fault = fault_of(kind, message, printed)
        return TrialFacts(
            finish=finish,
            turns=notes.turns,
            verdict=verdict,
            exception_type=kind,
            exception_message=both_ends(message, _MESSAGE_CHARS) if message is not None else None,
            failed_phase=stage if kind is not None else None,
            last_parse_error=notes.last_parse_error,
            last_truncated=notes.last_truncated,
            human_touched=link.touched,
            human_wrote=link.written,
            seconds=link.watch.seconds(),
            verifier_output=printed[-VERIFIER_OUTPUT_CHARS:],
            verifier_fault=fault,
            within_sandbox=fault is not None and within_sandbox(fault, kind, offline=offline),
            offline=offline,
            # Nothing but the task and its environment has a part in a sandbox without an agent.
            unusable="image"
            if kind == HealthcheckError.__name__ and not self._acted
            else _UNUSABLE.get(kind),
            given_back_sec=link.budget.given_back,
            agent_uninstalled=(
                str(failure) if isinstance(failure, InstallFailedEverywhereError) else ""
            ),
            overflow=notes.overflow,
            damage=self._damage,
            program_failure=(
                notes.reason[-_MESSAGE_CHARS:] if notes.finish == "program_failed" else ""
            ),
            fork=notes.fork,
        )

    def _verifier_starved(self) -> str:
        """Why the time limit of the verifier says nothing; empty where it does."""
        limit = self._trial.verifier_timeout_sec if self._trial is not None else 0.0
        lost = self._starvation.lost - self._lost_before_verifier
        if self._starvation.own_doing or not is_starved(lost, limit):
            return ""
        return f"others kept the CPU from its verifier for {lost:.0f} s of {limit:.0f} s"


def _forget_loggers(trial: str) -> None:
    """Harbor makes loggers named after each trial, and `logging` keeps every logger for ever."""
    known = logging.root.manager.loggerDict
    placeholders = [entry for entry in known.values() if isinstance(entry, logging.PlaceHolder)]
    for name in [name for name in known if f".{trial}." in f"{name}."]:
        logger = known.pop(name)
        if isinstance(logger, logging.Logger):
            for placeholder in placeholders:
                placeholder.loggerMap.pop(logger, None)


def _ends(path: Path) -> str:
    """Both ends of a text file that something in the sandbox wrote; never follows a link."""
    try:
        file = open_plain(path)
    except OSError:
        return ""
    with file:
        content = file.read(_EXAMINED_CHARS)
        if (left_out := os.fstat(file.fileno()).st_size - 2 * _EXAMINED_CHARS) > 0:
            content += b"\n[...]\n"
            file.seek(left_out, os.SEEK_CUR)
        content += file.read(_EXAMINED_CHARS)
    return content.decode("utf-8", "replace")


def _offline(environment: BaseEnvironment) -> bool:
    if isinstance(environment, SandboxEnvironment):
        return not environment.network
    return environment.network_policy.network_mode is NetworkMode.NO_NETWORK
