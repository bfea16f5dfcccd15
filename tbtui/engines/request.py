"""Checks a new run before anything is imported that takes time, and makes its directory."""

from __future__ import annotations

import contextlib
import datetime
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tbtui.catalog import find_tasks
from tbtui.config import ConfigError, RunConfig, absolute, to_toml
from tbtui.config.trust import remember
from tbtui.config.values import Problem, error, require_no_errors
from tbtui.engines.grpo.config_checks import grpo_problems
from tbtui.journal.rundir import RunDirectory, RunDirectoryError, reserve

ON_SERVER = "tinker://"
"""What the name of a checkpoint on a Tinker server begins with."""

# A run that can't write its last event has lost it; this much is kept free from the start.
_LEAST_FREE_MB = 100


@dataclass(frozen=True, slots=True)
class RunRequest:
    """A run that was asked for, and the directory that was made for it."""

    config: RunConfig
    directory: RunDirectory
    logs_dir_is_new: bool = False

    def discard(self) -> None:
        """Remove the directory of a run that never began."""
        shutil.rmtree(self.directory.path, ignore_errors=True)
        if self.logs_dir_is_new:
            with contextlib.suppress(OSError):  # another run uses it by now
                self.directory.path.parent.rmdir()


def config_problems(config: RunConfig) -> list[Problem]:
    """What is wrong with the settings by themselves, for the engine that they name: all that can
    be seen before tasks are read and the policy has started."""
    if config.engine == "prime-rl":
        from tbtui.engines.prime_rl.launch.configuration import launch_problems

        return [*launch_problems(config), *_run_name(config)]
    return [*grpo_problems(config), *_run_name(config)]


def request_run(config: RunConfig) -> RunRequest:
    """Check the settings by themselves and make the run directory.

    Raises:
        UserError: they contradict each other or can't be used, or there is no room for a run.
    """
    require_no_errors(config_problems(config))
    config = absolute(config)
    _require_checkpoint(config)
    find_tasks(config.tasks_dir)
    new = not config.logs_dir.exists()
    name = config.run_name
    directory = RunDirectory.create(
        config.logs_dir / name if name else reserve(config.logs_dir, _new_name())
    )
    request = RunRequest(config, directory, new)
    try:
        _require_space(directory.path)
        directory.config.write_text(to_toml(config))
        remember(config, directory.path)
    except (OSError, RunDirectoryError) as error:
        request.discard()
        raise RunDirectoryError(str(error)) from error
    return request


def _run_name(config: RunConfig) -> Iterator[Problem]:
    """A name that can't be a directory in `logs_dir` or a word in lists."""
    name = config.run_name
    if name in (".", "..") or (name and ("/" in name or not name.isprintable())):
        yield error(
            f"run_name={name!a}: should be one directory's name; where it is made is logs_dir"
        )


def _require_checkpoint(config: RunConfig) -> None:
    if config.checkpoint is None:
        return
    if config.checkpoint.startswith(ON_SERVER):
        if config.policy != "tinker":
            raise ConfigError(
                f"checkpoint {config.checkpoint}: it is on a Tinker server; give policy=tinker and"
                " its model_name too"
            )
    elif not Path(config.checkpoint).is_dir():
        raise ConfigError(f"checkpoint {config.checkpoint}: there is no such directory")


def _new_name() -> str:
    return datetime.datetime.now().strftime("%Y-%m-%d-%H%M%S")


def _require_space(path: Path) -> None:
    free = shutil.disk_usage(path).free // 1_000_000
    if free < _LEAST_FREE_MB:
        raise RunDirectoryError(
            f"{path}: only {free} MB free, a run needs {_LEAST_FREE_MB};"
            f" free some or choose another place with logs_dir=..."
        )
