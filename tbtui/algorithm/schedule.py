"""How the learning rate changes over a run."""

from __future__ import annotations

from typing import Literal

Schedule = Literal["constant", "linear"]


def learning_rate(base: float, schedule: Schedule, step: int, steps: int) -> float:
    """The rate of optimiser step `step` (from 1) of `steps`.

    `linear` falls from `base` in equal parts, so that the last step still learns a little: AdamW
    moves by the rate however small the gradient is, and a nearly solved batch's gradient is noise.
    """
    match schedule:
        case "constant":
            return base
        case "linear":
            return base * max(1, steps - step + 1) / max(1, steps)
