"""What a Tinker server can do with a model."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from tbtui.policies.base import LossName

Reduction = Literal["sum", "sequence_mean"]
"""Of a batch's loss, where its gradient is taken: the sum over all tokens, or the mean over the
sequences of each one's mean over all its positions, masked or not."""

NOT_THERE = (400, 404, 405, 422, 501)
"""With these a server says that it can't do something, rather than that it failed."""


@dataclass(frozen=True, slots=True)
class Abilities:
    """What a server can do with a model."""

    model_name: str
    context_limit: int | None
    """Tokens, prompt and completion together; None where the server doesn't tell."""
    native_losses: frozenset[LossName] = frozenset()
    """Losses that the server computes as we define them. The others are computed on our side."""
    reduction: Reduction = "sum"
    notes: tuple[str, ...] = ()
    """One line each, for a person."""

    def noting(self, *notes: str) -> Abilities:
        return replace(self, notes=self.notes + notes)
