"""The compose file that a trial's project is made from. Pure.

The task's own files are resolved by Compose itself; what they come to is then edited here and is
the only file that the engine is given. Merging a second file over theirs would not do: Compose
refuses limits said in two ways, and nothing merged can take a key away.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

Network = Literal["none", "public", "sidecar"]
"""What containers reach: nothing but each other, the internet, or what Harbor's filtering sidecar
lets through."""
Service = Mapping[str, Any]
MAIN = "main"
OPEN_FILES = 4096
_LOG_BYTES = "8m"
# PID 1 must not be one that a SIGTERM does not end, and nothing waits for it: it is killed.
_IDLE = ["sh", "-c", "sleep infinity"]
OWNER_LABEL = "tbtui.project"
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)i?b?", re.IGNORECASE)
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
# What is said of a container in terms of this machine, or in place of which there is our own.
# Nothing on the host uses a task's ports, and two trials of one task can't both have them.
_DROPPED = frozenset(
    [
        *("container_name", "cpus", "deploy", "logging", "mem_limit", "mem_reservation"),
        *("memswap_limit", "pids_limit", "ports", "restart", "stop_grace_period", "storage_opt"),
        *("ulimits",),
    ]
)


@dataclass(frozen=True, slots=True)
class ContainerLimits:
    """What each container of a trial may use."""

    processes: int
    """Processes and threads."""
    memory_mb: int
    """Memory of a container whose service states none; there is no swap on top of it."""
    memory_stated: bool
    """`memory_mb` is what task.toml says, which the compose file may not exceed in `main`."""
    cpus: float | None
    """Cores' worth of CPU time of `main`; None: as much as there is."""
    storage_mb: int
    """The largest single file, and, where the engine can hold it, all that is written."""
    quota: bool
    """The engine holds `storage_mb` itself."""
    host_cpus: int
    """More than those an engine refuses to promise."""
    host_memory_mb: int


@dataclass(frozen=True, slots=True)
class Project:
    """What the generated compose file is made of."""

    name: str
    image: str
    build_context: Path | None
    """None: the image is not to be built."""
    limits: ContainerLimits
    network: Network
    environment: Mapping[str, str] = field(default_factory=dict)
    volumes: Sequence[Mapping[str, Any]] = ()
    gpus: int = 0
    hostname: str = ""
    """Name of `main` in its own eyes; empty: the engine gives it one."""
    shared: Mapping[str, str] | None = None
    """Volumes in the place of directories of the host; all others that the task's containers mount
    are for reading only. None: they mount, and write to, what they ask for."""


@dataclass(frozen=True, slots=True)
class ProjectFile:
    """The compose file for the engine."""

    document: Mapping[str, Any]
    lowered: tuple[str, ...]
    """Limits that the task states and does not get, one line each."""

    @property
    def built(self) -> Mapping[str, Any]:
        """The services whose images are built, and of what."""
        services: Mapping[str, Service] = self.document["services"]
        return {name: each["build"] for name, each in services.items() if each.get("build")}


def base_file(project: Project) -> dict[str, Any]:
    """What a task's own compose file may change."""
    main: dict[str, Any] = {"image": project.image, "command": _IDLE}
    if project.build_context is not None:
        main["build"] = {"context": str(project.build_context), "dockerfile": "Dockerfile"}
    return {"services": {MAIN: literal(main)}}


def project_file(project: Project, document: Mapping[str, Any]) -> ProjectFile:
    """The whole project, with what no task changes.

    Args:
        document: What the base file and the task's own come to, as `compose config` says it.
    """
    stated: Mapping[str, Service] = document.get("services") or {}
    lowered: list[str] = []
    services = {name: _service(project, name, stated[name], lowered) for name in stated}
    _complete_main(project, services[MAIN], stated[MAIN])
    for name, image in _renamed_images(project, stated).items():
        services[name]["image"] = image
    whole = {key: value for key, value in document.items() if key not in ("name", "networks")}
    whole["services"] = services
    networks = _networks(project, services, document.get("networks") or {})
    if networks:
        whole["networks"] = networks
    volumes = (document.get("volumes") or {}) | dict.fromkeys((project.shared or {}).values())
    if volumes:
        whole["volumes"] = {name: _own(each) for name, each in volumes.items()}
    return ProjectFile(whole, tuple(lowered))


