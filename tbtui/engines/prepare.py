"""Everything about a run that can be refused before it starts, settled before it starts."""

from __future__ import annotations

import datetime
import shutil
from dataclasses import dataclass
from pathlib import Path

from tbtui.catalog.load import Defect
from tbtui.catalog.split import Split, split_tasks
from tbtui.catalog.tasks import CatalogError, discover
from tbtui.config import ConfigError, RunConfig, to_toml
from tbtui.journal.rundir import RunDirectory, RunDirectoryError
from tbtui.resources import tasks_dir
from tbtui.rollout.environments.choose import (
    EnvironmentChoice,
    EnvironmentUnavailable,
    choose_environment,
)

BAD_INPUT = (CatalogError, ConfigError, EnvironmentUnavailable, RunDirectoryError)
"""What `prepare_run` raises: each message is one line for whoever asked for the run."""

EMBEDDED_MODEL = "starter"

# A run that can't write its last event has lost it; this much is kept free from the start.
_LEAST_FREE_MB = 100


@dataclass(frozen=True, slots=True)
class PreparedRun:
    """A run that may start. Its directory exists."""

    config: RunConfig
    tasks_dir: Path
    split: Split
    defects: tuple[Defect, ...]
    """Of tasks that are left out."""
    environment: EnvironmentChoice
    directory: RunDirectory


def prepare_run(config: RunConfig) -> PreparedRun:
    """Check the tasks, the environment and the run directory, and make the latter.

    Raises one of `BAD_INPUT`.
    """
    where = config.tasks_dir or tasks_dir() / "starter"
    catalog = discover(where)
    split = split_tasks(
        catalog.require_tasks(),
        eval_split=config.eval_split,
        seed=config.seed,
        eval_tasks=config.eval_tasks,
    )
    if config.model_name != EMBEDDED_MODEL:
        raise ConfigError(
            f"model_name={config.model_name}: the embedded policy has one model,"
            f" {EMBEDDED_MODEL!r}; to start from other weights of it, give checkpoint=DIRECTORY"
        )
    if config.checkpoint and not config.checkpoint.is_dir():
        raise ConfigError(f"checkpoint {config.checkpoint}: there is no such directory")
    environment = choose_environment(config.environment_type, config.environment_kwargs)
    directory = RunDirectory.create(config.logs_dir / (config.run_name or _new_name()))
    _require_space(directory.path)
    directory.config.write_text(to_toml(config))
    return PreparedRun(config, catalog.directory, split, catalog.defects, environment, directory)


def _new_name() -> str:
    return datetime.datetime.now().strftime("%Y-%m-%d-%H%M%S")


def _require_space(path: Path) -> None:
    free = shutil.disk_usage(path).free // 1_000_000
    if free < _LEAST_FREE_MB:
        raise RunDirectoryError(
            f"{path}: only {free} MB free, a run needs {_LEAST_FREE_MB};"
            f" free some or choose another place with logs_dir=..."
        )
