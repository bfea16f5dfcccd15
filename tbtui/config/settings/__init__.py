"""Every setting of a run, declared once: type, default, bounds, unit, meaning, reason, and what may
be done with it.

The command line's help, validation, `--print-config`, a run's `config.toml`, the guide's table,
and what a resumed or a live run may change are read from these declarations. msgspec and not
pydantic: it takes a tenth of the time to import, and this comes before the app's first frame.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, get_args

import msgspec

from tbtui.config.settings.about import About, Fixed, Live, SettingGroup, Trust
from tbtui.config.settings.output import AlarmAction, Output
from tbtui.config.settings.tasks import MAX_STEPS
from tbtui.outcomes import OutcomeAction
from tbtui.vocabulary import Advantage, BudgetUnit, Normalizer

__all__ = [
    "GROUPS",
    "About",
    "Advantage",
    "AlarmAction",
    "BudgetUnit",
    "Fixed",
    "Live",
    "Normalizer",
    "OutcomeAction",
    "RunConfig",
    "Trust",
]


class RunConfig(Output, frozen=True, kw_only=True):
    """The settings of one run. Values from outside come through `read_config`, which checks
    them; the constructor trusts its types."""

    given: frozenset[str] = frozenset()
    """Names of the settings that were given, not left at their default; no setting itself."""

    @property
    def step_limit(self) -> int | None:
        """Steps that the run has at most; None where `n_epochs` alone decides."""
        by_epochs = self.n_epochs is not None and "max_steps" not in self.given
        return None if by_epochs and self.max_steps == MAX_STEPS else self.max_steps

    @property
    def limits(self) -> dict[BudgetUnit, float]:
        """The budget in force: `max_cost` is one of dollars."""
        limits = {unit: self.budget[unit] for unit in get_args(BudgetUnit) if unit in self.budget}
        if self.max_cost is not None:
            limits["dollars"] = min(self.max_cost, limits.get("dollars", self.max_cost))
        return limits

    def replace(self, **changes: Any) -> RunConfig:
        """The same with some settings changed; values are trusted."""
        return msgspec.structs.replace(self, **changes)


GROUPS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        group.heading: tuple(name for name in group.__annotations__ if name != "heading")
        for group in reversed(RunConfig.__mro__)
        if issubclass(group, SettingGroup) and "heading" in vars(group)
    }
)
"""Every setting, in the order and under the headings that a person reads them."""
