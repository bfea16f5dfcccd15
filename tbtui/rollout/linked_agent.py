"""Harbor's installed agents, and one's own, under tbtui's control, with the policy as their model.

Harbor's class is used as it is: it installs its program in the sandbox and runs it there. It is
given the trial's endpoint as its model provider, and a handle of the environment whose commands
are shown in the trial's terminal, wait while the trial is frozen, and end with the agent's run.
What the program asks its model passes the gate of `trial_calls`.

None of the trainer's own keys gets into a sandbox: what an agent would take from this process's
environment variables is left out.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import logging
import os
import secrets
import shlex
import tempfile
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from harbor.agents.base import BaseAgent
from harbor.agents.installed.base import BaseInstalledAgent, NonZeroAgentExitCodeError
from harbor.environments.base import BaseEnvironment, ExecResult
from harbor.models.agent.context import AgentContext

from tbtui.endpoint.server import ModelEndpoint
from tbtui.journal.events import TrialPhase
from tbtui.rollout.agent_layers import AgentLayers, agent_key
from tbtui.rollout.agent_terminal import AgentTerminal, open_terminal
from tbtui.rollout.agents import agent_class, pointing_of
from tbtui.rollout.ending import PolicyFailedError, out_of_time, require_answers
from tbtui.rollout.environments.base import (
    KeepsAgents,
    LendsNetwork,
    SandboxError,
    SandboxLostError,
)
from tbtui.rollout.environments.choose import (
    DOCKER_IMPORT_PATH,
    PODMAN_IMPORT_PATH,
    SANDBOX_IMPORT_PATH,
)
from tbtui.rollout.environments.host_variables import is_credential
from tbtui.rollout.held_sandbox import HeldSandbox
from tbtui.rollout.link import LINK, AgentEnded, TrialLink
from tbtui.rollout.messages import FinishReason, TrialSpec
from tbtui.rollout.reach import Reach
from tbtui.rollout.trial_calls import TrialCalls
from tbtui.terminal import one_line

IMPORT_PATH = "tbtui.rollout.linked_agent:LinkedAgent"
_MARK = "TBTUI_AGENT"
_END_SEC = 20
_END_MARKED = f"""\
for process in /proc/[0-9]*; do
    grep -qs "{_MARK}=$0" "$process/environ" && kill -9 "${{process#/proc/}}"
done 2>/dev/null; :
"""
_GIVE_UP_SEC = 5.0
"""How long an agent may take to end by itself once its calls are refused."""

_log = logging.getLogger(__name__)


class AgentFailedError(Exception):
    """The agent's own program failed; there is nothing to verify."""


class NoCallsError(Exception):
    """The agent never called the run's endpoint: it talks to another model, or to none."""


@dataclass(slots=True)
class AgentHost:
    """What the trials of one process share for their agents."""

    endpoint: ModelEndpoint = field(default_factory=ModelEndpoint)
    layers: AgentLayers = field(default_factory=AgentLayers)


class LinkedAgent(BaseAgent):
    """What Harbor builds from the import path: the trial's agent itself, tied to its `LINK`."""

    def __new__(cls, logs_dir: Path, **given: Any) -> Any:
        link = LINK.get()
        if link.agent_run is None:
            raise RuntimeError("the trial has no endpoint")
        return link.agent_run.build(logs_dir, **given)


