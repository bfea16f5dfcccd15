"""One trial's side of the conversation with the policy: exact tokens in, exact tokens kept."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import numpy as np

from tbtui.algorithm.segments import Call
from tbtui.engines.grpo.rollouts import derive_seed
from tbtui.journal.events import TurnSampled, TurnStarted
from tbtui.journal.samples import SampleRecord
from tbtui.journal.writer import JournalWriter
from tbtui.policies.base import (
    Answer,
    ContextOverflowError,
    Message,
    Policy,
    PolicyError,
    Sample,
    SampleRequest,
)
from tbtui.rollout.messages import Completion, SampleWanted

# A completion of fewer tokens than this can't hold any answer.
_LEAST_COMPLETION = 8


Draw = Callable[[SampleRequest], Awaitable[Sample]]
"""Gives the completion that is asked for; raises `PolicyError`."""


@dataclass(frozen=True, slots=True)
class SamplingLimits:
    """The most tokens of a model's context and of one completion."""

    context: int
    completion: int


@dataclass(frozen=True, slots=True)
class _History:
    """Messages, the last one the policy's own, and the exact tokens that they stand for."""

    messages: tuple[Message, ...]
    tokens: tuple[int, ...]


class LoopTurns:
    """Spreads work over the iterations of the event loop, one piece to each.

    Thirty-two trials that ask at once would else keep the loop from everything else for as long
    as it takes to render and record all of them.
    """

    def __init__(self) -> None:
        self._lock = asyncio.Lock()

    async def wait(self) -> None:
        async with self._lock:
            await asyncio.sleep(0)


class Conversation:
    """Renders, samples and records the model calls of one trial.

    The policy's sampler is the recorder: what is journalled and trained on are the ids that went
    in and came out, never a re-tokenised text.
    """

    def __init__(
        self,
        trial: str,
        seed: int,
        temperature: float,
        limits: SamplingLimits,
        policy: Policy,
        journal: JournalWriter,
        turns: LoopTurns,
    ) -> None:
        self.calls: list[Call] = []
        self._trial = trial
        self._seed = seed
        self._temperature = temperature
        self._limits = limits
        self._policy = policy
        self._journal = journal
        self._turns = turns
        self._histories: list[_History] = []
        """What the next prompt may go on from: the main agent's conversation, then those of the
        sub-agents that have been summarising it since."""

    async def answer(self, wanted: SampleWanted, draw: Draw) -> Completion:
        """`draw` the completion that the agent asks for, and record it.

        Raises:
            ContextOverflowError: the prompt leaves no room for an answer.
            PolicyError: the policy failed, or gave what can't be trained on.
        """
        await self._turns.wait()
        self._journal.append(
            TurnStarted(trial=self._trial, turn=wanted.turn, purpose=wanted.purpose)
        )
        messages = tuple(_message(role, content) for role, content in wanted.messages)
        prompt = self._render(messages)
        room = self._limits.context - len(prompt)
        if room < _LEAST_COMPLETION:
            raise ContextOverflowError(
                f"the prompt has {len(prompt)} tokens, the context limit is {self._limits.context}"
            )
        started = time.monotonic()
        sample = await draw(
            SampleRequest(
                prompt_ids=prompt,
                max_tokens=min(self._limits.completion, room),
                temperature=self._temperature,
                seed=derive_seed(self._seed, len(self.calls)),
            )
        )
        _require_sound(sample)
        await self._turns.wait()
        answer = self._policy.renderer.answer(sample.completion_ids)
        summary = wanted.purpose != "turn"
        self._record(wanted, prompt, answer, sample, started)
        self.calls.append(
            Call(
                prompt,
                sample.completion_ids,
                sample.logprobs,
                sample.weights_version,
                summary,
                sample.cached_tokens,
            )
        )
        if not summary:
            self._histories.clear()
        said = (*messages, Message("assistant", answer.text))
        self._histories.append(_History(said, prompt + sample.completion_ids))
        return Completion(
            request=wanted.request,
            text=answer.text,
            thinking=answer.thinking,
            truncated=sample.stop_reason == "length",
            prompt_tokens=len(prompt),
            completion_tokens=len(sample.completion_ids),
        )

    def _render(self, messages: tuple[Message, ...]) -> tuple[int, ...]:
        known = [h for h in self._histories if messages[: len(h.messages)] == h.messages]
        if not known:
            return self._policy.renderer.render(messages)
        longest = max(known, key=lambda history: len(history.messages))
        return self._policy.renderer.extend(longest.tokens, messages, len(longest.messages))

    def _record(
        self,
        wanted: SampleWanted,
        prompt: tuple[int, ...],
        answer: Answer,
        sample: Sample,
        started: float,
    ) -> None:
        seconds = time.monotonic() - started
        row = self._journal.add_sample(
            SampleRecord(
                trial=self._trial,
                turn=wanted.turn,
                prompt_ids=prompt,
                completion_ids=sample.completion_ids,
                logprobs=sample.logprobs,
                pieces=tuple(self._policy.renderer.pieces(sample.completion_ids)),
                prompt_text=wanted.messages[-1][1],
                stop_reason=sample.stop_reason,
                weights_version=sample.weights_version,
                temperature=self._temperature,
                seconds=seconds,
                summary=wanted.purpose != "turn",
            )
        )
        drawn = sample.logprobs
        self._journal.append(
            TurnSampled(
                trial=self._trial,
                turn=wanted.turn,
                purpose=wanted.purpose,
                sample=row,
                text=answer.text,
                thinking=answer.thinking,
                prompt_tokens=len(prompt),
                completion_tokens=len(sample.completion_ids),
                mean_logprob=float(drawn.mean()) if drawn.size else 0.0,
                min_logprob=float(drawn.min()) if drawn.size else 0.0,
                stop_reason=sample.stop_reason,
                weights_version=sample.weights_version,
                cached_tokens=sample.cached_tokens,
                seconds=seconds,
            )
        )


def _require_sound(sample: Sample) -> None:
    """Raise `PolicyError` for what can't be trained on."""
    if sample.logprobs.shape != (len(sample.completion_ids),):
        raise PolicyError(
            f"{len(sample.completion_ids)} tokens came with"
            f" {sample.logprobs.size} log-probabilities"
        )
    if not np.isfinite(sample.logprobs).all():
        raise PolicyError("a log-probability is not a finite number")


def _message(role: str, content: str) -> Message:
    match role:
        case "system" | "user" | "assistant":
            return Message(role, content)
        case _:
            raise ValueError(f"unknown chat role {role!r}")
