"""Chooses what trials run in: what was asked for, or the best this host has.

The decision is a function of `HostProbe` alone. Nothing here imports Harbor.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

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
_ENGINES = ("docker", "podman")


class EnvironmentUnavailable(RuntimeError):
    """Trials can't run as asked; the message is one line that ends with the remedy."""


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
    """What to run trials in on this host.

    Args:
        environment_type: `sandbox`, a type Harbor knows, `module:Class`, or None for the default.
        kwargs: Passed through to the environment.

    Raises:
        EnvironmentUnavailable: with the remedy.
    """
    if environment_type in {None, "sandbox"}:
        return decide(environment_type, kwargs or {}, probe_host())
    if environment_type in _ENGINES:
        return decide(environment_type, kwargs or {}, probe_host(everything=True))
    return _named(str(environment_type), kwargs or {})


def decide(
    environment_type: str | None, kwargs: Mapping[str, Any], host: HostProbe
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
        case "docker" | "podman":
            state = host.docker if environment_type == "docker" else host.podman
            if state != "works":
                raise EnvironmentUnavailable(_engine_problem(environment_type, state, host))
            return EnvironmentChoice(environment_type, "asked for", environment_type, None, given)
        case _:
            return _named(environment_type, given)


def _named(environment_type: str, kwargs: Mapping[str, Any]) -> EnvironmentChoice:
    given = dict(kwargs)
    module, colon, name = environment_type.partition(":")
    if not colon:
        return EnvironmentChoice(environment_type, "asked for", environment_type, None, given)
    if not module or not name.isidentifier():
        raise EnvironmentUnavailable(
            f"environment_type={environment_type}: not of the form module:Class"
        )
    return EnvironmentChoice(name, "asked for", None, environment_type, given)


def _default(kwargs: dict[str, Any], host: HostProbe) -> EnvironmentChoice:
    try:
        return _sandbox(kwargs, host)
    except EnvironmentUnavailable as problem:
        for engine, state in (("docker", host.docker), ("podman", host.podman)):
            if state == "works":
                reason = f"{engine} answers; no sandbox here: {problem}"
                return EnvironmentChoice(engine, reason, engine, None, kwargs)
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


def _engine_problem(engine: str, state: ToolState, host: HostProbe) -> str:
    if state == "missing":
        return f"{engine} is not installed: install it, or leave environment_type unset"
    start = {
        ("docker", "linux"): "sudo systemctl start docker (and be in the group docker)",
        ("docker", "darwin"): "start Docker Desktop",
        ("podman", "darwin"): "podman machine start",
    }.get((engine, host.platform), f"see what `{engine} info` says")
    return f"{engine} is installed but does not answer: {start}"