class AgentRun:
    """One trial's agent, from its making to its end."""

    def __init__(self, link: TrialLink, endpoint: ModelEndpoint, reach: Reach) -> None:
        self._link = link
        self._endpoint = endpoint
        self._reach = reach
        self._model = link.spec.model_name.rpartition("/")[2]
        self._calls = TrialCalls(link, self._model)
        self._terminal: AgentTerminal | None = None
        self._mark = secrets.token_hex(8)
        self._has_program = False
        """Its box has the agent's program from the start."""
        self._endpoint.admit(reach.secret, self._calls)

    async def close(self) -> None:
        """The trial is over: nothing answers its agent any more."""
        self._calls.end()
        self._endpoint.revoke(self._reach.secret)
        await self._reach.close()
        if self._terminal is not None:
            self._terminal.close()

    async def layered(self, layers: AgentLayers) -> TrialSpec:
        """The trial's specification, with the agent's program in its box from the start, where it
        is one that is installed and the box is one that can have such a tree; where it is a
        container, with the name by which it finds an image that has the program (`prepare`).

        Raises:
            InstallFailedEverywhereError: it can't be installed.
        """
        spec = self._link.spec
        place = spec.environment
        installed = issubclass(agent_class(spec.agent), BaseInstalledAgent)
        if installed and place.import_path in (DOCKER_IMPORT_PATH, PODMAN_IMPORT_PATH):
            kwargs = {**place.kwargs, "agent_key": agent_key(spec)}
            return replace(spec, environment=replace(place, kwargs=kwargs))
        sandbox = place.import_path == SANDBOX_IMPORT_PATH
        if not installed or not sandbox or place.kwargs.get("backend") == "bubblewrap":
            return spec
        self._link.stage = "agent_setup"
        self._link.enter(TrialPhase.SETUP, "agent")
        with tempfile.TemporaryDirectory(prefix="tbtui-agent-") as logs:
            tree = await layers.tree(spec, self._make(Path(logs), "none").setup)
        self._link.stage = "environment"
        self._has_program = True
        kwargs = {**place.kwargs, "installed": str(tree)}
        return replace(spec, environment=replace(place, kwargs=kwargs))

    async def prepare(
        self, environment: BaseEnvironment, user: str | int | None, layers: AgentLayers
    ) -> None:
        """Have the agent's program put into the image that the trial's environment will be started
        from, where it is one that can have it.

        Args:
            environment: not started yet.
            user: of the agent.

        Raises:
            InstallFailedError: it can't be installed.
        """
        spec = self._link.spec
        installed = issubclass(agent_class(spec.agent), BaseInstalledAgent)
        if not installed or not isinstance(environment, KeepsAgents):
            return
        self._link.stage = "agent_setup"
        self._link.enter(TrialPhase.SETUP, "agent")
        with tempfile.TemporaryDirectory(prefix="tbtui-agent-") as logs:
            agent = self._make(Path(logs), "none")

            async def set_up(other: BaseEnvironment) -> None:
                with other.with_default_user(user):
                    await agent.setup(other)

            await layers.image(spec, environment, set_up)
        self._link.stage = "environment"

    def _make(self, logs_dir: Path, secret: str, **given: Any) -> BaseAgent:
        """Harbor's agent, pointed at the endpoint."""
        spec = self._link.spec
        pointing = pointing_of(spec.agent)
        model, env, kwargs = pointing.filled(self._reach.url, secret, self._model)
        kwargs |= spec.agent_kwargs
        agent = agent_class(spec.agent)(
            logs_dir=logs_dir,
            model_name=kwargs.pop("model_name", model),
            extra_env=env,
            **given,
            **kwargs,
        )
        # On this object alone, here and below: the class stays Harbor's own.
        _replace(agent, "_env_sources", lambda: (agent.extra_env,))
        if self._reach.way == "inside" and hasattr(agent, "_resolve_model_connection"):
            # It takes no network to reach the box's own loopback. Harbor 0.26 would allow its host,
            # and so make a list of allowed hosts of a task without a network.
            _replace(agent, "_resolve_model_connection", _nowhere(agent._resolve_model_connection))
        if spec.agent_install and isinstance(agent, BaseInstalledAgent):
            own_install = agent.install

            async def install(environment: BaseEnvironment) -> None:
                await self._install(own_install, environment)

            _replace(agent, "install", install)
        return agent

    def build(self, logs_dir: Path, **given: Any) -> BaseAgent:
        """The agent of the trial, with its set-up and its run under control."""
        for name in ("model_name", "extra_env"):
            given.pop(name, None)
        agent = self._make(logs_dir, self._reach.secret, **given)
        own_setup, own_run = agent.setup, agent.run
        if isinstance(agent, BaseInstalledAgent):
            own_install = agent.install

            async def install(environment: BaseEnvironment) -> None:
                kept = isinstance(environment, KeepsAgents) and environment.has_agent
                if not self._has_program and not kept:
                    await own_install(environment)

            _replace(agent, "install", install)

        async def setup(environment: BaseEnvironment) -> None:
            await self._set_up(own_setup, environment)

        async def run(
            instruction: str, environment: BaseEnvironment, context: AgentContext
        ) -> None:
            await self._run(
                lambda handle: own_run(
                    instruction=instruction, environment=handle, context=context
                ),
                environment,
            )

        _replace(agent, "setup", setup)
        _replace(agent, "run", run)
        return agent

    async def _install(self, own: Any, environment: BaseEnvironment) -> None:
        """The run's own way to install the agent, and then Harbor's: that finds its program there,
        or can't fetch it, and brings files of its own."""
        result = await environment.exec(self._link.spec.agent_install, user="root")
        if result.return_code != 0:
            said = (result.stderr or result.stdout or "").strip()[-2000:]
            raise RuntimeError(f"agent_install ended with {result.return_code}: {said}")
        try:
            await own(environment)
        except RuntimeError as error:
            _log.info("%s: after agent_install: %s", self._link.spec.trial, one_line(str(error)))

    async def _set_up(self, own: Any, environment: BaseEnvironment) -> None:
        link = self._link
        link.stage = "agent_setup"
        link.enter(TrialPhase.SETUP, "agent")
        link.watch.enter("setup")
        self._sandbox = HeldSandbox(environment, link.spec.environment.kwargs)
        await self._reach.open(self._endpoint, environment, here=":" in link.spec.agent)
        self._terminal = await open_terminal(link, environment, self._sandbox, self._reach.secret)
        self._calls.watcher = self._terminal
        async with contextlib.AsyncExitStack() as stack:
            if link.spec.agent_setup_network and isinstance(environment, LendsNetwork):
                await stack.enter_async_context(environment.with_network())
            await own(self._handle(environment))
        await self._terminal.settled()

    def _handle(self, environment: BaseEnvironment) -> BaseEnvironment:
        """The same environment, for the agent: its commands are shown, and held by a freeze."""
        handle = copy.copy(environment)
        link, terminal = self._link, self._terminal
        assert terminal is not None

        async def on_output(text: str, stream: str) -> None:
            terminal.show(text)

        async def execute(
            command: str,
            cwd: str | None = None,
            env: dict[str, str] | None = None,
            timeout_sec: int | None = None,
            user: str | int | None = None,
        ) -> ExecResult:
            await link.control.thawed()
            self._sandbox.used()
            terminal.command(command.removeprefix("set -o pipefail; "))
            streamed = False

            async def stream(text: str, name: str) -> None:
                nonlocal streamed
                streamed = True
                await on_output(text, name)

            with environment.scoped_output_callback(stream):
                result = await environment.exec(
                    command,
                    cwd=cwd,
                    env={**_without_own_keys(env or {}), _MARK: self._mark},
                    timeout_sec=timeout_sec,
                    user=user if user is not None else handle.default_user,
                )
            if not streamed:
                terminal.show((result.stdout or "") + (result.stderr or ""))
            return result

        _replace(handle, "exec", execute)
        return handle

    async def _run(self, own: Any, environment: BaseEnvironment) -> None:
        """Run until the agent is done or ended.

        Returning lets Harbor verify; raising makes it skip the verifier.

        Raises:
            PolicyFailedError, SandboxLostError, AgentFailedError, NoCallsError: nothing to verify.
        """
        link, budget, calls = self._link, self._link.budget, self._calls
        link.enter(TrialPhase.ACTING)
        link.control.attach(self._sandbox)
        calls.begin()
        try:
            async with budget.spending():
                await self._until_over(own(self._handle(environment)))
            link.notes.end(self._why_done())
        except AgentEnded as ended:
            await self._end_processes(environment)
            link.notes.end(ended.finish, ended.reason)
            if ended.unanswered:
                raise PolicyFailedError(ended.reason) from None
        except TimeoutError as error:
            if link.control.ending is None and not budget.spent:
                # As a TimeoutError Harbor would take it for the agent's own time-out.
                timed_out = AgentFailedError(f"an operation timed out: {error}")
                await self._failed(timed_out, environment)
            else:
                await self._out_of_time(environment)
        except SandboxLostError:
            link.notes.end("sandbox_lost")
            raise
        except Exception as error:  # noqa: BLE001  whatever its class raises
            await self._failed(error, environment)
        finally:
            calls.end()
            if self._terminal is not None:
                await self._terminal.settled()
            await link.control.detach()

    async def _until_over(self, own: Coroutine[Any, Any, None]) -> None:
        """The agent's own run, or as much of it as its calls allow.

        Raises:
            AgentEnded: its calls were over first.
        """
        work = asyncio.create_task(own, name=f"{self._link.spec.trial}'s agent")
        over = self._calls.over
        try:
            await asyncio.wait((work, over), return_when=asyncio.FIRST_COMPLETED)
            if over.done() and not work.done():
                await asyncio.wait((work,), timeout=_GIVE_UP_SEC)
            if over.done():
                raise over.result()
            await work
        finally:
            if not work.done():
                work.cancel()
                await asyncio.wait((work,))
            elif not work.cancelled():
                work.exception()  # seen

    def _why_done(self) -> FinishReason:
        if self._link.notes.turns == 0 and not self._calls.overflowed:
            raise NoCallsError("the agent ended without a call to the run's endpoint")
        return "context_overflow" if self._calls.overflowed else "completed"

    async def _failed(self, error: Exception, environment: BaseEnvironment) -> None:
        """The agent's program, or Harbor's class for it, has failed. Once a call was answered that
        may be the policy's doing, which must not be worth another attempt.

        Raises:
            AgentFailedError, NoCallsError: before that.
            SandboxLostError: the sandbox does not answer.
        """
        notes = self._link.notes
        if self._calls.overflowed:
            notes.end("context_overflow", str(error))
            return
        if notes.turns == 0 and self._calls.refusal is not None:
            notes.end("error", self._calls.refusal)
            raise AgentFailedError(f"its calls were refused: {self._calls.refusal}") from error
        if notes.turns == 0:
            notes.end("no_calls", str(error))
            raise (
                error
                if isinstance(error, NoCallsError)
                else NoCallsError(
                    f"before any call to the run's endpoint: {type(error).__name__}: {error}"
                )
            ) from error
        if isinstance(error, NonZeroAgentExitCodeError) and notes.last_parse_error is not None:
            # It gave up on an answer that it could not read.
            notes.end("output_truncated" if notes.last_truncated else "max_turns", str(error))
            return
        await require_answers(self._link, environment)
        if self._calls.answered:
            await self._end_processes(environment)
            notes.end("program_failed", str(error))
            return
        notes.end("error", str(error))
        if isinstance(error, NonZeroAgentExitCodeError):
            # As it is, Harbor would verify what it left.
            raise AgentFailedError(str(error)) from error
        raise error

    async def _out_of_time(self, environment: BaseEnvironment) -> None:
        link, budget = self._link, self._link.budget
        await out_of_time(link, environment)
        await self._end_processes(environment)
        called = link.notes.turns > 0
        if link.control.ending is None and not called and self._calls.overflowed:
            link.notes.end("context_overflow")
            return
        if link.control.ending is None and not called and self._calls.refusal:
            link.notes.end("error", self._calls.refusal)
            raise AgentFailedError(f"its calls were refused: {self._calls.refusal}")
        if link.control.ending is None and not called:
            reason = f"no call to the run's endpoint within its {budget.seconds:.0f} s"
            link.notes.end("no_calls", reason)
            raise NoCallsError(reason)
        link.notes.end(link.control.ending or "budget")

    async def _end_processes(self, environment: BaseEnvironment) -> None:
        """What the agent has started ends with it, in sessions of its own too."""
        script = f"exec sh -c {shlex.quote(_END_MARKED)} {self._mark}"
        try:
            await environment.exec(script, user="root", timeout_sec=_END_SEC)
        except SandboxError as error:
            _log.info("%s: its agent's processes: %s", self._link.spec.trial, error)


def _nowhere(resolve: Callable[..., Any]) -> Callable[..., Any]:
    """The same connection, without a host that a trial's network would have to allow."""

    def resolved(*args: Any, **kwargs: Any) -> Any:
        connection = resolve(*args, **kwargs)
        if not hasattr(connection, "inference_base_url"):  # before Harbor 0.26
            return connection
        return replace(
            connection,
            resolved_base_url=None,
            inferred_base_url=None,
            user_supplied_base_url=connection.execution_base_url,
        )

    return resolved


def _replace(owner: object, name: str, value: object) -> None:
    setattr(owner, name, value)


def _without_own_keys(env: dict[str, str]) -> dict[str, str]:
    """Without what this process has under the same name, where that is a key."""
    return {
        name: value
        for name, value in env.items()
        if not (is_credential(name, value) and os.environ.get(name) == value)
    }
