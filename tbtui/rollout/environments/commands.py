"""Recognises the commands that an environment does not simply hand to a shell.

Terminus-2 sends every key stroke and reads every screen through `exec`. `tmux send-keys -t x --
'ls -l' Enter` means the same with and without a shell, and without one it costs one process less.

Harbor ignores the exit status of a test script and reads the reward file, whichever process wrote
it. An environment that runs the script where its own first process or its engine sees it end keeps
what it saw, and compares the tests with those that were uploaded.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass

# Programs, not shell builtins, so that skipping the shell changes nothing.
_PROGRAMS = frozenset(["tmux", "chmod", "rm"])

_PLAIN_PATH = r"/[A-Za-z0-9_@%+=:,./-]+"
# As `harbor.utils.scripts.build_execution_command` writes it, for paths that need no quotes.
_COMMAND = re.compile(rf"\((?P<script>{_PLAIN_PATH}\.sh)\) > (?P<output>{_PLAIN_PATH}) 2>&1")


def direct_argv(command: str) -> list[str] | None:
    """The argument list of a command that needs no shell, or None.

    Only what `shlex.join` writes is recognised: anything that a shell would expand, redirect or
    combine is left to the shell.
    """
    try:
        argv = shlex.split(command)
    except ValueError:  # a quotation that doesn't end
        return None
    if not argv or argv[0] not in _PROGRAMS or shlex.join(argv) != command:
        return None
    return argv


@dataclass(frozen=True, slots=True)
class ScriptRun:
    """A test script, and the file that gets all it prints."""

    script: str
    output: str


def script_run(command: str) -> ScriptRun | None:
    """The test script that `command` runs as Harbor does, or None."""
    found = _COMMAND.fullmatch(command)
    return ScriptRun(found["script"], found["output"]) if found else None


@dataclass(frozen=True, slots=True)
class ScriptEnd:
    """How the process of a test script ended."""

    signal: int = 0
    """That killed it; 0: it ended by itself."""
    not_started: str = ""
    """Why there never was such a process: no interpreter, no script."""
    memory: bool = False
    """Meanwhile something was killed for want of memory, in the environment or on the machine."""
