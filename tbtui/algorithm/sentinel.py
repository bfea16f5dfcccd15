"""The sentinel: whether a sampler draws with the weights that were published to it. Pure.

After a publication the sampler draws a short completion of a fixed prompt with a fixed seed, and
the trainer scores its tokens. Two things can be wrong. Where the trainer's log-probabilities of the
same tokens have moved since an earlier publication and the sampler's have not, the publication has
not arrived. Where sampler and trainer differ by more than rounding explains, something else than
these weights has.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tbtui.findings import Finding, Rule

LEAST_MOVE = 0.1
"""Share of the tolerance by which the trainer has to have moved before the sampler is expected to
have followed: smaller moves add up over publications until they are that large."""
FOLLOWED = 0.25
"""Share of the trainer's move that the sampler has to have made. One that has the new weights makes
about all of it; one that has not makes none, or what rounding does."""


@dataclass(frozen=True, slots=True)
class Probe:
    """A completion of N tokens that was drawn after a publication; log-probabilities in nats."""

    version: int
    """The published weights' version."""
    tokens: tuple[int, ...]
    sampled: npt.NDArray[np.float32]
    """[N] The sampler's."""
    trained: npt.NDArray[np.float32]
    """[N] The trainer's, of the same tokens."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a probe says of a publication."""

    numbers: dict[str, float]
    """Nats a token: `gap` between sampler and trainer with its `limit`; `sampler_move` and
    `trainer_move` since the earlier probe, where both drew the same tokens."""
    finding: Finding | None = None
    """The publication has not arrived, or something else has."""
    compared: bool = False
    """The sampler was seen to have moved: this probe is the one to compare the next with."""


def judge(now: Probe, before: Probe | None, tolerance: float, step: int = 0) -> Verdict:
    """Judge the publication of a step, after which `now` was taken.

    Args:
        before: the last probe that was `compared`, or the first; None: there is none yet.
        tolerance: nats a token that sampler and trainer may differ by with the same weights.
    """
    gap = _mean_gap(now.sampled, now.trained)
    numbers = {"gap": gap, "limit": tolerance}
    compared = before is None or before.tokens != now.tokens
    if before is not None and before.tokens == now.tokens:
        sampler = _mean_gap(now.sampled, before.sampled)
        trainer = _mean_gap(now.trained, before.trained)
        numbers |= {"sampler_move": sampler, "trainer_move": trainer}
        compared = trainer >= LEAST_MOVE * tolerance
        if compared and sampler < FOLLOWED * trainer:
            text = (
                f"the sampler still draws with version {before.version}, not {now.version}: on the"
                f" probe it moved by {sampler:.2g} nats a token, the trainer by {trainer:.2g}"
            )
            return Verdict(numbers, _mismatch(text, numbers, step))
    if not gap <= tolerance:  # NaN is a mismatch too
        text = (
            f"the sampler's version {now.version} is not the trainer's: on the probe they differ by"
            f" {gap:.2g} nats a token, limit {tolerance:g}"
        )
        return Verdict(numbers, _mismatch(text, numbers, step), compared)
    return Verdict(numbers, compared=compared)


def _mismatch(text: str, numbers: dict[str, float], step: int) -> Finding:
    # Every later step would be wrong as well.
    return Finding(Rule.SAMPLER_MISMATCH, text, "blocks", step=step, numbers=numbers)


def _mean_gap(one: npt.NDArray[np.float32], other: npt.NDArray[np.float32]) -> float:
    return float(np.abs(one.astype(np.float64) - other).mean())
