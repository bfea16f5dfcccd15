"""Prepares a launch of Prime-RL: everything that can be refused before it starts."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tbtui.catalog import find_tasks
from tbtui.catalog.split import Split, split_tasks
from tbtui.catalog.tasks import discover
from tbtui.config import ConfigError, RunConfig, absolute, parse_settings
from tbtui.engines.prime_rl.launch.checkout import Checkout, find_checkout
from tbtui.engines.prime_rl.launch.configuration import (
    Configuration,
    Facts,
    configuration_of,
    placed,
    run_directory,
)
from tbtui.engines.prime_rl.launch.preflight import (
    PreflightFinding,
    quick_checks,
    require,
    slow_checks,
)
from tbtui.engines.prime_rl.watch.source import SourceDirectory, steps_in
from tbtui.engines.request import RunRequest
from tbtui.engines.resume import ResumeRequest
from tbtui.errors import UserError
from tbtui.journal.rundir import RunDirectory
from tbtui.rollout.environments.choose import (
    EnvironmentChoice,
    choose_environment,
)

FILE = "prime_rl.toml"
"""In the run directory: what `rl` was given."""


@dataclass(frozen=True, slots=True)
class PreparedLaunch:
    """A run that may be launched."""

    config: RunConfig
    directory: RunDirectory
    checkout: Checkout
    toml: dict[str, Any]
    """As `rl` will be given it."""
    facts: Facts
    split: Split | None
    """The tasks by use; None: a file of Prime-RL's names them."""
    environment: EnvironmentChoice | None
    """In which trials run; None: a file of Prime-RL's says it, or it is elsewhere."""
    findings: tuple[PreflightFinding, ...]
    resumed: bool = False
    """It goes on from what the directory holds."""

    @property
    def source(self) -> Path:
        """Where Prime-RL writes."""
        return run_directory(self.directory.path)


def prepare_launch(request: RunRequest) -> PreparedLaunch:
    """Make the file for `rl`, and check what takes no waiting.

    Raises:
        ConfigError: it can't; one line, with a remedy.
        CatalogError: no task can be used.
        EnvironmentUnavailable: trials can't run here in what was asked for.
    """
    try:
        resumed = isinstance(request, ResumeRequest)
        prepared = _examined(request.config, request.directory, resumed=resumed)
        require(prepared.findings, request.config)
    except UserError:
        request.discard()
        raise
    return prepared


async def check_launch(config: RunConfig) -> list[PreflightFinding]:
    """Everything a launch would be refused or warned for. Writes nothing; raises what
    `prepare_launch` does."""
    directory = RunDirectory(config.logs_dir.absolute() / (config.run_name or "NAME"))
    prepared = _examined(config, directory, resumed=False)
    return [
        *prepared.findings,
        *await slow_checks(prepared.checkout, prepared.facts, prepared.toml),
    ]


def _examined(config: RunConfig, directory: RunDirectory, *, resumed: bool) -> PreparedLaunch:
    checkout = find_checkout(config)
    configuration = _configuration(config, directory, resumed=resumed)
    resume = _resume(configuration, directory) if resumed else None
    document = placed(configuration.toml, directory.path, resume)
    facts = Facts.of(document.root)
    split = _tasks(config, facts, checkout)
    changes = configuration.changes
    if config.prime_rl_config is not None:  # else there is nothing that it has changed
        changes += tuple(map(str, document.changes))
    findings = [
        *(PreflightFinding("ok", text) for text in changes),
        *(PreflightFinding("warning", text) for text in configuration.warnings),
        *quick_checks(checkout, facts, directory.path, config),
    ]
    return PreparedLaunch(
        config,
        directory,
        checkout,
        document.root,
        facts,
        split,
        _environment(config, facts),
        tuple(findings),
        resumed,
    )


def _configuration(config: RunConfig, directory: RunDirectory, *, resumed: bool) -> Configuration:
    """A run that goes on keeps the file that it was begun with, unless another one is given."""
    own = directory.path / FILE
    if resumed and config.prime_rl_config is not None and own.is_file():
        begun = absolute(parse_settings([], files=[directory.config]))
        if begun.prime_rl_config == config.prime_rl_config:
            return configuration_of(config, own)
    return configuration_of(config)


def _resume(configuration: Configuration, directory: RunDirectory) -> dict[str, Any]:
    """`[resume]`: from the newest checkpoint that is whole."""
    source = SourceDirectory(run_directory(directory.path))
    limit = Facts.of(configuration.toml).max_steps
    whole = [step for step, _ in source.checkpoints(frozenset())]
    if whole and limit is not None and whole[-1] >= limit:
        raise ConfigError(
            f"{directory.name} is finished: {whole[-1]} steps; to go on, give a larger max_steps"
            f" than {limit}"
        )
    if whole:
        return {"step": whole[-1]}
    if partial := steps_in(source.path / "checkpoints"):
        raise ConfigError(
            f"{source.path}/checkpoints/step_{partial[-1]}: written in part only, and there is no"
            " whole checkpoint; remove it to begin again from the start"
        )
    # None yet: it begins again where it began.
    before = configuration.toml.get("resume", {}).get("dir")
    return {"dir": before} if before else {}


def _environment(config: RunConfig, facts: Facts) -> EnvironmentChoice | None:
    if config.prime_rl_config is not None or facts.slurm:
        return None
    # As the plugin chooses in the environment server, on this machine.
    return choose_environment(config.environment_type, config.environment_kwargs)


def _tasks(config: RunConfig, facts: Facts, checkout: Checkout) -> Split | None:
    if config.prime_rl_config is None:
        assert config.tasks_dir is not None  # else it was refused
        return split_tasks(
            discover(find_tasks(config.tasks_dir)).require_tasks(),
            eval_split=config.eval_split,
            seed=config.seed,
            eval_tasks=config.eval_tasks,
            train_tasks=config.tasks,
        )
    for name in facts.tasks_dirs:
        path = checkout.directory / Path(name).expanduser()
        if not path.is_dir() and not facts.slurm:
            raise ConfigError(
                f"tasks_dir={name}: there is no {path} (relative paths in a file of Prime-RL's are"
                " taken from its checkout, where it runs)"
            )
    return None
