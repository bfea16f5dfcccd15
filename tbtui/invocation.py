"""How tbtui is called here: every command line that it prints is made by `to_type`.

A command is printed as the person who reads it would have to type it: begun with `uv run` where
tbtui was, and quoted for a shell. Tests run what is printed (`tests/guide/test_printed.py`).
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import MutableMapping, Sequence
from pathlib import Path

CALLED_AS = "TBTUI_CALLED_AS"
"""Environment variable with the words before a command, for the processes that a command starts:
their parents are others."""
_NAME = "tbtui"


def to_type(*words: object) -> str:
    """A command of tbtui as it can be typed here: `uv run tbtui attach 'my run'`.

    Args:
        words: what follows `tbtui`, unquoted, a word each.
    """
    called_as = os.environ.get(CALLED_AS, _NAME)
    return " ".join((called_as, *(shlex.quote(str(word)) for word in words)))


def note_caller(environment: MutableMapping[str, str]) -> None:
    """Write down how this process was called, unless the command that started it has done so."""
    if CALLED_AS not in environment:
        parent = _words_of(os.getppid()) if "UV_RUN_RECURSION_DEPTH" in environment else ()
        environment[CALLED_AS] = called_as(sys.argv[0], parent)


def called_as(program: str, parent: Sequence[str]) -> str:
    """The words that call tbtui.

    Args:
        program: its own first argument, `sys.argv[0]`.
        parent: the command line of the process that started it, if `uv run` is in play.
    """
    names = [Path(word).name for word in parent]
    if names[:2] == ["uv", "run"] and _NAME in names:
        return shlex.join(["uv", *parent[1 : names.index(_NAME)], _NAME])
    if Path(program).name == "__main__.py":
        return shlex.join([sys.executable, "-m", _NAME])
    if os.sep in program and not _on_path(Path(program)):
        return shlex.quote(program)
    return _NAME


def _words_of(process: int) -> list[str]:
    """The command line of a process; empty where it can't be read."""
    if sys.platform != "linux":
        import psutil  # slow to import, and not needed on Linux

        try:
            return psutil.Process(process).cmdline()
        except psutil.Error:
            return []
    try:
        line = Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return []
    return [os.fsdecode(word) for word in line.split(b"\0")[:-1]]


def _on_path(program: Path) -> bool:
    """Whether the shell finds this very program by its name."""
    folders = os.environ.get("PATH", "").split(os.pathsep)
    found = next((f for f in map(Path, folders) if (f / program.name).is_file()), None)
    return found is not None and found.resolve() == program.parent.resolve()