def unfilled(text: str, names: Sequence[str]) -> list[str]:
    """Those of the variables that a compose file refers to and gives no default for."""
    plain = {name: rf"(?<!\$)\$(?:{name}\b|\{{{name}\}})" for name in names}
    default = {name: rf"(?<!\$)\$\{{{name}:?[-+?]" for name in names}
    return [
        name
        for name in names
        if re.search(plain[name], text) and not re.search(default[name], text)
    ]


def literal(value: Any) -> Any:
    """The same where no `$` refers to a variable."""
    match value:
        case str():
            return value.replace("$", "$$")
        case Mapping():
            return {key: literal(each) for key, each in value.items()}
        case list() | tuple():
            return [literal(each) for each in value]
    return value


def _service(project: Project, name: str, stated: Service, lowered: list[str]) -> dict[str, Any]:
    service = {key: value for key, value in stated.items() if key not in _DROPPED}
    service |= _limits(project.limits, name, stated, lowered)
    # What others know it by; the container itself is named by its project.
    if (known_as := stated.get("container_name")) and not stated.get("network_mode"):
        service["networks"] = {
            network: {**(given or {}), "aliases": [*((given or {}).get("aliases") or ()), known_as]}
            for network, given in (stated.get("networks") or {"default": None}).items()
        }
    # A variable without a value was not set; the engine's client would look for it once more, and
    # it has more variables than the task's.
    if environment := stated.get("environment"):
        service["environment"] = _set_only(environment)
    if build := stated.get("build"):
        if args := build.get("args"):
            service["build"] = {**build, "args": _set_only(args)}
        service["pull_policy"] = "never"  # it is here by now
    if volumes := stated.get("volumes"):
        service["volumes"] = [_mount(project, name, each, lowered) for each in volumes]
    deploy = stated.get("deploy") or {}
    kept = {key: deploy[key] for key in ("mode", "replicas") if key in deploy}
    if devices := ((deploy.get("resources") or {}).get("reservations") or {}).get("devices"):
        kept["resources"] = {"reservations": {"devices": devices}}
    # `main` is lost when it ends. Others may wait for each other so, but not past a reboot.
    restarts = name != MAIN and (stated.get("restart") or "no") not in ("no", False)
    return service | {
        **({"deploy": kept} if kept else {}),
        "labels": {OWNER_LABEL: project.name},
        "stop_grace_period": "0s",
        "restart": "on-failure" if restarts else "no",
        # What PID 1's output pipe is given lies on the host's disk.
        "logging": {"driver": "json-file", "options": {"max-size": _LOG_BYTES, "max-file": "1"}},
    }


def _mount(
    project: Project, name: str, volume: Mapping[str, Any], lowered: list[str]
) -> Mapping[str, Any]:
    """Without the right to change the task's own files, which other trials start from: one of
    them may become a link to anywhere on the host."""
    source = str(volume.get("source"))
    if volume.get("type") != "bind" or project.shared is None:
        return volume
    if source in project.shared:
        target = volume.get("target")
        return {"type": "volume", "source": project.shared[source], "target": target}
    if not volume.get("read_only"):
        lowered.append(f"{name}: {volume.get('target')} is mounted for reading only")
    return {**volume, "read_only": True}


def _set_only(variables: Any) -> dict[str, Any]:
    return {name: value for name, value in _table(variables).items() if value is not None}


def _limits(
    limits: ContainerLimits, name: str, stated: Service, lowered: list[str]
) -> dict[str, Any]:
    """Theirs within ours; ours where they say nothing."""
    resources = (stated.get("deploy") or {}).get("resources") or {}
    theirs = resources.get("limits") or {}
    is_main = name == MAIN

    def within(what: str, wish: float | None, most: float, whose: str) -> float:
        if wish is None or wish <= most:
            return most if wish is None else wish
        lowered.append(f"{name}: {what} lowered from {_figure(wish)} to {_figure(most)} ({whose})")
        return most

    wish, memory = _mib(theirs.get("memory") or stated.get("mem_limit")), limits.memory_mb
    if wish is not None and is_main and limits.memory_stated:
        memory = int(within("memory in MiB", wish, memory, "memory_mb in task.toml"))
    elif wish is not None:
        memory = int(within("memory in MiB", wish, limits.host_memory_mb, "all that the host has"))
    pids = _count(theirs.get("pids") or stated.get("pids_limit"))
    pids = within("processes", pids, limits.processes, "environment_kwargs.processes")
    given: dict[str, Any] = {
        "pids_limit": int(pids),
        "mem_limit": f"{memory}m",
        "memswap_limit": f"{memory}m",
    }
    reserved = (resources.get("reservations") or {}).get("memory") or stated.get("mem_reservation")
    if (reservation := _mib(reserved)) is not None:
        given["mem_reservation"] = f"{int(min(reservation, memory))}m"
    cpus, ours = theirs.get("cpus") or stated.get("cpus"), limits.cpus if is_main else None
    if cpus and ours is not None:
        given["cpus"] = within("cpus", float(cpus), ours, "cpus in task.toml")
    elif cpus:
        given["cpus"] = within("cpus", float(cpus), limits.host_cpus, "all that the host has")
    elif ours is not None:
        given["cpus"] = ours
    asked = stated.get("ulimits") or {}
    files = within("open files", _count(_hard(asked.get("nofile"))), OPEN_FILES, "a trial's most")
    given["ulimits"] = {
        **asked,
        "core": 0,
        "nofile": int(files),
        "fsize": limits.storage_mb << 20,
    }
    if limits.quota and is_main:
        given["storage_opt"] = {"size": f"{limits.storage_mb}m"}
    return given


