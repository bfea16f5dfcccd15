"""What a box has besides the host's /usr: the base image's Python, an apt-get, the wheel cache.

The cache is mounted at a top-level directory, read-only: what is below another directory could be
moved aside with it. Its programs come first on PATH, before all that an agent can write to.

With `apt-get install` nothing can be installed, but what the host has is there: a command that only
asks for packages the host has already is done before it starts. Anything else is an error that says
which packages are missing. A plain RUN step is judged before it runs; everywhere else (in test.sh,
in scripts) the box's own `apt-get` answers the same.
"""

from __future__ import annotations

import contextlib
import functools
import re
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tbtui.wheels.cache import WheelCache
from tbtui.wheels.interpreters import box_python

SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_CACHE = "/.offline"
UV_IMAGE = re.compile(r"(^|/)astral-sh/uv(:(?!.*(alpine|debian|bookworm|trixie|python))|@|$)")
"""uv's own image, which holds nothing but uv and uvx: a box has its own."""
OWN_UV = f"{_CACHE}/bin/uv"
_FIRST = "/opt/box/bin"
_LAST = "/opt/box/fallback"
BASE_ENVIRONMENT = {
    "PATH": SYSTEM_PATH,
    "HOME": "/root",
    "LANG": "C.UTF-8",
    "TERM": "xterm-256color",
    "SHELL": "/bin/bash",
    "HOSTNAME": "box",
    # That the host's Python refuses pip (PEP 668) says nothing of the image's.
    "PIP_BREAK_SYSTEM_PACKAGES": "1",
    "PIP_ROOT_USER_ACTION": "ignore",
    "UV_BREAK_SYSTEM_PACKAGES": "1",
}
_INDEX = ("pypi.org", 443)
_INDEX_SEC = 3.0
_OFFLINE = {
    # An index without anything in it, not "no index": a task may serve one of its own.
    "PIP_INDEX_URL": f"file://{_CACHE}/index",
    "PIP_FIND_LINKS": f"{_CACHE}/wheels",
    "PIP_RETRIES": "0",
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    "UV_OFFLINE": "1",
    "UV_DEFAULT_INDEX": f"file://{_CACHE}/index",
    "UV_FIND_LINKS": f"{_CACHE}/wheels",
    # Each run unpacks from the read-only wheels: an agent could change what a cache keeps.
    "UV_NO_CACHE": "1",
    "UV_PYTHON_INSTALL_DIR": f"{_CACHE}/python",
    "UV_PYTHON_DOWNLOADS": "never",
}
# As uv's installer writes it; PATH has the directory already.
_UV_ENV = """\
#!/bin/sh
case ":${PATH}:" in
    *:"$HOME/.local/bin":*) ;;
    *) export PATH="$HOME/.local/bin:$PATH" ;;
esac
"""

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


def reaches_index() -> bool:
    """Whether a box that shares this host's network can fetch packages; as of this minute."""
    return _reaches(_INDEX, int(time.monotonic() // 60))


@functools.lru_cache(maxsize=1)
def _reaches(address: tuple[str, int], _minute: int) -> bool:
    connected: list[bool] = []

    def connect() -> None:
        with contextlib.suppress(OSError), socket.create_connection(address, _INDEX_SEC):
            connected.append(True)

    # No limit of its own ends the resolver's wait for a name server.
    thread = threading.Thread(target=connect, daemon=True)
    thread.start()
    thread.join(_INDEX_SEC)
    return bool(connected)


@dataclass(frozen=True, slots=True)
class BasePython:
    """What the Dockerfile's FROM says about Python."""

    present: bool = False
    version: str | None = None


@dataclass(frozen=True, slots=True)
class Userland:
    """Additions to a box's plan, and the variables that its programs start with."""

    environment: Mapping[str, str]
    shown: tuple[tuple[str, str], ...] = ()
    """Host directories, read-only at another place."""
    layers: tuple[tuple[str, str], ...] = ()
    """Host directories laid over a directory of the box, which can be written to."""
    directories: tuple[str, ...] = ()
    links: tuple[tuple[str, str], ...] = ()
    files: tuple[tuple[str, bytes, int], ...] = field(default=(), repr=False)
    note: str | None = None
    """What is not as the image has it."""


def userland(
    base: BasePython = BasePython(), cache: WheelCache | None = None, *, layered: bool = True
) -> Userland:
    """The additions for one box.

    Args:
        base: The image's Python.
        cache: The wheel cache, for a box without a network or on a host without one.
        layered: Whether this kind of box can lay a directory over /usr/local.
    """
    path = [_FIRST, *SYSTEM_PATH.split(":"), _LAST]
    environment = dict(BASE_ENVIRONMENT)
    links = [(f"{_FIRST}/apt", "apt-get")]
    names = "".join(f"{each}\n" for each in sorted(installed_packages()))
    files = [
        (f"{_FIRST}/apt-get", APT_GET.encode(), 0o755),
        (PACKAGE_LIST, names.encode(), 0o644),
    ]
    shown: list[tuple[str, str]] = []
    layers: list[tuple[str, str]] = []
    interpreter = cache.python(base.version) if cache and base.version else None
    note = None
    if base.present and interpreter is not None:
        if layered:
            layers.append((str(interpreter), "/usr/local"))
        else:
            path.insert(0, f"{_CACHE}/python/{interpreter.name}/bin")
    elif base.present:
        links += [(f"{_LAST}/{name}", target) for name, target in _host_python().items()]
        if shutil.which("pip3", path=SYSTEM_PATH) is None and cache is not None:
            files += _pip_of(cache)
        note = _difference(base)
    if cache is not None:
        path.insert(0, f"{_CACHE}/bin")
        shown.append((str(cache.shown), _CACHE))
        environment |= _OFFLINE
        for home in ("/root", "/etc/skel"):  # useradd fills other users' from there
            files.append((f"{home}/.local/bin/env", _UV_ENV.encode(), 0o644))
            default = base.version if interpreter is not None else box_python()
            if default is not None:  # else uv takes the newest, for which no wheel may be there
                files.append((f"{home}/.config/uv/.python-version", f"{default}\n".encode(), 0o644))
    environment["PATH"] = ":".join(path)
    parents = {
        name.rpartition("/")[0]
        for name in [*(file[0] for file in files), *(link[0] for link in links)]
    }
    return Userland(
        environment,
        tuple(shown),
        tuple(layers),
        tuple(sorted(parents)),
        tuple(links),
        tuple(files),
        note,
    )


def _host_python() -> dict[str, str]:
    """Names that the image has and the host lacks, and what they are here."""
    programs = {}
    for name, ours in (("python", "python3"), ("pip", "pip3")):
        found = shutil.which(ours, path=SYSTEM_PATH)
        if found is not None and shutil.which(name, path=SYSTEM_PATH) is None:
            programs[name] = found
    return programs


def _pip_of(cache: WheelCache) -> list[tuple[str, bytes, int]]:
    """pip as a program, run from its wheel, for a host that has none."""
    wheels = [name for name in cache.wheels if name.startswith("pip-")]
    if not wheels:
        return []
    script = f'#!/bin/sh\nexec python3 {_CACHE}/wheels/{wheels[-1]}/pip "$@"\n'
    return [(f"{_LAST}/{name}", script.encode(), 0o755) for name in ("pip", "pip3")]


def _difference(base: BasePython) -> str | None:
    here = box_python()
    if here is None:
        return "the image has Python, and this host none in /usr"
    if base.version in (None, here):
        return None
    return f"the image has Python {base.version}, this box {here}"
