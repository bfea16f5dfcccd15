"""Stand-ins for what the engine tests don't test: a pool without processes, a model by rote.

Both speak the real protocols (`rollout.messages`, `policies.base`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from tbtui.engines.trials.running import RunningTrials
from tbtui.journal.events import PhaseSeconds, TrialPhase
from tbtui.policies.base import (
    Answer,
    Datum,
    Ended,
    GradientResult,
    LossSettings,
    Message,
    OptimSettings,
    PolicyError,
    PolicyInfo,
    PolicyStatus,
    Sample,
    SampleRequest,
    StepResult,
)
from tbtui.rollout.messages import (
    Completion,
    CompletionDelayed,
    CompletionFailed,
    ControlVerb,
    FinishReason,
    PauseEntered,
    PauseLeft,
    PhaseEntered,
    SampleWanted,
    TrialDone,
    TrialFacts,
    TrialSpec,
    TypeKeys,
    WriteToAgent,
)


class ByteRenderer:
    """A token is a character."""

    def render(self, messages: Sequence[Message]) -> tuple[int, ...]:
        return tuple(ord(c) for m in messages for c in f"<{m.role}>{m.content}")

    def extend(
        self, history: Sequence[int], messages: Sequence[Message], known: int
    ) -> tuple[int, ...]:
        return (*history, *self.render(messages[known:]))

    def answer(self, completion_ids: Sequence[int]) -> Answer:
        return Answer("".join(map(chr, completion_ids)))

    def spell(self, text: str) -> tuple[int, ...]:
        return tuple(map(ord, text))

    def pieces(self, token_ids: Sequence[int]) -> list[str]:
        return [chr(token) for token in token_ids]


class RotePolicy:
    """Answers with what `say` returns, learns nothing, remembers what it was asked to train on."""

    def __init__(self, say: Callable[[SampleRequest], str] = lambda _: "ok") -> None:
        self.say = say
        self.trained: list[tuple[list[Datum], OptimSettings]] = []
        """What each optimiser step was taken on."""
        self.calls: list[str] = []
        """What was asked of it but samples, in order."""
        self.before_training: asyncio.Event | None = None
        """Gradients wait for it, when there is one."""
        self._accumulated: list[Datum] = []
        self.published = 0
        self.requests: list[SampleRequest] = []
        self.fails: str | None = None
        self.thinking: asyncio.Event | None = None
        """Answers wait for it, when there is one."""
        self.info = PolicyInfo("rote", "rote", None, 10_000, ("importance_sampling",))
        self.renderer = ByteRenderer()

    async def start(self, resume: Path | None = None) -> None: ...

    async def sample(self, request: SampleRequest) -> Sample:
        self.requests.append(request)
        if self.thinking:
            await self.thinking.wait()
        if self.fails:
            raise PolicyError(self.fails)
        ids = tuple(map(ord, self.say(request)))
        return Sample(ids, np.full(len(ids), -0.5, np.float32), "stop", self.published)

    async def accumulate(self, data: Sequence[Datum], loss: LossSettings) -> GradientResult:
        self.calls.append("accumulate")
        self._accumulated += data
        if self.before_training:
            await self.before_training.wait()
        logprobs = tuple(datum.logprobs[datum.mask] for datum in data)
        return GradientResult(0.0, 0.5, logprobs, 0.01)

    async def apply(self, settings: OptimSettings) -> StepResult:
        self.calls.append("apply")
        self.trained.append((self._accumulated, settings))
        self._accumulated = []
        return StepResult(1.0, 0.01)

    async def score(
        self, data: Sequence[Datum], weights: Literal["trained", "reference"]
    ) -> tuple[npt.NDArray[np.float32], ...]:
        self.calls.append(f"score {weights}")
        return tuple(datum.logprobs[datum.mask] for datum in data)

    async def publish(self) -> int:
        self.published += 1
        return self.published

    async def save(self, directory: Path) -> None:
        await asyncio.to_thread(directory.mkdir, parents=True, exist_ok=True)

    async def load(self, directory: Path) -> None: ...

    async def forget(self, directory: Path) -> None: ...

    def status(self) -> PolicyStatus:
        return PolicyStatus(0, 0, len(self.requests), 0, (), "idle")

    async def close(self, ended: Ended = "success") -> None: ...


def facts(
    verdict: float | None = 1.0, finish: FinishReason = "completed", error: str | None = None
) -> TrialFacts:
    return TrialFacts(
        finish=finish,
        turns=1,
        verdict=verdict,
        exception_type="PolicyFailedError" if error else None,
        exception_message=error,
        failed_phase=None,
        last_parse_error=None,
        seconds=PhaseSeconds(sampling=0.5),
    )


@dataclass
class FakePool:
    """Runs each trial as a script on the engine's own loop; by default one turn, then solved."""

    runner: RunningTrials[FakePool]
    script: Callable[[FakePool, TrialSpec], object] | None = None
    started: list[TrialSpec] = field(default_factory=list)
    controls: list[tuple[str, ControlVerb]] = field(default_factory=list)
    typed: list[TypeKeys] = field(default_factory=list)
    written: list[WriteToAgent] = field(default_factory=list)
    delays: list[CompletionDelayed] = field(default_factory=list)
    most_at_once: int = 0
    _live: set[str] = field(default_factory=set)
    _gates: dict[str, asyncio.Event] = field(default_factory=dict)
    _answers: dict[int, asyncio.Future[Completion | CompletionFailed]] = field(default_factory=dict)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.pids: dict[int, int] = {}

    async def start(self) -> None: ...

    async def stop(self) -> None:
        for task in tuple(self._tasks):
            task.cancel()

    def start_trial(self, spec: TrialSpec) -> None:
        self.started.append(spec)
        self._live.add(spec.trial)
        self.most_at_once = max(self.most_at_once, len(self._live))
        self._gates[spec.trial] = asyncio.Event()
        self._gates[spec.trial].set()
        if self.script is None or self.script(self, spec) is None:
            self._spawn(self.play(spec, facts()))

    def _spawn(self, work: Coroutine[Any, Any, object]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def end(self, spec: TrialSpec, result: TrialFacts, turns: int = 1) -> bool:
        """Use as a script's last act: play `turns` turns, then end like this."""
        self._spawn(self.play(spec, result, turns))
        return True

    def later(
        self, gate: asyncio.Event, act: Callable[[FakePool, TrialSpec], object], spec: TrialSpec
    ) -> bool:
        """Use as a script's last act: play another script once the gate is open."""

        async def wait() -> None:
            await gate.wait()
            act(self, spec)

        self._spawn(wait())
        return True

    async def play(self, spec: TrialSpec, result: TrialFacts, turns: int = 1) -> None:
        self.runner.on_message(1, PhaseEntered(spec.trial, TrialPhase.SETUP))
        messages: tuple[Message, ...] = ()
        for turn in range(1, turns + 1):
            gate = self._gates[spec.trial]
            if not gate.is_set():
                self.runner.on_message(1, PauseEntered(spec.trial))
                await gate.wait()
                self.runner.on_message(1, PauseLeft(spec.trial))
            messages = (*messages, Message("user", f"turn {turn}"))
            answer = await self.ask(spec, turn, messages)
            if isinstance(answer, CompletionFailed):
                result = facts(None, answer.kind, answer.reason)
                break
            messages = (*messages, Message("assistant", answer.text))
        self._live.discard(spec.trial)
        self.runner.on_message(1, TrialDone(spec.trial, result))

    async def ask(
        self, spec: TrialSpec, turn: int, messages: tuple[Message, ...]
    ) -> Completion | CompletionFailed:
        request = len(self._answers) + 1
        self._answers[request] = asyncio.get_running_loop().create_future()
        self.runner.on_message(1, SampleWanted(request, spec.trial, turn, messages))
        return await self._answers[request]

    def control(self, trial: str, verb: ControlVerb, reason: str = "") -> bool:
        self.controls.append((trial, verb))
        match verb:
            case "pause":
                self._gates[trial].clear()
            case "resume":
                self._gates[trial].set()
            case "stop" | "cancel" | "expire":
                self._live.discard(trial)
                verdict, finish = (0.0, "deadline") if verb == "expire" else (None, "cancelled")
                done = TrialDone(trial, facts(verdict, finish))
                asyncio.get_running_loop().call_soon(self.runner.on_message, 1, done)
        return True

    def type_keys(self, keys: TypeKeys) -> bool:
        self.typed.append(keys)
        return True

    def write(self, message: WriteToAgent) -> bool:
        self.written.append(message)
        return True

    def reply(self, answer: Completion | CompletionFailed) -> bool:
        self._answers[answer.request].set_result(answer)
        return True

    def delay(self, delayed: CompletionDelayed) -> bool:
        self.delays.append(delayed)
        return True
