"""Chooses what trials run in: what was asked for, or the best this host has.

The decision is a function of `HostProbe` alone. Nothing here imports Harbor.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from tbtui.rollout.environments.errors import EnvironmentUnavailable
from tbtui.rollout.environments.probe import HostProbe, ToolState, probe_host

__all__ = [
    "EnvironmentChoice",
    "EnvironmentUnavailable",
    "HostProbe",
    "choose_environment",
    "decide",
    "probe_host",
]

SANDBOX_IMPORT_PATH = "tbtui.rollout.environments.sandbox:SandboxEnvironment"
DOCKER_IMPORT_PATH = "tbtui.rollout.environments.docker:DockerEnvironment"
PODMAN_IMPORT_PATH = "tbtui.rollout.environments.docker:PodmanEnvironment"
Decided = Literal["sandbox", "docker", "podman"] | None
"""What the probe of this host decides on; None stands for the best there is."""


@dataclass(frozen=True, slots=True)
class EnvironmentChoice:
    """What Harbor's EnvironmentConfig is to be given, and why."""

    name: str
    """As people would say it: sandbox, docker, ..."""
    reason: str
    type: str | None = None
    import_path: str | None = None
    kwargs: dict[str, Any] = field(default_factory=dict)


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
            f"the sandbox needs Linux, this is {host.platform}: install and start Docker or "
            "Podman, and give environment_type=docker (or podman)"
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
        return f"{engine} is not installed: install it, or leave environment_type unset"
    start = {
        ("docker", "linux"): "sudo systemctl start docker (and be in the group docker)",
        ("docker", "darwin"): "start Docker Desktop",
        ("podman", "darwin"): "podman machine start",
    }.get((engine, host.platform), f"see what `{engine} info` says")
    return f"{engine} is installed but does not answer: {start}"
