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
    """One completion: P prompt ids, N completion ids and their N log-probabilities (nats)."""

    prompt_ids: tuple[int, ...]
    completion_ids: tuple[int, ...]
    logprobs: npt.NDArray[np.float32]
    weights_version: int = 0
    """The weights that drew it; 0 is the starting checkpoint."""
    summary: bool = False
    """The agent asked for it to summarise its own history, not to act."""
    cached_tokens: int | None = None
    """Tokens of the prompt in the sampler's cache; None where it doesn't report them."""


@dataclass(frozen=True, slots=True)
class Segment:
    """T tokens; `mask` is True on those that are trained, `logprobs` is 0 elsewhere."""

    tokens: npt.NDArray[np.int32]
    mask: npt.NDArray[np.bool_]
    logprobs: npt.NDArray[np.float32]

    @property
    def action_tokens(self) -> int:
        return int(np.count_nonzero(self.mask))


def merge(calls: Iterable[Call], train_summaries: bool = True) -> list[Segment]:
    """The fewest segments that hold every call's tokens, in order.

    Without `train_summaries`, what the policy wrote in summary calls is context like any other.
    Time is linear in the tokens of all prompts.

    Raises:
        ValueError: a call has no prompt, or not as many log-probabilities as tokens.
    """
    runs: list[list[Call]] = []
    history: tuple[int, ...] = ()
    for number, call in enumerate(calls, 1):
        if not call.prompt_ids:
            raise ValueError(f"call {number} has an empty prompt")
        if len(call.completion_ids) != len(call.logprobs):
            raise ValueError(
                f"call {number} has {len(call.completion_ids)} tokens"
                f" but {len(call.logprobs)} log-probabilities"
            )
        if runs and call.prompt_ids[: len(history)] == history:
            runs[-1].append(call)
        else:
            runs.append([call])
        history = call.prompt_ids + call.completion_ids
    return [_segment(run, train_summaries) for run in runs]


def _segment(run: Sequence[Call], train_summaries: bool) -> Segment:
    """The segment of calls that extend each other: the last one's tokens are those of all."""
    last = run[-1]
    tokens = np.array(last.prompt_ids + last.completion_ids, np.int32)
    mask = np.zeros(len(tokens), np.bool_)
    logprobs = np.zeros(len(tokens), np.float32)
    for call in run:
        if train_summaries or not call.summary:
            drawn = slice(len(call.prompt_ids), len(call.prompt_ids) + len(call.completion_ids))
            mask[drawn] = True
            logprobs[drawn] = call.logprobs
    return Segment(tokens, mask, logprobs)
