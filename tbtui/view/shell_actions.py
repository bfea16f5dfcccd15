"""What a line of shell does, in a word and its objects: `created out.log`, `ran pytest`."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

ActionKind = Literal[
    "created",
    "edited",
    "copied",
    "moved",
    "removed",
    "installed",
    "ran",
    "searched",
    "read",
    "looked around",
]
CHANGES: frozenset[ActionKind] = frozenset(
    {"created", "edited", "copied", "moved", "removed", "installed"}
)
"""Kinds of actions that leave something behind."""
LOOKS: frozenset[ActionKind] = frozenset({"searched", "read", "looked around"})
"""Kinds of actions that leave everything as it was."""

_LONGEST = 400
"""Characters of a command that are read: what follows is the text of a file."""
_OBJECTS = 8
"""Objects of one action that are kept."""

_PROGRAMS: dict[str, ActionKind] = {
    **dict.fromkeys(("touch", "mkdir", "cp", "ln", "install", "tee", "truncate"), "created"),
    **dict.fromkeys(
        ("vi", "vim", "nvim", "nano", "emacs", "ed", "patch", "chmod", "chown"), "edited"
    ),
    **dict.fromkeys(("rm", "rmdir", "unlink", "shred"), "removed"),
    **dict.fromkeys(("grep", "egrep", "fgrep", "rg", "ag", "find", "fd", "locate"), "searched"),
    **dict.fromkeys(("cat", "head", "tail", "less", "more", "bat", "xxd", "od", "strings"), "read"),
    **dict.fromkeys(
        ("sed", "awk", "jq", "cut", "sort", "uniq", "wc", "file", "stat", "diff"), "read"
    ),
    **dict.fromkeys(
        ("ls", "pwd", "tree", "which", "whoami", "env", "df", "du", "ps"), "looked around"
    ),
    "mv": "moved",
}
_QUIET = frozenset(
    {"cd", "clear", "export", "set", "source", ".", "true", ":", "exit", "sleep", "pushd"}
)
"""Programs that say nothing of what was tried, where they are not all."""
_PRINTERS = frozenset({"echo", "printf"})
_LEADS = frozenset({"sudo", "time", "nohup", "env", "command", "exec", "stdbuf", "timeout", "nice"})
_INSTALLERS = frozenset(
    {"pip", "pip3", "apt", "apt-get", "npm", "yarn", "cargo", "gem", "apk", "dnf"}
)
_INSTALLERS_UV = frozenset({"uv", "conda", "mamba", "brew", "go", "yum", "pnpm"})
_INSTALLS = frozenset({"install", "add", "i", "get"})
_SUBCOMMANDS = frozenset(
    {"git", "docker", "npm", "cargo", "go", "uv", "make", "kubectl", "systemctl"}
)
"""Programs that the next word makes another one."""
_INTERPRETERS = frozenset({"python", "python3", "bash", "sh", "node", "ruby", "perl"})
_JOINTS = frozenset({"&&", "||", ";", "|", "&", "|&", ";;"})
_STDERR = re.compile(r"(?<!\S)(?:\d?>&\d|2>>?\s*[^\s;|&]+)")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
_DURATION = re.compile(r"[\d.]+[smhd]?")


@dataclass(frozen=True, slots=True)
class Action:
    """One action of a command."""

    kind: ActionKind
    objects: tuple[str, ...] = ()
    """Files, packages or programs; of `moved` and `copied` the old and the new name."""

    @property
    def made(self) -> tuple[str, ...]:
        """The files that the action creates or changes."""
        pairs = self.kind in ("copied", "moved")
        return self.objects[-1:] if pairs else self.objects if self.kind in CHANGES else ()


def actions(keystrokes: str) -> tuple[Action, ...]:
    """What the first line of `keystrokes` does, in order; empty where it is no shell command.

    Files are those that the command line names: nothing is expanded, and what a program does
    with its arguments is not known. Never raises.
    """
    line = next((line for line in keystrokes[:_LONGEST].splitlines() if line.strip()), "")
    found: list[Action] = []
    for words, writes, appends in _commands(_words(line)):
        if action := _action(words, writes, appends):
            found.append(action)
    return tuple(found)


def _words(line: str) -> list[str]:
    lexer = shlex.shlex(_STDERR.sub(" ", line), posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    try:
        return list(lexer)
    except ValueError:
        # A quotation that goes on below, or keys for another program than a shell.
        return line.split()


def _commands(words: Sequence[str]) -> Iterator[tuple[list[str], list[str], bool]]:
    """The commands of a line: words, the files written to, and whether those are appended to.

    A pipeline counts as its first command that is not a printer, with all that it writes.
    """
    command: list[str] = []
    writes: list[str] = []
    appends = False
    place = 0
    while place < len(words):
        word = words[place]
        place += 1
        if word in _JOINTS:
            if word in ("|", "|&") and command and place < len(words) and words[place] != "tee":
                # What it writes is at the pipeline's end.
                rest: list[str] = []
                while place < len(words) and words[place] not in _JOINTS - {"|", "|&"}:
                    rest.append(words[place])
                    place += 1
                appends |= ">>" in rest
                writes += _redirected(rest)
                continue
            if word == "|" and place < len(words):
                command = []
                continue
            if command or writes:
                yield command, writes, appends
            command, writes, appends = [], [], False
        elif word in (">", ">>", ">|", "&>"):
            if place < len(words):
                writes.append(words[place])
                appends |= word == ">>"
                place += 1
        elif word in ("<", "<<", "<<<", ">&", "<&"):
            place += 1
        elif word not in ("(", ")", "{", "}", "!"):
            command.append(word)
    if command or writes:
        yield command, writes, appends


def _redirected(words: Sequence[str]) -> list[str]:
    return [word for mark, word in pairwise(words) if mark in (">", ">>", ">|", "&>")]


def _action(words: Sequence[str], writes: Sequence[str], appends: bool) -> Action | None:
    words = _bare(words)
    files = [name for name in writes if name != "/dev/null" and not name.isdigit()]
    if files:
        return _of("edited" if appends else "created", files)
    if not words:
        return None
    program = words[0].rsplit("/", 1)[-1]
    arguments = [word for word in words[1:] if not word.startswith("-")]
    if program in _QUIET or program in _PRINTERS:
        return None
    if _installs(program, arguments):
        return _of("installed", arguments[1:])
    if program in _INTERPRETERS and list(words[1:3]) == ["-m", "pip"]:
        return _of("installed", arguments[2:])
    kind = _PROGRAMS.get(program, "ran")
    if program == "sed" and any(word.startswith("-i") for word in words[1:]):
        return _of("edited", arguments[1:] or arguments)
    if program in ("chmod", "chown"):
        return _of("edited", arguments[1:])
    if program in ("cp", "ln") and len(arguments) > 1:
        return Action("copied", (arguments[0], arguments[-1]))
    if program == "mkdir":
        return _of("created", [f"{name.rstrip('/')}/" for name in arguments])
    if kind == "moved" and len(arguments) > 1:
        return Action("moved", (arguments[0], arguments[-1]))
    if kind == "searched":
        return _of(kind, arguments[:1])
    if kind == "read":
        # The first argument of sed, awk and jq is a program.
        files = arguments[1:] if program in ("sed", "awk", "jq", "cut") else arguments
        return _of(kind, files or [program])
    if kind == "ran":
        return Action("ran", (_program(program, words),))
    return _of(kind, arguments if kind != "looked around" else ())


def _of(kind: ActionKind, objects: Sequence[str]) -> Action:
    return Action(kind, tuple(objects[:_OBJECTS]))


def _bare(words: Sequence[str]) -> list[str]:
    """The words without assignments, `sudo` and the like in front."""
    left = list(words)
    while left:
        if left[0] in _LEADS and len(left) > 1:
            lead = left.pop(0)
            while len(left) > 1 and (
                left[0].startswith("-") or (lead == "timeout" and _DURATION.fullmatch(left[0]))
            ):
                left.pop(0)
        elif _ASSIGNMENT.match(left[0]):
            left.pop(0)
        else:
            break
    return left


def _installs(program: str, arguments: Sequence[str]) -> bool:
    known = program in _INSTALLERS or program in _INSTALLERS_UV
    return known and len(arguments) > 1 and arguments[0] in _INSTALLS


def _program(program: str, words: Sequence[str]) -> str:
    """What runs: `pytest`, `python solve.py`, `git commit`."""
    rest = words[1:]
    if program in _INTERPRETERS and "-m" in rest[:2] and len(rest) > rest.index("-m") + 1:
        return rest[rest.index("-m") + 1]
    after = next((word for word in rest if not word.startswith("-")), "")
    if after and (program in _SUBCOMMANDS or (program in _INTERPRETERS and "-c" not in rest[:2])):
        return f"{program} {after}"
    return program
