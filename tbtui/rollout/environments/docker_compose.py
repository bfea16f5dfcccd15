"""The two compose files that make a trial's project, before and after the task's own. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

Network = Literal["none", "public", "sidecar"]
"""What containers reach: nothing but each other, the internet, or what Harbor's filtering sidecar
lets through."""
MAIN = "main"
OPEN_FILES = 4096
_LOG_BYTES = "8m"
# PID 1 must not be one that a SIGTERM does not end, and nothing waits for it: it is killed.
_IDLE = ["sh", "-c", "sleep infinity"]
OWNER_LABEL = "tbtui.project"


@dataclass(frozen=True, slots=True)
class ContainerLimits:
    """What each container of a trial may use."""

    processes: int
    """Processes and threads."""
    memory_mb: int
    """Memory; there is no swap on top of it. Of a task's other services too, each."""
    cpus: float | None
    """Cores' worth of CPU time of `main`; None: as much as there is."""
    storage_mb: int
    """The largest single file, and, where the engine can hold it, all that is written."""
    quota: bool
    """The engine holds `storage_mb` itself."""


@dataclass(frozen=True, slots=True)
class Project:
    """All that the generated files say."""

    name: str
    image: str
    build_context: Path | None
    """None: the image is not to be built."""
    limits: ContainerLimits
    network: Network
    environment: Mapping[str, str] = field(default_factory=dict)
    volumes: Sequence[Mapping[str, Any]] = ()
    gpus: int = 0


def base_file(project: Project) -> dict[str, Any]:
    """What a task's own compose file may change."""
    main: dict[str, Any] = {"image": project.image, "command": _IDLE}
    if project.build_context is not None:
        main["build"] = {"context": str(project.build_context)}
    return {"services": {MAIN: main}}


def host_access(document: Mapping[str, Any], places: Sequence[Path]) -> list[str]:
    """What a resolved compose file asks of the host; empty: nothing.

    Args:
        places: Directories that may be mounted from.
    """
    found: list[str] = []
    for name, service in document.get("services", {}).items():
        found += [f"{name}: {key}" for key in ("privileged", "devices", "gpus") if service.get(key)]
        for key in ("pid", "ipc", "network_mode", "userns_mode", "cgroup", "uts"):
            if service.get(key) == "host":
                found.append(f"{name}: {key}: host")
        for volume in service.get("volumes", ()):
            source = Path(volume.get("source") or "/")
            inside = any(source.resolve().is_relative_to(place.resolve()) for place in places)
            if volume["type"] == "bind" and not inside:
                found.append(f"{name}: mounts {source}")
    return found


def overlay_file(project: Project, document: Mapping[str, Any]) -> dict[str, Any]:
    """What no task changes: it is merged last.

    Args:
        document: What the task's own compose files come to, as `compose config` says it.
    """
    services: dict[str, Any] = {
        name: _service(project, name == MAIN) for name in {MAIN, *document.get("services", {})}
    }
    main = services[MAIN]
    main["environment"] = dict(project.environment)
    main["volumes"] = [dict(volume) for volume in project.volumes]
    main["pull_policy"] = "never"  # it is here by now
    if project.limits.cpus is not None:
        main["cpus"] = project.limits.cpus
    if project.gpus:
        device = {"driver": "nvidia", "count": project.gpus, "capabilities": ["gpu"]}
        main["deploy"] = {"resources": {"reservations": {"devices": [device]}}}
    overlay: dict[str, Any] = {"services": services}
    label = {OWNER_LABEL: project.name}
    if project.network == "none" and set(services) == {MAIN}:
        main["network_mode"] = "none"
    else:
        networks = {"default", *document.get("networks", {})}
        overlay["networks"] = {
            name: {"labels": label} | ({"internal": True} if project.network == "none" else {})
            for name in networks
        }
    return overlay


def _service(project: Project, is_main: bool) -> dict[str, Any]:
    limits = project.limits
    service: dict[str, Any] = {
        "labels": {OWNER_LABEL: project.name},
        "stop_grace_period": "0s",
        "restart": "no",
        "pids_limit": limits.processes,
        "mem_limit": f"{limits.memory_mb}m",
        "memswap_limit": f"{limits.memory_mb}m",
        "ulimits": {
            "core": 0,
            "nofile": OPEN_FILES,
            "fsize": limits.storage_mb << 20,
        },
        # What PID 1's output pipe is given lies on the host's disk.
        "logging": {"driver": "json-file", "options": {"max-size": _LOG_BYTES, "max-file": "1"}},
    }
    if limits.quota and is_main:
        service["storage_opt"] = {"size": f"{limits.storage_mb}m"}
    return service
