"""Reads a policy's completion with Terminus-2's parser, whatever the completion is.

A policy under training writes anything: JSON nested a hundred thousand deep, numbers of ten
thousand digits, `NaN` seconds, NULs and lone surrogates in keystrokes. Harbor's parsers raise on
some of these and pass others on to where they break the trial. What a policy writes is never a
fault of the machinery, so here it becomes a parse error or a warning that the policy is told.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol


class _Command(Protocol):
    keystrokes: str
    duration: float


class _Result(Protocol):
    @property
    def commands(self) -> list[_Command]: ...
    @property
    def is_task_complete(self) -> object: ...
    @property
    def error(self) -> str: ...
    @property
    def warning(self) -> str: ...
    @property
    def analysis(self) -> object: ...
    @property
    def plan(self) -> object: ...


class Parser(Protocol):
    """Harbor's TerminusJSONPlainParser and TerminusXMLPlainParser."""

    def parse_response(self, response: str) -> _Result: ...


@dataclass
class CleanCommand:
    keystrokes: str
    """Holds neither NULs nor lone surrogates, so a terminal can be sent it."""
    duration: float
    """Seconds; finite, not negative."""


@dataclass
class Understood:
    """The parser's result, with Harbor's field names, safe to type, to store and to send."""

    commands: list[CleanCommand]
    is_task_complete: bool
    error: str
    warning: str
    analysis: str = ""
    plan: str = ""


class GuardedParser:
    """Total: every completion gives a result. Remembers the last one."""

    def __init__(self, parser: Parser) -> None:
        self._parser = parser
        self.last = Understood([], False, "", "")

    def parse_response(self, response: str) -> Understood:
        try:
            result = self._parser.parse_response(response)
        except (ArithmeticError, LookupError, RecursionError, TypeError, ValueError) as error:
            problem = f"Unreadable response: {type(error).__name__}: {error}"
            self.last = Understood([], False, scrub(problem), "")
            return self.last
        warnings = [scrub(result.warning)] if result.warning else []
        commands = []
        for number, command in enumerate(result.commands, start=1):
            keystrokes = scrub(command.keystrokes).replace("\0", "")
            if keystrokes != command.keystrokes:
                warnings.append(f"- Command {number}: NULs and broken characters were left out")
            commands.append(CleanCommand(keystrokes, _seconds(command.duration)))
        self.last = Understood(
            commands=commands,
            is_task_complete=bool(result.is_task_complete),
            error=scrub(result.error),
            warning="\n".join(warnings),
            analysis=scrub(str(result.analysis)),
            plan=scrub(str(result.plan)),
        )
        return self.last


def scrub(text: str) -> str:
    """`text` with lone surrogates replaced, so that it can be encoded."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _seconds(duration: float) -> float:
    return max(0.0, duration) if math.isfinite(duration) else 1.0