def _hard(limit: Any) -> Any:
    return limit.get("hard") if isinstance(limit, Mapping) else limit


def _count(value: Any) -> float | None:
    """A number of things; one that is not above zero means any number of them."""
    if value is None:
        return None
    count = float(value)
    return count if count > 0 else math.inf


def _mib(value: Any) -> float | None:
    """A size as Compose takes and prints it, in MiB."""
    found = _SIZE.fullmatch(str(value or "").strip())
    if found is None:
        return None
    size = float(found[1]) * _UNITS[found[2].lower()] / (1 << 20)
    return size or None


def _figure(number: float) -> str:
    return "unlimited" if math.isinf(number) else f"{number:g}"


def _complete_main(project: Project, main: dict[str, Any], stated: Service) -> None:
    if project.build_context is None:
        main.pop("build", None)
    main["environment"] = {**main.get("environment", {}), **literal(project.environment)}
    main["volumes"] = [*main.get("volumes", ()), *literal(list(project.volumes))]
    main["pull_policy"] = "never"  # it is here by now
    if project.hostname and project.network != "sidecar":  # there it is the sidecar's
        main["hostname"] = project.hostname
    deploy = main.get("deploy") or {}
    if project.gpus and not (main.get("gpus") or deploy.get("resources")):
        device = {"driver": "nvidia", "count": project.gpus, "capabilities": ["gpu"]}
        main["deploy"] = {**deploy, "resources": {"reservations": {"devices": [device]}}}


def _table(environment: Any) -> dict[str, Any]:
    """The variables of a service: Compose prints a table, its substitutes what the file has."""
    if isinstance(environment, Mapping):
        return dict(environment)
    pairs = (str(line).partition("=") for line in environment or ())
    return {name: value if equals else None for name, equals, value in pairs}


def _renamed_images(project: Project, stated: Mapping[str, Service]) -> dict[str, str]:
    """Else a task could put its own image in the place of one that others start from."""
    # An image that is built of the task's directory has its content's name, one that isn't has
    # somebody else's.
    own = project.image if project.build_context is not None else None
    makers = {n: each for n, each in stated.items() if each.get("build")}
    if own is None:
        makers.pop(MAIN, None)
    built = {
        str(service["image"]): f"{project.name}-{name}"
        for name, service in makers.items()
        if service.get("image") not in (None, own)
    }
    images = {name: service.get("image") for name, service in stated.items()}
    return {name: built[image] for name, image in images.items() if image in built}


def _networks(
    project: Project, services: Mapping[str, dict[str, Any]], stated: Mapping[str, Any]
) -> dict[str, Any]:
    """The project's networks; services that have none of them are cut off where that is wanted."""
    cut_off = project.network == "none"
    for service in services.values():
        # The engine's own network, which can't be made internal.
        if cut_off and (len(services) == 1 or service.get("network_mode") == "bridge"):
            service["network_mode"] = "none"
            service.pop("networks", None)
    if cut_off and len(services) == 1:
        return {}
    ours = {"labels": {OWNER_LABEL: project.name}} | ({"internal": True} if cut_off else {})
    networks = {name: _own(each) for name, each in {"default": None, **stated}.items()}
    return {name: each if each.get("external") else each | ours for name, each in networks.items()}


def _own(given: Mapping[str, Any] | None) -> dict[str, Any]:
    """A network or volume under the project's name for it: no other trial's, nor the host's."""
    keep = (given or {}).get("external")
    return {key: value for key, value in (given or {}).items() if keep or key != "name"}
