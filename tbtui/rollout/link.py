"""Links a running trial to its worker: control, completions, events, and notes on the agent.

Harbor builds the agent from an import path and serialisable arguments, so a live object can't be
handed to it. `LINK` carries it instead: a context variable that is set in the trial's own task
before Harbor is called, and read by the agent's constructor in that task.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypedDict, Unpack

from tbtui.awake import AwakeLoop
from tbtui.chat import Message, Tool, ToolChoice
from tbtui.journal.commands import Typed, as_sent
from tbtui.journal.events import TrialPhase
from tbtui.rollout.budget import Budget, Starvation, Stopwatch
from tbtui.rollout.control import TrialControl
from tbtui.rollout.environments.snapshots import Snapshot
from tbtui.rollout.forking import ForkReport
from tbtui.rollout.keyboard import Keyboard
from tbtui.rollout.messages import (
    AgentWritten,
    Completion,
    CompletionDelayed,
    CompletionFailed,
    FailedPhase,
    FinishReason,
    FromWorker,
    SampleAbandoned,
    SampleWanted,
    TrialSpec,
    TypeKeys,
    WriteToAgent,
)
from tbtui.rollout.recording import Recorder, Recording

_MUCH_SLOWER = 2.0
"""A policy that is alive seldom takes so much longer than it ever did before in a trial."""


class AgentEnded(BaseException):
    """Ends the agent's run from wherever it is.

    A BaseException, because Terminus-2 retries or swallows every Exception that comes out of a
    call to the model.
    """

    def __init__(self, finish: FinishReason, reason: str = "") -> None:
        super().__init__(reason or finish)
        self.finish: FinishReason = finish
        self.reason = reason

    @property
    def unanswered(self) -> bool:
        """Whether the policy gave no answer, so that there is nothing to verify."""
        return self.finish in ("provider_error", "refused", "too_slow")


class ContextOverflow(Exception):
    """The prompt is too long for the policy."""

    def __init__(self, failed: CompletionFailed) -> None:
        super().__init__(failed.reason)
        self.prompt_tokens = failed.prompt_tokens
        self.context_limit = failed.context_limit


class Unsupported(Exception):
    """The policy can't do what is asked: its chat format has no tools, for one."""


@dataclass
class AgentNotes:
    """Notes on the agent's run so far."""

    finish: FinishReason = "not_run"
    reason: str = ""
    turns: int = 0
    """Completions that the main agent asked for."""
    overflow: str = ""
    """Which prompt was too long for the policy, the last time that one was."""
    last_parse_error: str | None = None
    last_truncated: bool = False
    fork: ForkReport | None = None
    restored: Snapshot | None = None
    """What its environment began from."""

    def end(self, finish: FinishReason, reason: str = "") -> None:
        """Note why the agent's run ended: in a task of several steps, the first that went wrong."""
        if self.finish in ("not_run", "completed"):
            self.finish, self.reason = finish, reason


class CallOptions(TypedDict, total=False):
    """What a call may ask for besides an answer to its messages; see `SampleWanted`."""

    tools: tuple[Tool, ...]
    tool_choice: ToolChoice
    one_tool_call: bool
    stop: tuple[str, ...]
    max_tokens: int | None
    count_only: bool


class AgentProgram(Protocol):
    """A trial's agent that is a program in the sandbox; `linked_agent.AgentRun`."""

    def build(self, logs_dir: Path, **given: Any) -> Any:
        """Make Harbor's agent of the trial."""
        ...

    async def close(self) -> None:
        """The trial is over: nothing answers its agent any more."""
        ...


