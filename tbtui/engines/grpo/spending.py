"""What a run has cost, what it will cost, and whether it may go on."""

from __future__ import annotations

import time
from collections.abc import Callable

from tbtui.algorithm.costs import Costs, Spent, Tokens
from tbtui.config import RunConfig
from tbtui.engines.prices import price_list
from tbtui.journal.figures import dollars
from tbtui.policies.base import Policy


class Spending:
    """Counts tokens and storage of one process of a run, from what was spent before it on."""

    def __init__(
        self,
        config: RunConfig,
        spent: Spent,
        policy: Policy,
        to_come: Callable[[], tuple[int, int]],
    ) -> None:
        """`to_come`: steps and evaluations that the run has before it."""
        self._costs = Costs(spent, price_list(config).prices)
        self._policy = policy
        self._to_come = to_come
        self._stored_since = time.monotonic()
        self._told = False

    @property
    def usd(self) -> float:
        return self._costs.spent.usd

    def over(self, limit: float | None) -> bool:
        """Whether `limit` (US dollars) has been reached."""
        return limit is not None and self.usd >= limit

    def add(self, tokens: Tokens) -> None:
        """Count what belongs to the totals alone."""
        self._costs.add(tokens)

    def step(self, tokens: Tokens, useful_groups: int) -> dict[str, float]:
        """The metrics of a step that consumed `tokens`, and of the run with it."""
        self._count_storage()
        metrics = self._costs.step(tokens, useful_groups)
        if (forecast := self._costs.forecast(*self._to_come())) is not None:
            metrics["cost/forecast_usd"] = forecast
        return metrics

    def evaluation(self, tokens: Tokens) -> dict[str, float]:
        """The same of an evaluation."""
        self._count_storage()
        return self._costs.evaluation(tokens)

    def forecast_line(self) -> str | None:
        """What the whole run will cost by its first step; None: that was said, or is unknown."""
        forecast = self._costs.forecast(*self._to_come())
        if self._told or forecast is None:
            return None
        self._told = True
        return f"cost: {dollars(self.usd)} so far, about {dollars(forecast)} by the end of the run"

    def _count_storage(self) -> None:
        """What the server has held for us since this was asked last."""
        if not self._costs.counts_storage:
            return
        now, stored = time.monotonic(), self._policy.status().stored_bytes
        if stored is not None:
            self._costs.stored(stored, now - self._stored_since)
        self._stored_since = now
