"""What is wrong with settings: an error that refuses them, or a problem that a check has found."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

from tbtui.errors import UserError


class ConfigError(UserError):
    """A setting is unknown or its value can't be used; one line that says what to do."""


class Problem(msgspec.Struct, frozen=True):
    """A setting that is not, or not quite, honoured."""

    level: Literal["error", "warning"]
    text: str
    """One line: the setting, why, and what to do."""


def error(text: str) -> Problem:
    """A problem that keeps the run from starting."""
    return Problem("error", text)


def warning(text: str) -> Problem:
    """A problem with which the run starts all the same."""
    return Problem("warning", text)


def require_no_errors(problems: Iterable[Problem]) -> list[str]:
    """The texts of the warnings.

    Raises:
        ConfigError: the first of the errors.
    """
    warnings = []
    for problem in problems:
        if problem.level == "error":
            raise ConfigError(problem.text)
        warnings.append(problem.text)
    return warnings


def errors_first(problems: Iterable[Problem]) -> list[Problem]:
    """The problems, errors before warnings."""
    return sorted(problems, key=lambda problem: problem.level != "error")
