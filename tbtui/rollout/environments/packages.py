"""`apt-get install` in a box: nothing can be installed, but what the host has is there.

The box is the host's own userland, so a command that only asks for packages the host has already
is done before it starts. Anything else is an error that says which packages are missing. A plain
RUN step is judged before it runs; everywhere else (in test.sh, in scripts) the box's own `apt-get`
answers the same.
"""

from __future__ import annotations

import functools
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=\S*$")
_HOUSEKEEPING = re.compile(r"rm -rf? (/var/(lib/apt/lists|cache/apt)\S*\s*)+$")
# Where && might not join plain commands, nothing is taken apart.
_STRUCTURE = re.compile(r"[`(){}'\";]|<<|\|\|")
_NOT_PLAIN = re.compile(r"[|<>$&]")
_STATUS = Path("/var/lib/dpkg/status")
PACKAGE_LIST = "/opt/box/packages"
APT_GET = f"""\
#!/bin/sh
# Nothing can be installed in this box: its /usr is the host's, with what is installed there.
command=
packages=
while [ $# -gt 0 ]; do
    case "$1" in
        -o|-c|-t|--option|--config-file|--target-release|--default-release) shift ;;
        -*) ;;
        *) if [ -z "$command" ]; then command=$1; else packages="$packages $1"; fi ;;
    esac
    [ $# -gt 0 ] && shift
done
case "$command" in
    update|upgrade|dist-upgrade|full-upgrade|clean|autoclean|autoremove|'') exit 0 ;;
    install|satisfy|build-dep) ;;
    *) echo "E: apt-get $command does nothing in this sandbox" >&2; exit 100 ;;
esac
status=0
for package in $packages; do
    name=${{package%%[=:/]*}}
    case "$package" in ./*|/*) name=$package ;; esac
    if grep -qxF -e "$name" {PACKAGE_LIST} || command -v -- "$name" >/dev/null; then
        echo "$name is already installed."
    else
        echo "E: Unable to locate package $name (nothing can be installed in this sandbox)" >&2
        status=100
    fi
done
exit $status
"""
"""The box's `apt-get` and `apt`."""


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
    packages: tuple[str, ...], installed: frozenset[str] | None = None
) -> list[str]:
    """Those of `packages` the host has not installed, versions (`name=1.2`) left aside.

    A command of the package's name will do: not every host has Debian's packages.
    """
    have = installed_packages() if installed is None else installed
    names = [re.split("[=:/]", package)[0] for package in packages]
    return [name for name in names if name not in have and shutil.which(name) is None]


def installed_packages() -> frozenset[str]:
    """The Debian packages of this host and what they provide; none where it has no dpkg."""
    try:
        changed = _STATUS.stat().st_mtime_ns
    except OSError:
        return frozenset()
    return _installed(changed)


@functools.lru_cache(maxsize=1)
def _installed(_changed_ns: int) -> frozenset[str]:
    if shutil.which("dpkg-query") is None:
        return frozenset()
    form = "${db:Status-Status}\\t${Package}\\t${Provides}\\n"
    result = subprocess.run(
        ["dpkg-query", "-W", "-f", form], capture_output=True, text=True, check=False
    )
    rows = (line.split("\t") for line in result.stdout.splitlines())
    found: set[str] = set()
    for state, name, provides in rows:
        if state == "installed":
            virtual = (each.split("(")[0].strip() for each in provides.split(","))
            found.update([name, *(each for each in virtual if each)])
    return frozenset(found)
