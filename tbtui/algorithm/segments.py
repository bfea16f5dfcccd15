"""From a trial's model calls to the token sequences that it is trained on.

The rule: use the tokens exactly as they were sampled. While a call's prompt starts with every
token of the sequence so far, the call extends that sequence; a prompt that rewrites history opens
a new segment. Each completion token is in exactly one segment, once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class Call:
    """One completion: P prompt ids, N completion ids and their N log-probabilities."""

    prompt_ids: tuple[int, ...]
    completion_ids: tuple[int, ...]
    logprobs: npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Segment:
    """T tokens; `mask` is True on those that the policy drew, `logprobs` is 0 elsewhere."""

    tokens: npt.NDArray[np.int32]
    mask: npt.NDArray[np.bool_]
    logprobs: npt.NDArray[np.float32]

    @property
    def action_tokens(self) -> int:
        return int(self.mask.sum())


class _Builder:
    def __init__(self) -> None:
        self.tokens: list[int] = []
        self.mask: list[bool] = []
        self.logprobs: list[float] = []

    def extends(self, prompt: Sequence[int]) -> bool:
        return list(prompt[: len(self.tokens)]) == self.tokens

    def add(self, call: Call) -> None:
        context = call.prompt_ids[len(self.tokens) :]
        self.tokens += [*context, *call.completion_ids]
        self.mask += [False] * len(context) + [True] * len(call.completion_ids)
        self.logprobs += [0.0] * len(context) + call.logprobs.tolist()

    def build(self) -> Segment:
        return Segment(
            np.asarray(self.tokens, np.int32),
            np.asarray(self.mask, np.bool_),
            np.asarray(self.logprobs, np.float32),
        )


def merge(calls: Iterable[Call]) -> list[Segment]:
    """The fewest segments that hold every call's tokens, in order.

    Raises:
        ValueError: a call has no prompt, or as many log-probabilities as tokens it has not.
    """
    builders: list[_Builder] = []
    for number, call in enumerate(calls, 1):
        if not call.prompt_ids:
            raise ValueError(f"call {number} has an empty prompt")
        if len(call.completion_ids) != len(call.logprobs):
            raise ValueError(
                f"call {number} has {len(call.completion_ids)} tokens"
                f" but {len(call.logprobs)} log-probabilities"
            )
        if not builders or not builders[-1].extends(call.prompt_ids):
            builders.append(_Builder())
        builders[-1].add(call)
    return [builder.build() for builder in builders]
