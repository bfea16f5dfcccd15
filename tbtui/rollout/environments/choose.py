"""Chooses what trials run in: what was asked for, or the best this host has.

The host is probed by trying; the decision is a function of `HostProbe` alone. Nothing here imports
Harbor, or anything heavy.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from tbtui.rollout.environments.base import EnvironmentUnavailable
from tbtui.rollout.environments.cgroups import CgroupKind, find_cgroups

SANDBOX_IMPORT_PATH = "tbtui.rollout.environments.sandbox:SandboxEnvironment"
DOCKER_IMPORT_PATH = "tbtui.rollout.environments.docker:DockerEnvironment"
PODMAN_IMPORT_PATH = "tbtui.rollout.environments.docker:PodmanEnvironment"
Decided = Literal["sandbox", "docker", "podman"] | None
"""What the probe of this host decides on; None stands for the best there is."""

NamespaceState = Literal["usable", "powerless", "refused", "absent"]
ToolState = Literal["works", "fails", "missing", "unknown"]
_Namespaces = tuple[NamespaceState, str, bool]
"""State, detail, and whether overlayfs works in them."""
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
    absent: _Namespaces = ("absent", f"not Linux but {sys.platform}", False)
    state, detail, overlay = _namespaces() if linux else absent
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
        found: dict[str, ToolState] = {
            name: job.result() if job else "unknown" for name, job in engines.items()
        }
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
    *("--unshare-all", "--unshare-user", "--disable-userns", "--cap-drop", "ALL"),
    *("--uid", "0", "--gid", "0", "--tmpfs", "/", "--ro-bind", "/usr", "/usr"),
    *("--symlink", "usr/lib", "/lib", "--symlink", "usr/lib64", "/lib64"),
    *("--proc", "/proc", "--dev", "/dev", "--", "/usr/bin/true"),
)


def _namespaces() -> _Namespaces:
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


@dataclass(frozen=True, slots=True)
class EnvironmentChoice:
    """What Harbor's EnvironmentConfig is to be given, and why."""

    name: str
    """As people would say it: sandbox, docker, ..."""
    reason: str
    type: str | None = None
    import_path: str | None = None
    kwargs: dict[str, Any] = field(default_factory=dict)


def is_local(choice: EnvironmentChoice) -> bool:
    """Whether it is one of this package's own, whose trials run on this machine."""
    return choice.import_path in (SANDBOX_IMPORT_PATH, DOCKER_IMPORT_PATH, PODMAN_IMPORT_PATH)


def choose_environment(
    environment_type: str | None, kwargs: Mapping[str, Any] | None = None
) -> EnvironmentChoice:
    """What to run trials in on this host, after a look whether it can work.

    Args:
        environment_type: `sandbox`, a type Harbor knows, `module:Class`, or None for the default.
        kwargs: Passed through to the environment.

    Raises:
        EnvironmentUnavailable: an unknown type or argument, or something that is missing: an
            engine, a plugin, packages, a key. With the remedy.
    """
    given = dict(kwargs or {})
    match environment_type:
        case None | "sandbox":
            choice = decide(environment_type, given, probe_host())
        case "docker" | "podman":
            choice = decide(environment_type, given, probe_host(everything=True))
        case _ if ":" in environment_type:
            choice = _own(environment_type, given)
        case _:
            choice = EnvironmentChoice(environment_type, "asked for", environment_type, None, given)
    # Harbor takes its time to import, and the sandbox, the default, was tried out by the probe.
    if choice.import_path not in (SANDBOX_IMPORT_PATH, DOCKER_IMPORT_PATH) or given:
        from tbtui.rollout.environments.preflight import preflight

        preflight(environment_type or choice.name, choice.import_path, given)
    return choice


