"""The unit of training data: one sequence of tokens, and how much each of them counts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class Datum:
    """One training sequence of T tokens.

    `mask`, `logprobs`, `advantages` and `weights` have length T and speak of the token at the
    same index; where `mask` is False the others are ignored. `mask[0]` is always False: nothing
    precedes the first token. `weights` scales each token's loss and carries the normaliser chosen
    by the algorithm, so that a policy only ever sums.
    """

    tokens: npt.NDArray[np.int32]
    mask: npt.NDArray[np.bool_]
    logprobs: npt.NDArray[np.float32]
    advantages: npt.NDArray[np.float32]
    weights: npt.NDArray[np.float32]
