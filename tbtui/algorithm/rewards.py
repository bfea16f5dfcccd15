"""What is taken from a reward before advantages are computed from it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tbtui.algorithm.segments import Call


@dataclass(frozen=True, slots=True)
class RewardSettings:
    """Penalties in units of reward; zero switches one off."""

    overlong_penalty: float = 0.0
    """Taken from a trial whose longest context fills its limit."""
    overlong_buffer: int = 256
    """Tokens before the limit over which the penalty rises; at least 1."""
    turn_penalty: float = 0.0
    """Taken for each turn."""


def longest_context(calls: Iterable[Call]) -> int:
    """Tokens of the call with the most, prompt and completion together; 0 without calls."""
    return max((len(call.prompt_ids) + len(call.completion_ids) for call in calls), default=0)


def shaped(reward: float, turns: int, tokens: int, limit: int, settings: RewardSettings) -> float:
    """The reward that training sees.

    `tokens` is the trial's longest context and `limit` the most that the model takes. The length
    penalty is zero up to `limit - overlong_buffer` tokens, rises linearly from there, and is
    `overlong_penalty` at the limit and beyond: the soft overlong punishment of Yu et al. 2025
    (DAPO, arXiv 2503.14476, section 3.4, equation 13), there with a penalty of 1.
    """
    into_buffer = (tokens - (limit - settings.overlong_buffer)) / settings.overlong_buffer
    overlong = settings.overlong_penalty * min(1.0, max(0.0, into_buffer))
    return reward - overlong - settings.turn_penalty * turns
