"""Tells a plain command line from one that needs a shell.

Terminus-2 sends every key stroke and reads every screen through `exec`. `tmux send-keys -t x --
'ls -l' Enter` means the same with and without a shell, and without one it costs one process less.
"""

from __future__ import annotations

import shlex

# Programs, not shell builtins, so that skipping the shell changes nothing.
_PROGRAMS = frozenset(["tmux", "chmod", "rm"])


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
