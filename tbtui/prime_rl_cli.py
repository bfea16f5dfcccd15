"""`tbtui prime-rl`: configurations for Prime-RL, on standard output."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import typer

from tbtui.config import parse_settings
from tbtui.engines.prime_rl.launch.configuration import configuration_of
from tbtui.engines.prime_rl.launch.prepare import check_launch
from tbtui.engines.prime_rl.migrate import migrate
from tbtui.engines.prime_rl.toml_text import read_toml, toml_text
from tbtui.engines.prime_rl.validate import validate

_GLYPHS = MappingProxyType({"ok": "✓", "warning": "!", "error": "✗"})


def print_config(settings: Sequence[str]) -> bool:
    """Print Prime-RL's file for these settings; what is to be known of them on standard error.

    Returns whether Prime-RL found no fault with it, as far as it could be asked.

    Raises:
        ConfigError: a setting can't be used, or not by Prime-RL.
    """
    config = parse_settings(settings)
    configuration = configuration_of(config)
    for change in configuration.changes:
        typer.echo(change, err=True)
    for text in configuration.warnings:
        _say(text)
    return _print_valid(configuration.toml, config.prime_rl_dir)


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


def print_check(settings: Sequence[str]) -> bool:
    """Print what Prime-RL needs here for these settings and whether it is there; nothing starts.

    Returns whether a run could begin.

    Raises:
        ConfigError: a setting can't be used, or Prime-RL isn't here at all.
        CatalogError: no task can be used.
        EnvironmentUnavailable: trials can't run here in what was asked for.
    """
    config = parse_settings(settings)
    findings = asyncio.run(check_launch(config))
    for finding in findings:
        typer.echo(f"{_GLYPHS[finding.level]} {finding.text}")
    return all(finding.level != "error" for finding in findings)


def _print_valid(toml: Mapping[str, Any], checkout: Path | None = None) -> bool:
    typer.echo(toml_text(toml), nl=False)
    verdict = validate(toml, checkout)
    if verdict.by is None:
        _say(f"not validated: {verdict.unchecked}")
    for error in verdict.errors:
        _say(f"Prime-RL refuses it: {error}")
    if verdict.by is not None and not verdict.errors:
        _say(f"valid, by {verdict.by}")
    return not verdict.errors


def _say(text: str) -> None:
    typer.echo(f"tbtui: {text}", err=True)
