"""`tbtui prime-rl`: configurations for Prime-RL, on standard output."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import typer

from tbtui.config import parse_settings
from tbtui.engines.prime_rl.migrate import migrate
from tbtui.engines.prime_rl.settings_problems import prime_rl_problems
from tbtui.engines.prime_rl.settings_to_toml import prime_rl_config
from tbtui.engines.prime_rl.toml_text import read_toml, toml_text
from tbtui.engines.prime_rl.validate import validate


def print_config(settings: Sequence[str]) -> bool:
    """Print Prime-RL's file for these settings; what is to be known of them on standard error.

    Returns whether Prime-RL found no fault with it, as far as it could be asked.

    Raises:
        ConfigError: a setting can't be used, or not by Prime-RL.
    """
    config = parse_settings(settings)
    toml = prime_rl_config(config)
    for problem in prime_rl_problems(config):
        _say(problem.text)
    return _print_valid(toml)


def print_migrated(file: Path) -> bool:
    """Print the file as today's Prime-RL takes it; what changed on standard error.

    Returns whether Prime-RL found no fault with it, as far as it could be asked.

    Raises:
        ConfigError: the file can't be read, or holds what can't be changed.
    """
    toml, changes = migrate(read_toml(file))
    for change in changes:
        typer.echo(change, err=True)
    if not changes:
        _say(f"{file}: nothing to change")
    return _print_valid(toml)


def _print_valid(toml: Mapping[str, Any]) -> bool:
    typer.echo(toml_text(toml), nl=False)
    verdict = validate(toml)
    if verdict.by is None:
        _say(f"not validated: {verdict.unchecked}")
    for error in verdict.errors:
        _say(f"Prime-RL refuses it: {error}")
    if verdict.by is not None and not verdict.errors:
        _say(f"valid, by {verdict.by}")
    return not verdict.errors


def _say(text: str) -> None:
    typer.echo(f"tbtui: {text}", err=True)
