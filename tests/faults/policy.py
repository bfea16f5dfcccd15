"""A policy that answers by script, instantly, and fails on demand."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tbtui.policies.base import Answer as Said
from tbtui.policies.base import Message, PolicyInfo, Sample, SampleRequest
from tests.engines.fakes import RotePolicy

TAG = "trial-script:"
"""What an instruction says right before its trial's name."""
_CHUNK = 4


@dataclass(frozen=True, slots=True)
class Cut:
    """A completion that hit max_tokens."""

    text: str


@dataclass(frozen=True, slots=True)
class Fail:
    """No completion: the error is raised, the first `times` times that the trial gets here."""

    error: Exception
    times: int = 1_000_000
    then: str = ""
    """The completion after that."""
    after_sec: float = 0.0


@dataclass(frozen=True, slots=True)
class Spoil:
    """A completion whose record is no good."""

    text: str
    spoil: Callable[[Sample], Sample]


class Hang:
    """No answer at all."""


Answer = str | Cut | Fail | Spoil | Hang


class ChunkRenderer:
    """A token is up to four characters, or the mark where a role begins to speak.

    Takes any text, lone surrogates included, and gives it back exactly.
    """

    def __init__(self) -> None:
        self._ids: dict[str, int] = {}
        self._texts: list[str] = []
        self.assistant = self._id("<|assistant|>")

    def encode(self, text: str) -> tuple[int, ...]:
        return tuple(self._id(text[at : at + _CHUNK]) for at in range(0, len(text), _CHUNK))

    def _id(self, text: str) -> int:
        number = self._ids.setdefault(text, len(self._texts))
        if number == len(self._texts):
            self._texts.append(text)
        return number

    def _said(self, messages: Sequence[Message]) -> list[int]:
        ids: list[int] = []
        for message in messages:
            ids += (self._id(f"<|{message.role}|>"), *self.encode(message.content))
        return ids

    def render(self, messages: Sequence[Message]) -> tuple[int, ...]:
        return (*self._said(messages), self.assistant)

    def extend(
        self, history: Sequence[int], messages: Sequence[Message], known: int
    ) -> tuple[int, ...]:
        return (*history, *self._said(messages[known:]), self.assistant)

    def answer(self, completion_ids: Sequence[int]) -> Said:
        return Said("".join(map(self._texts.__getitem__, completion_ids)))

    def spell(self, text: str) -> tuple[int, ...]:
        return self.encode(text)

    def pieces(self, token_ids: Sequence[int]) -> list[str]:
        return [self._texts[token] for token in token_ids]


class FaultyPolicy(RotePolicy):
    """Answers each trial from `scripts`, by turn; the last answer repeats.

    Which trial asks is read from the prompt, whose instruction names the script after `TAG`.
    """

    def __init__(self, scripts: dict[str, Sequence[Answer]], context_limit: int = 32_768) -> None:
        super().__init__()
        self._scripts = scripts
        self._failures: Counter[str] = Counter()
        self.info = PolicyInfo("faulty", "faulty", None, context_limit, ("importance_sampling",))
        self.renderer = ChunkRenderer()

    async def sample(self, request: SampleRequest) -> Sample:
        turn = request.prompt_ids.count(self.renderer.assistant) - 1
        name = self._asker(request.prompt_ids)
        script = self._scripts[name]
        answer = script[min(turn, len(script) - 1)]
        if isinstance(answer, Hang):
            await asyncio.Event().wait()
        if isinstance(answer, Fail):
            self._failures[name] += 1
            if self._failures[name] <= answer.times:
                await asyncio.sleep(answer.after_sec)
                raise answer.error
            answer = answer.then
        match answer:
            case Cut(text):
                return self._sample(text, "length")
            case Spoil(text, spoil):
                return spoil(self._sample(text, "stop"))
            case str():
                return self._sample(answer, "stop")
        raise AssertionError(f"no such answer: {answer!r}")

    def _asker(self, prompt: Sequence[int]) -> str:
        # The instruction is within the first prompt of a Terminus conversation.
        text = self.renderer.answer(prompt[: 4_000 // _CHUNK * 4]).text
        return text.partition(TAG)[2].split(maxsplit=1)[0]

    def _sample(self, text: str, stop_reason: str) -> Sample:
        ids = self.renderer.encode(text)
        logprobs = np.full(len(ids), -0.5, np.float32)
        return Sample(ids, logprobs, "length" if stop_reason == "length" else "stop", 0)