class TrialLink:
    """One trial's end of the worker's channel."""

    def __init__(
        self,
        spec: TrialSpec,
        *,
        post: Callable[[FromWorker], None],
        requests: Iterator[int],
        recorder: Recorder,
    ) -> None:
        self.spec = spec
        self.post = post
        self._recorder = recorder
        self._recording: Recording | None = None
        self.budget = Budget(spec.budget_sec)
        loop = asyncio.get_running_loop()
        asleep = (loop.clock.asleep,) if isinstance(loop, AwakeLoop) else ()
        self.watch = Stopwatch(loop.time, *asleep)
        self.keyboard = Keyboard(spec.trial, post, self._typed)
        self.control = TrialControl(
            spec.trial, post, self.budget, self.watch, self.keyboard, self._mark
        )
        self.messages: list[str] = []
        """What a person has written to the agent, and its next prompt is to have."""
        self.written = False
        """A person has written to the agent."""
        self.starvation: Starvation | None = None
        """Gives back what the machine kept from it; None: that is not measured."""
        self.notes = AgentNotes()
        self.stage: FailedPhase = "environment"
        """Where the trial is; if it fails, where it failed."""
        self.left_behind: set[asyncio.Task[Any]] = set()
        """What did not end with the trial, whatever was tried."""
        self.agent_run: AgentProgram | None = None
        """The trial's agent, where that is a program which calls the model endpoint."""
        self._requests = requests
        self._answers: dict[int, asyncio.Future[Completion | CompletionFailed]] = {}
        self._delayed: set[int] = set()
        """Requests for whose answers the clocks stand still."""
        self._slowest_sec = 0.0
        self._unanswered_sec: float | None = None

    @property
    def silence(self) -> str:
        """How long the policy had been asked in vain when the agent was cut off, one line; empty
        if it was not asked then, or may just have been slow: it had not been asked much longer
        than it took for an answer before.
        """
        waited = self._unanswered_sec
        if waited is None or waited <= _MUCH_SLOWER * self._slowest_sec:
            return ""
        whole = f"the trial's {self.budget.seconds:g} s (trial_timeout_sec)"
        return f"no answer in the last {waited:.1f} s of {whole}"

    def begin_recording(self, recording: Recording) -> None:
        self._recording = recording
        self._recorder.add(recording)

    def finish_recording(self) -> None:
        if self._recording is not None:
            self._recorder.finish(self._recording)
            self._recording = None

    def type_keys(self, message: TypeKeys) -> None:
        """Type a person's keys; `KeysTyped` reports the result."""
        if self.control.taken:
            self.keyboard.type(message)
        else:
            self.keyboard.refuse(message, "it is not taken over")

    def write(self, message: WriteToAgent) -> None:
        """Keep what a person writes for the agent's next prompt; `AgentWritten` answers."""
        error = "" if self.control.hold.paused else "it is not paused"
        if not error:
            self.messages.append(message.text)
            self.written = True
            self._mark("a person wrote to the agent", False)
        self.post(AgentWritten(message.trial, message.command, message.text, error))

    @property
    def touched(self) -> bool:
        """Whether a person has had a part in what the agent was shown."""
        return self.keyboard.used or self.written

    def _typed(self, part: Typed) -> None:
        if self._recording is not None:
            self._recorder.typed(self._recording, as_sent(part))

    def _mark(self, label: str, attended: bool) -> None:
        """A person takes the terminal over, or gives it back."""
        if self._recording is not None:
            self._recorder.mark(self._recording, label, attended=attended)

    def enter(self, phase: TrialPhase, detail: str = "") -> None:
        self.control.enter(phase, detail)

    async def boundary(self) -> None:
        """Wait here while paused, with the clocks stopped.

        Raises:
            AgentEnded: it was stopped.
            SandboxLostError: it can't be thawed.
        """
        await self.control.boundary()
        if self.control.ending is not None:
            raise AgentEnded(self.control.ending)

    async def sample(
        self,
        messages: tuple[Message, ...],
        *,
        turn: int,
        purpose: str,
        **asked: Unpack[CallOptions],
    ) -> Completion:
        """Ask the engine for a completion and wait for it.

        Raises:
            AgentEnded: the policy gave no answer.
            ContextOverflow: the prompt is too long.
            Unsupported: the policy can't do what is asked.
        """
        wanted = SampleWanted(
            next(self._requests), self.spec.trial, turn, messages, purpose, **asked
        )
        request = wanted.request
        future: asyncio.Future[Completion | CompletionFailed]
        future = asyncio.get_running_loop().create_future()
        self._answers[request] = future
        begun = self.budget.active()
        self._unanswered_sec = None
        self.enter(TrialPhase.MODEL, "" if purpose == "turn" else purpose)
        try:
            with self.watch.during("sampling"):
                self.post(wanted)
                answer = await future
        except asyncio.CancelledError:
            self._unanswered_sec = self.budget.active() - begun
            raise
        finally:
            del self._answers[request]
            self._on_time(request)
        self._slowest_sec = max(self._slowest_sec, self.budget.active() - begun)
        await self.control.thawed()
        if isinstance(answer, Completion):
            return answer
        match answer.kind:
            case "context_overflow":
                self.notes.overflow = answer.reason
                raise ContextOverflow(answer)
            case "unsupported":
                raise Unsupported(answer.reason)
            case "provider_error" | "refused" | "too_slow":
                raise AgentEnded(answer.kind, answer.reason)

    def abandon(self, turn: int) -> None:
        """Say that the agent didn't take the answer to the call of this turn."""
        self.post(SampleAbandoned(self.spec.trial, turn))

    def deliver(self, answer: Completion | CompletionFailed) -> None:
        """Hand in the answer to a request, unless it is no longer awaited."""
        future = self._answers.get(answer.request)
        if future is not None and not future.done():
            future.set_result(answer)

    def delay(self, message: CompletionDelayed) -> None:
        """Hold the clocks while a request can't be answered, or no longer."""
        if message.request not in self._answers:
            return
        if not message.delayed:
            self._on_time(message.request)
        elif message.request not in self._delayed:
            self._delayed.add(message.request)
            self.budget.hold()
            self.watch.delay()
            self.budget.give_back(message.waited_sec)

    def _on_time(self, request: int) -> None:
        if request in self._delayed:
            self._delayed.discard(request)
            self.budget.release()
            self.watch.go_on()


LINK: ContextVar[TrialLink] = ContextVar("tbtui_trial_link")


@contextlib.contextmanager
def linked(link: TrialLink) -> Iterator[None]:
    """Make `link` the one that an agent built in this block will find."""
    token = LINK.set(link)
    try:
        yield
    finally:
        LINK.reset(token)
