"""Tells a plain command line from one that needs a shell.

Terminus-2 sends every key stroke and reads every screen through `exec`. `tmux send-keys -t x --
'ls' Enter` means the same with and without a shell, and without one it costs one process less.
"""

from __future__ import annotations

import re

# Programs, not shell builtins, so that skipping the shell changes nothing.
_PROGRAMS = frozenset(["tmux", "chmod", "rm"])
# One word as `shlex.quote` writes it: safe characters, '...', or the '"'"' that stands for a quote.
_WORD = re.compile(r"""(?:[A-Za-z0-9_@%+=:,./-]|'[^']*'|"'")+""")
_PART = re.compile(r"""([A-Za-z0-9_@%+=:,./-]+)|'([^']*)'|"(')\"""")


def direct_argv(command: str) -> list[str] | None:
    """The argument list of a command that needs no shell, or None.

    Only lines of `shlex.quote`d words are recognised: anything a shell would expand, redirect or
    combine is left to the shell. A `=` in the first word would be an assignment; none of the
    programs' names has one.
    """
    argv: list[str] = []
    position = 0
    while position < len(command):
        word = _WORD.match(command, position)
        if word is None:
            return None
        argv.append("".join(part for found in _PART.findall(word.group()) for part in found))
        position = word.end()
        if position < len(command):
            if command[position] != " ":
                return None
            position += 1
    if not argv or argv[0] not in _PROGRAMS or command.endswith(" "):
        return None
    return argv
