"""Recognises the run of a task's test script, and says how its process ended.

Harbor ignores the exit status of a test script and reads the reward file, whoever wrote it. An
environment that runs the script where its own first process or its engine sees it end keeps what
it saw, and compares the tests with those that were uploaded.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

_PLAIN_PATH = r"/[A-Za-z0-9_@%+=:,./-]+"
# As `harbor.utils.scripts.build_execution_command` writes it, for paths that need no quotes.
_COMMAND = re.compile(rf"\((?P<script>{_PLAIN_PATH}\.sh)\) > (?P<output>{_PLAIN_PATH}) 2>&1")


@dataclass(frozen=True, slots=True)
class ScriptRun:
    """A test script, and the file that gets all it prints."""

    script: str
    output: str


@dataclass(frozen=True, slots=True)
class ScriptEnd:
    """How the process of a test script ended."""

    signal: int = 0
    """That killed it; 0: it ended by itself."""
    not_started: str = ""
    """Why there never was such a process: no interpreter, no script."""
    memory: bool = False
    """Meanwhile something was killed for want of memory, in the environment or on the machine."""


@runtime_checkable
class WatchesScripts(Protocol):
    """An environment that sees a test script end, and can tell whether its files were changed."""

    script_end: ScriptEnd | None
    """Of the last test script; None before the first."""

    async def changed_file(self, sources: Sequence[Path], target: str) -> str | None:
        """The first file below `target` that isn't as in the directories uploaded there.

        Where two directories have a file the last one counts. What was added is not looked at: a
        test runner leaves caches.

        Raises:
            SandboxError: the environment can't be asked.
        """
        ...


def script_run(command: str) -> ScriptRun | None:
    """The test script that `command` runs as Harbor does, or None."""
    found = _COMMAND.fullmatch(command)
    return ScriptRun(found["script"], found["output"]) if found else None


@runtime_checkable
class KnowsItsRoom(Protocol):
    """An environment with a disk of its own that nobody but its programs can fill."""

    async def has_room(self, sources: Sequence[Path]) -> bool:
        """Whether its disk takes what is below these directories, and a few small files."""
        ...
