"""What the parts of an engine share, so that none of them knows the engine."""

from __future__ import annotations

from dataclasses import dataclass, field

from tbtui.algorithm.step import Recipe
from tbtui.catalog.split import Split
from tbtui.config import RunConfig
from tbtui.engines.grpo.learning import recipe_of
from tbtui.engines.grpo.metrics import Spending
from tbtui.engines.grpo.recorded import StartingPoint
from tbtui.journal.rundir import RunDirectory
from tbtui.journal.writer import JournalWriter
from tbtui.policies.base import Policy


@dataclass(slots=True)
class EngineContext:
    """A run, as its engine has it now."""

    config: RunConfig
    """The settings in force."""
    split: Split
    policy: Policy
    """It has started, and loaded the checkpoint of `start`."""
    journal: JournalWriter
    start: StartingPoint = field(default_factory=StartingPoint)
    """Where this process goes on."""
    step: int = field(init=False)
    """Batches trained on."""
    begun: int = field(init=False)
    """Batches that are sampled, or were."""
    recipe: Recipe = field(init=False)
    spending: Spending = field(init=False)

    def __post_init__(self) -> None:
        self.step = self.begun = self.start.step
        self.recipe = recipe_of(self.config, self.policy.info)
        self.spending = Spending(self.config, self.start.spent, self.policy)

    @property
    def directory(self) -> RunDirectory:
        return self.journal.run
