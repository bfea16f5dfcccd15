"""What a box has besides the host's /usr: the base image's Python, an apt-get, the wheel cache.

The cache is mounted at a top-level directory, read-only: what is below another directory could be
moved aside with it. Its programs come first on PATH, before all that an agent can write to.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field

from tbtui.rollout.environments.packages import APT_GET, PACKAGE_LIST, installed_packages
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
}
_FREE_PYTHON = {
    "PIP_BREAK_SYSTEM_PACKAGES": "1",
    "PIP_ROOT_USER_ACTION": "ignore",
    "UV_BREAK_SYSTEM_PACKAGES": "1",
}
_OFFLINE = {
    **_FREE_PYTHON,
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
        cache: The wheel cache, for a box without a network.
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
    if base.present:
        # The image's Python is its own, not Debian's, which refuses pip.
        environment |= _FREE_PYTHON
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
    return (
        f"the image has Python {base.version}, this box {here}:"
        " `tbtui tasks prefetch DIR` brings it along"
    )
