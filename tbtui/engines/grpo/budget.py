"""What a run may spend: warns, and says when no further step or evaluation is paid for."""

from __future__ import annotations

from collections.abc import Mapping

from tbtui.config import BudgetUnit, RunConfig
from tbtui.engines.grpo.context import EngineContext
from tbtui.journal.events import BudgetReached
from tbtui.view.sentences import budget_text

Spent = Mapping[BudgetUnit, float]

WARN_AT = 0.8


class RunBudget:
    """Compares what is spent with its limits, after each step and evaluation.

    A limit is never passed by more than one step spends: a batch begins only where what is spent,
    and what the batches under way will have spent, are below it; an evaluation only where it fits
    into what was left before the last step. What a step or an evaluation will spend is what the
    most expensive one of this process did.
    """

    def __init__(self, run: EngineContext) -> None:
        self._run = run
        self._journal = run.journal
        self._spent: Spent = run.spending.by_unit()
        self._step: Spent | None = None
        self._evaluation: Spent | None = None
        self._last_step: Spent = {}
        self._said: dict[BudgetUnit, tuple[float, bool]] = {}
        """The limit that was spoken of last, and whether it was reached."""

    @property
    def _limits(self) -> Mapping[BudgetUnit, float]:
        return self._run.config.limits

    def after_step(self, spent: Spent) -> None:
        """Take down what is spent now that a step is trained."""
        self._last_step = _difference(spent, self._spent)
        self._step = _most(self._step, self._last_step)
        self._see(spent)

    def after_evaluation(self, spent: Spent) -> None:
        """Take down what is spent now that an evaluation is over."""
        self._evaluation = _most(self._evaluation, _difference(spent, self._spent))
        self._see(spent)

    def begins(self, under_way: int) -> bool:
        """Whether a further batch is paid for beside so many that are not trained yet."""
        if under_way and self._step is None:
            return not self._limits  # what they will have spent is unknown
        ahead = {unit: under_way * self._step[unit] if self._step else 0.0 for unit in self._limits}
        return all(self._spent[unit] + ahead[unit] < limit for unit, limit in self._limits.items())

    def pays_evaluation(self) -> bool:
        """Whether an evaluation is paid for, by what the earlier ones have spent."""
        if self._evaluation is None:
            return all(self._spent[unit] < limit for unit, limit in self._limits.items())
        return all(
            self._spent[unit] + self._evaluation[unit] <= limit + self._last_step.get(unit, 0.0)
            for unit, limit in self._limits.items()
        )

    def why_ended(self) -> str:
        """Which limits are reached, for a person: `$2.10 spent: budget.dollars is $2.00`."""
        reached = [unit for unit, limit in self._limits.items() if self._spent[unit] >= limit]
        # Batches sampled ahead may have been kept from beginning before that.
        shown = reached or list(self._limits)
        return "; ".join(
            f"stopped after {budget_text(unit, self._spent[unit])}:"
            f" {_setting(unit, self._run.config)} is {budget_text(unit, self._limits[unit])}"
            for unit in shown
        )

    def _see(self, spent: Spent) -> None:
        self._spent = spent
        for unit, limit in self._limits.items():
            share = spent[unit] / limit
            state = limit, share >= 1
            if share < WARN_AT or self._said.get(unit) == state:
                continue
            self._said[unit] = state
            self._journal.append(
                BudgetReached(budget=unit, spent=spent[unit], limit=limit, ends=share >= 1)
            )


def _difference(now: Spent, before: Spent) -> Spent:
    return {unit: value - before[unit] for unit, value in now.items()}


def _most(before: Spent | None, now: Spent) -> Spent:
    return now if before is None else {unit: max(now[unit], before[unit]) for unit in now}


def _setting(unit: BudgetUnit, config: RunConfig) -> str:
    own = config.budget.get(unit)
    return "max_cost" if unit == "dollars" and own != config.limits[unit] else f"budget.{unit}"