def decide(
    environment_type: Decided, kwargs: Mapping[str, Any], host: HostProbe
) -> EnvironmentChoice:
    """The choice for a host like this one.

    Raises:
        EnvironmentUnavailable: nothing suitable here, or not what was asked for.
    """
    given = dict(kwargs)
    match environment_type:
        case None:
            return _default(given, host)
        case "sandbox":
            return _sandbox(given, host)
        case "docker":
            if host.docker == "works" and host.compose == "works":
                return EnvironmentChoice("docker", "asked for", None, DOCKER_IMPORT_PATH, given)
            raise EnvironmentUnavailable(_docker_problem(host))
        case "podman":
            if host.podman == "works":
                return EnvironmentChoice("podman", "asked for", None, PODMAN_IMPORT_PATH, given)
            raise EnvironmentUnavailable(_engine_problem("podman", host.podman, host))


def _own(import_path: str, given: dict[str, Any]) -> EnvironmentChoice:
    module, _, name = import_path.partition(":")
    if not name.isidentifier() or not all(part.isidentifier() for part in module.split(".")):
        raise EnvironmentUnavailable(
            f"environment_type={import_path}: not of the form module:Class: for a class Name in"
            " a file folder/file.py give folder.file:Name"
        )
    return EnvironmentChoice(name, "asked for", None, import_path, given)


def _default(kwargs: dict[str, Any], host: HostProbe) -> EnvironmentChoice:
    try:
        return _sandbox(kwargs, host)
    except EnvironmentUnavailable as problem:
        engine: Decided
        for engine in ("docker", "podman"):
            with contextlib.suppress(EnvironmentUnavailable):
                found = decide(engine, kwargs, host)
                return replace(found, reason=f"{engine} answers; no sandbox here: {problem}")
        raise


def _sandbox(kwargs: dict[str, Any], host: HostProbe) -> EnvironmentChoice:
    if host.platform != "linux":
        raise EnvironmentUnavailable(
            f"the sandbox needs Linux, this is {host.platform}: give environment_type=docker or"
            " podman, which has to run here, or a service (modal, daytona, e2b, ...)"
        )
    usable = host.namespaces == "usable"
    if not usable and host.bubblewrap != "works":
        raise EnvironmentUnavailable(_namespace_problem(host))
    if host.tmux is None:
        raise EnvironmentUnavailable(
            "tmux is not installed, and agents work in it: sudo apt-get install tmux "
            "(or your system's way)"
        )
    if usable:
        return EnvironmentChoice(
            "sandbox", "user namespaces work here", None, SANDBOX_IMPORT_PATH, kwargs
        )
    return EnvironmentChoice(
        "sandbox (bubblewrap)",
        f"only bubblewrap may use user namespaces here ({host.namespaces_detail})",
        None,
        SANDBOX_IMPORT_PATH,
        {"backend": "bubblewrap", **kwargs},
    )


def _namespace_problem(host: HostProbe) -> str:
    problem = f"this host does not let programs use user namespaces ({host.namespaces_detail})"
    if host.namespaces_remedy is not None:
        return f"{problem}: {host.namespaces_remedy}"
    if host.bubblewrap == "missing" and host.namespaces == "powerless":
        return f"{problem}: sudo apt-get install bubblewrap, or install and start Docker"
    return f"{problem}: install and start Docker or Podman, and give environment_type=docker"


def _docker_problem(host: HostProbe) -> str:
    if host.docker != "works":
        return _engine_problem("docker", host.docker, host)
    return (
        "docker has no compose plugin (version 2): install the package docker-compose-plugin"
        " (Debian 13, Fedora: docker-compose)"
    )


def _engine_problem(engine: str, state: ToolState, host: HostProbe) -> str:
    if state == "missing":
        instead = "leave environment_type unset" if host.platform == "linux" else "take another"
        return f"{engine} is not installed: install it, or {instead}"
    start = {
        ("docker", "linux"): "sudo systemctl start docker (and be in the group docker)",
        ("docker", "darwin"): "start Docker Desktop",
        ("podman", "darwin"): "podman machine start",
    }.get((engine, host.platform), f"see what `{engine} info` says")
    return f"{engine} is installed but does not answer: {start}"
