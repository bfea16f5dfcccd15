"""`RUN apt-get install` in a box: nothing can be installed, but what the host has is there.

The box is the host's own userland, so a step that only asks for packages the host has already is
done before it starts. Anything else is an error that says which packages are missing.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass

_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=\S*$")
_HOUSEKEEPING = re.compile(r"rm -rf? (/var/(lib/apt/lists|cache/apt)\S*\s*)+$")
# Where && might not join plain commands, nothing is taken apart.
_STRUCTURE = re.compile(r"[`(){}'\";]|<<|\|\|")
_NOT_PLAIN = re.compile(r"[|<>$&]")


@dataclass(frozen=True, slots=True)
class AptStep:
    """A RUN step with its package management taken out."""

    packages: tuple[str, ...]
    rest: str
    """The other commands, joined by &&; may be empty."""


def split_apt(command: str) -> AptStep | None:
    """Takes apart a RUN that installs Debian packages by plain commands; None for any other."""
    packages: list[str] = []
    rest: list[str] = []
    found = False
    if _STRUCTURE.search(command):
        return None
    for part in re.split(r"\s*&&\s*", command.strip()):
        words = part.split()
        while words and _ASSIGNMENT.match(words[0]):
            words.pop(0)
        if words and words[0] in {"apt-get", "apt"} and not _NOT_PLAIN.search(part):
            found = True
            arguments = [word for word in words[1:] if not word.startswith("-")]
            if arguments and arguments[0] == "install":
                packages += arguments[1:]
            elif not arguments or arguments[0] not in {"update", "clean", "autoremove"}:
                return None
        elif _HOUSEKEEPING.match(part):
            continue
        elif part:
            rest.append(part)
    if not found:
        return None
    return AptStep(tuple(packages), " && ".join(rest))


def missing_packages(
    packages: tuple[str, ...], run: Callable[[list[str]], str] | None = None
) -> list[str]:
    """Those of `packages` the host has not installed, versions (`name=1.2`) left aside."""
    names = [package.partition("=")[0] for package in packages]
    if not names:
        return []
    installed = set((run or _query)(names).split())
    return [name for name in names if name.partition(":")[0] not in installed]


def _query(names: list[str]) -> str:
    if shutil.which("dpkg-query") is None:
        return ""
    # Fails when any is unknown, and lists the others all the same.
    result = subprocess.run(
        ["dpkg-query", "-W", "-f", "${db:Status-Status} ${Package}\\n", *names],
        capture_output=True,
        text=True,
        check=False,
    )
    lines = [line.split() for line in result.stdout.splitlines()]
    return " ".join(line[1] for line in lines if len(line) == 2 and line[0] == "installed")
