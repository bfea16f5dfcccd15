"""How many steps a run takes, and how the learning rate changes over them."""

from __future__ import annotations

import math
from typing import Literal

Schedule = Literal["constant", "linear", "cosine"]


def learning_rate(
    base: float, schedule: Schedule, step: int, steps: int, warmup_steps: int = 0
) -> float:
    """The rate of step `step` (from 1) of `steps`.

    In the first `warmup_steps` the rate rises in equal parts and stays below `base`, which the
    step after them is the first to have. From there it stays (`constant`), falls in equal parts
    (`linear`) or along half a cosine (`cosine`; Loshchilov and Hutter 2017, arXiv 1608.03983,
    equation 5), so that the last step still learns a little: AdamW moves by the rate however
    small the gradient is, and a nearly solved batch's gradient is noise.
    """
    if step <= warmup_steps:
        return base * step / (warmup_steps + 1)
    falling = max(1, steps - warmup_steps)
    done = min(step - warmup_steps - 1, falling - 1) / falling
    match schedule:
        case "constant":
            return base
        case "linear":
            return base * (1 - done)
        case "cosine":
            return base * (1 + math.cos(math.pi * done)) / 2


def total_steps(max_steps: int | None, n_epochs: int | None, tasks: int, batch_size: int) -> int:
    """Batches in a run: of `max_steps` and as many as `n_epochs` passes over the tasks need, the
    fewer. None: no such limit. The last batch of the passes is filled up from one more.

    Raises:
        ValueError: there is no limit, no task, or no place in a batch.
    """
    if max_steps == 0:
        return 0  # which no task is needed for
    if tasks < 1 or batch_size < 1:
        raise ValueError(f"{tasks} tasks in batches of {batch_size} make no step")
    limits = [max_steps] if max_steps is not None else []
    if n_epochs is not None:
        limits.append(math.ceil(n_epochs * tasks / batch_size))
    if not limits:
        raise ValueError("a run needs max_steps or n_epochs")
    return min(limits)
