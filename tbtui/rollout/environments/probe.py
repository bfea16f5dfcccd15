"""Tries what this host offers for running trials. Imports nothing heavy."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tbtui.rollout.environments.cgroups import CgroupKind, find_cgroups

NamespaceState = Literal["usable", "powerless", "refused", "absent"]
ToolState = Literal["works", "fails", "missing", "unknown"]
_PACKAGE_ROOT = str(Path(__file__).resolve().parents[3])
_PROBE = (
    "import sys; sys.path.append({root!r}); "
    "from tbtui.rollout.environments.namespace_probe import main; main()"
)
_APPARMOR = "kernel/apparmor_restrict_unprivileged_userns"
# A busy machine answers late; one whose engine hangs is rare.
_ENGINE_TIMEOUT_SECONDS = 15.0


@dataclass(frozen=True, slots=True)
class HostProbe:
    """The host, as far as environments care."""

    platform: str
    """`sys.platform`: linux, darwin, ..."""
    root: bool
    tmux: str | None
    """Its version, or None when it is not installed."""
    namespaces: NamespaceState
    """powerless: they can be made but give no capabilities, which is AppArmor's doing."""
    namespaces_detail: str
    namespaces_remedy: str | None
    """The one command that would make them usable, where one is known."""
    overlay: bool
    bubblewrap: ToolState
    docker: ToolState
    podman: ToolState
    """unknown: not asked, because nothing depended on it."""
    cgroups: CgroupKind
    compose: ToolState = "unknown"
    """Docker's plugin for projects of several containers, version 2."""


def probe_host(*, everything: bool = False) -> HostProbe:
    """Looks at this host.

    Bubblewrap and the container engines, which are slow to answer, are asked only when namespaces
    can't be used, or when `everything` is wanted.
    """
    linux = sys.platform == "linux"
    state, detail, overlay = _namespaces() if linux else _no_namespaces()
    ask = everything or state != "usable"
    with ThreadPoolExecutor() as pool:
        tmux = pool.submit(_tmux)
        engines = {
            name: pool.submit(_works, argv) if ask else None
            for name, argv in (
                ("bwrap", ("bwrap", *_BWRAP_TRIAL)),
                ("docker", ("docker", "info")),
                ("compose", ("docker", "compose", "version")),
                ("podman", ("podman", "info")),
            )
        }
        found = {name: job.result() if job else _unknown() for name, job in engines.items()}
        return HostProbe(
            platform=sys.platform,
            root=os.geteuid() == 0,
            tmux=tmux.result(),
            namespaces=state,
            namespaces_detail=detail,
            namespaces_remedy=_remedy() if state in {"powerless", "refused"} else None,
            overlay=overlay,
            bubblewrap=found["bwrap"],
            docker=found["docker"],
            podman=found["podman"],
            compose=found["compose"],
            cgroups=find_cgroups().kind if linux else "none",
        )


_BWRAP_TRIAL = (
    *(
        "--unshare-all",
        "--unshare-user",
        "--disable-userns",
        "--cap-drop",
        "ALL",
        "--uid",
        "0",
        "--gid",
        "0",
        "--tmpfs",
        "/",
        "--ro-bind",
        "/usr",
        "/usr",
    ),
    *("--symlink", "usr/lib", "/lib", "--symlink", "usr/lib64", "/lib64"),
    *("--proc", "/proc", "--dev", "/dev", "--", "/usr/bin/true"),
)


def _no_namespaces() -> tuple[NamespaceState, str, bool]:
    return "absent", f"not Linux but {sys.platform}", False


def _unknown() -> ToolState:
    return "unknown"


def _namespaces() -> tuple[NamespaceState, str, bool]:
    code = _PROBE.format(root=_PACKAGE_ROOT)
    result = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code],
        capture_output=True,
        text=True,
        check=False,
        cwd="/",
        stdin=subprocess.DEVNULL,
    )
    state, _, detail = result.stdout.strip().partition(" ")
    match state:
        case "usable":
            return "usable", detail, detail == "overlay"
        case "powerless":
            return "powerless", detail, False
        case _:
            return "refused", detail or result.stderr.strip()[-200:], False


def _remedy() -> str | None:
    sysctl = Path("/proc/sys")
    for name, blocking, wanted in (
        (_APPARMOR, "1", "0"),
        ("kernel/unprivileged_userns_clone", "0", "1"),
        ("user/max_user_namespaces", "0", "15000"),
    ):
        try:
            value = (sysctl / name).read_text().strip()
        except OSError:
            continue
        if value == blocking:
            return f"sudo sysctl {name.replace('/', '.')}={wanted}"
    return None


def _tmux() -> str | None:
    path = shutil.which("tmux")
    if path is None:
        return None
    result = subprocess.run([path, "-V"], capture_output=True, text=True, check=False)
    return result.stdout.strip().removeprefix("tmux ") or None


def _works(argv: Sequence[str]) -> ToolState:
    path = shutil.which(argv[0])
    if path is None:
        return "missing"
    try:
        result = subprocess.run(
            [path, *argv[1:]],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=False,
            timeout=_ENGINE_TIMEOUT_SECONDS,
        )
    except (subprocess.TimeoutExpired, OSError):
        return "fails"
    return "works" if result.returncode == 0 else "fails"
