"""From a trial's model calls to the token sequences that it is trained on.

The rule: use the tokens exactly as they were sampled. The calls form a tree: a call whose prompt
starts with every token of a sequence extends it, the longest one that it can; any other prompt (a
sub-agent's, one after a compaction, a retry, a rewritten history) opens a new segment, in which
what it shares with others is context. Each completion token is in exactly one segment, once.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class Call:
    """One completion: P prompt ids, N completion ids and their N log-probabilities (nats) by the
    model itself, NaN where the sampler doesn't give that."""

    prompt_ids: tuple[int, ...]
    completion_ids: tuple[int, ...]
    logprobs: npt.NDArray[np.float32]
    weights_version: int = 0
    """The weights that drew it; 0 is the starting checkpoint."""
    summary: bool = False
    """The agent asked for it to summarise its own history, not to act."""
    cached_tokens: int | None = None
    """Tokens of the prompt in the sampler's cache; None where it doesn't report them."""
    abandoned: bool = False
    """The agent didn't wait for it, or didn't take it."""
    side: bool = False
    """It has no tools, beside a conversation that has them: a title, a summary, a check."""
    handed_back: bool = False
    """A person has typed in the trial, and nothing more since it was sampled."""


@dataclass(frozen=True, slots=True)
class Segment:
    """T tokens; `mask` is True on those that are trained, `logprobs` is 0 elsewhere."""

    tokens: npt.NDArray[np.int32]
    mask: npt.NDArray[np.bool_]
    logprobs: npt.NDArray[np.float32]
    calls: int = 1
    """How many calls it has."""
    trained: tuple[int, ...] = ()
    """Which calls are trained on in it: their places among all, from 0, in order."""
    rewritten: bool = False
    """It begins where another one goes on otherwise within, or instead of, what the policy had
    said: the agent rewrote history."""

    @property
    def action_tokens(self) -> int:
        return int(np.count_nonzero(self.mask))


def merge(
    calls: Iterable[Call],
    train_summaries: bool = True,
    train_abandoned: bool = False,
    train_side_calls: bool = False,
) -> list[Segment]:
    """The fewest segments that hold every call's tokens, in the order in which they were opened.

    Without `train_summaries`, what the policy wrote in summary calls is context like any other.
    Without `train_abandoned`, abandoned calls have no part, and without `train_side_calls` those
    beside the agent's conversation.

    Raises:
        ValueError: a call has no prompt, or not as many log-probabilities as tokens.
    """
    branches: list[_Branch] = []
    for number, call in enumerate(calls, 1):
        if not call.prompt_ids:
            raise ValueError(f"call {number} has an empty prompt")
        if len(call.completion_ids) != len(call.logprobs):
            raise ValueError(
                f"call {number} has {len(call.completion_ids)} tokens"
                f" but {len(call.logprobs)} log-probabilities"
            )
        if (call.abandoned and not train_abandoned) or (call.side and not train_side_calls):
            continue
        prompt = np.array(call.prompt_ids, np.int32)
        known = prompt.tobytes()
        extended = [branch for branch in branches if known.startswith(branch.tokens)]
        if extended:
            # The latest of those that are as long.
            branch = max(reversed(extended), key=lambda branch: len(branch.tokens))
        else:
            nearest = max(branches, key=lambda branch: branch.shared(prompt), default=None)
            branch = _Branch(nearest is not None and nearest.rewritten_by(prompt))
            branches.append(branch)
        branch.calls.append((number - 1, call))
        branch.tokens = known + np.array(call.completion_ids, np.int32).tobytes()
    return [branch.segment(train_summaries) for branch in branches]


@dataclass(slots=True)
class _Branch:
    """Calls that extend each other."""

    rewritten: bool
    calls: list[tuple[int, Call]] = field(default_factory=list)
    """With their places among all."""
    tokens: bytes = b""
    """The last call's prompt and completion, four bytes each: they are compared at once."""

    def shared(self, prompt: npt.NDArray[np.int32]) -> int:
        """How many tokens `prompt` begins with that this branch begins with too."""
        mine = np.frombuffer(self.tokens, np.int32)
        length = min(len(mine), len(prompt))
        differ = mine[:length] != prompt[:length]
        return int(np.argmax(differ)) if differ.any() else length

    def rewritten_by(self, prompt: npt.NDArray[np.int32]) -> bool:
        """Whether `prompt` leaves this branch within what the policy said, and not where an answer
        ends: it goes on from one that is empty, where the branch goes on from another."""
        shared = self.shared(prompt)
        answers = [
            (len(call.prompt_ids), len(call.prompt_ids) + len(call.completion_ids))
            for _, call in self.calls
        ]
        return shared < len(prompt) and (
            any(begin <= shared < end for begin, end in answers)
            and all(shared != end for _, end in answers)
        )

    def segment(self, train_summaries: bool) -> Segment:
        tokens = np.frombuffer(self.tokens, np.int32).copy()
        mask = np.zeros(len(tokens), np.bool_)
        logprobs = np.zeros(len(tokens), np.float32)
        trained = [(n, call) for n, call in self.calls if train_summaries or not call.summary]
        for _, call in trained:
            drawn = slice(len(call.prompt_ids), len(call.prompt_ids) + len(call.completion_ids))
            mask[drawn] = True
            logprobs[drawn] = call.logprobs
        numbers = tuple(n for n, _ in trained)
        return Segment(tokens, mask, logprobs, len(self.calls), numbers, self.rewritten)
