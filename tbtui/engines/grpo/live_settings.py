"""Settings that people change while a run goes on, and the weights of its tasks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tbtui.config import ConfigError
from tbtui.config.trust import remember
from tbtui.engines.grpo.checkpoints import CheckpointKeeper
from tbtui.engines.grpo.config_checks import changed_config, differences, in_words
from tbtui.engines.grpo.context import EngineContext
from tbtui.engines.grpo.plan import BatchPlanner
from tbtui.engines.grpo.trials import TrialRunner
from tbtui.journal.commands import Command
from tbtui.journal.events import SettingsChanged


class LiveSettings:
    """Gives settings other values: parts read them from the run, or are given them here."""

    def __init__(
        self,
        run: EngineContext,
        runner: TrialRunner[Any],
        planner: BatchPlanner,
        keeper: CheckpointKeeper,
    ) -> None:
        self._run = run
        self.journal = run.journal
        self._runner = runner
        self._planner = planner
        self._keeper = keeper

    def change(self, values: Mapping[str, Any]) -> str:
        """Give settings other values from now on; says which. Raises `ConfigError`."""
        run = self._run
        old, new = run.config, changed_config(run.config, values)
        if self._planner.last_step_with(new) < run.begun:
            raise ConfigError(f"max_steps={new.max_steps}: step {run.begun} has begun already")
        run.config = new
        self._runner.change(new)
        self._keeper.keep_last = new.keep_checkpoints
        now, before = differences(old, new), differences(new, old)
        if not now:
            return "it is so already"
        run.journal.append(SettingsChanged(settings=now, before=before))
        remember(new, run.directory.path)
        return in_words(before, now)

    def weigh(self, command: Command) -> str:
        """Give a task another weight; says what that means. Raises `WeightError`."""
        return self._planner.curriculum.weigh(command)
