"""What a task's compose files ask of the host beyond what an ordinary container has.

By lists of what is known to stay inside: a key that a newer Compose brings is refused until it is
on one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from tbtui.rollout.environments.docker_cli import affects_clients
from tbtui.terminal import one_line

_TOP = frozenset(["name", "version", "services", "networks", "volumes", "secrets", "configs"])
# Whatever these say concerns the container itself, or other containers of its project.
_SERVICE = frozenset(
    [
        *("attach", "cap_drop", "command", "configs", "container_name", "depends_on"),
        *("cpu_count", "cpu_percent", "cpu_period", "cpu_quota", "cpu_shares", "cpus", "cpuset"),
        *("dns", "dns_opt", "dns_search", "domainname", "entrypoint", "environment", "expose"),
        *("extra_hosts", "group_add", "healthcheck", "hostname", "image", "init", "labels"),
        *("links", "logging", "mac_address", "mem_limit", "mem_reservation", "mem_swappiness"),
        *("memswap_limit", "networks", "pids_limit", "platform", "ports", "profiles"),
        *("pull_policy", "read_only", "restart", "scale", "secrets", "shm_size", "stdin_open"),
        *("stop_grace_period", "stop_signal", "storage_opt", "sysctls", "tmpfs", "tty"),
        *("user", "working_dir"),
    ]
)
_BUILD = frozenset(
    [
        *("args", "dockerfile_inline", "extra_hosts", "labels", "no_cache", "platforms", "pull"),
        *("secrets", "shm_size", "target"),
    ]
)
# A name is replaced by the project's own, except where `external` stands beside it.
_NETWORK = frozenset(["attachable", "enable_ipv6", "internal", "labels", "name"])
_VOLUME = frozenset(["labels", "name"])
# Docker's own, what debuggers need (it sees no process but those of its container), and what
# stores of secrets need (their memory is limited as ever). Not NET_ADMIN, which could undo an
# allowlist of hosts.
_CAPABILITIES = frozenset(
    [
        *("AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD"),
        *("NET_BIND_SERVICE", "NET_RAW", "SETFCAP", "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT"),
        *("IPC_LOCK", "SYS_PTRACE"),
    ]
)
# Not `rtprio` and `nice`: what goes before the host's own programs has more than its share of CPUs.
_ULIMITS = frozenset(
    [
        *("as", "core", "cpu", "data", "fsize", "locks", "memlock", "msgqueue", "nofile", "nproc"),
        *("rss", "sigpending", "stack"),
    ]
)
_MOST_CONTAINERS = 32
_NAMESPACES: Mapping[str, frozenset[str]] = {
    "cgroup": frozenset(["private"]),
    "ipc": frozenset(["none", "private", "shareable"]),
    "network_mode": frozenset(["bridge", "none"]),
    "pid": frozenset(),
}
"""What each may be besides a service's: `service:NAME`."""

_Inside = Callable[[str], bool]


def host_access(
    document: Mapping[str, Any], places: Sequence[Path], writable: Collection[str] = ()
) -> list[str]:
    """What a resolved compose file asks of the host; empty: nothing.

    Args:
        document: As `compose config` prints it: all paths absolute, short forms written out.
        places: Directories that may be mounted (for reading), read and built from.
        writable: Other directories that may be mounted, but nothing below them: what a container
            puts there may be a link by the time that another is started.
    """
    inside = _insider(places)
    found = [key for key in document if key not in _TOP and not key.startswith("x-")]
    for name, service in _table(document, "services"):
        found += [f"{name}: {what}" for what in _of_service(service, inside, writable)]
    # Each has a container's memory and processes to itself.
    if (count := sum(_count(each) for _, each in _table(document, "services"))) > _MOST_CONTAINERS:
        found.append(f"{count} containers, more than {_MOST_CONTAINERS}")
    for name, network in _table(document, "networks"):
        found += [f"network {name}: {what}" for what in _of_network(network)]
    for name, volume in _table(document, "volumes"):
        found += [f"volume {name}: {what}" for what in _of_volume(volume)]
    for kind in ("secrets", "configs"):
        for name, given in _table(document, kind):
            found += [f"{kind[:-1]} {name}: {what}" for what in _of_secret(given, inside)]
    return found


def client_reads(text: str, place: Path) -> list[str]:
    """What files outside of `place` the text of a task's compose file has the client itself read.

    `compose config` does not show them: what they hold is in the resolved file already.

    Raises:
        ValueError: it is not YAML.
    """
    inside = _insider([place])
    found = [] if inside(str(place / ".env")) else [".env is a link out of the task"]
    try:
        documents = list(yaml.compose_all(text, yaml.SafeLoader))
    except yaml.YAMLError as error:
        raise ValueError(one_line(str(error))) from error
    for key, value in _pairs(documents):
        match key:
            case "env_file" | "label_file":
                names = _scalars(value)
                outside = (n for n in names if "$" in n or not inside(str(place / n)))
                found += [f"{key}: {name}" for name in outside]
            case "include":
                found.append("include")
            case "extends":
                if any(inner == "file" for inner, _ in _pairs([value])):
                    found.append("extends a service of another file")
    return found


def _insider(places: Sequence[Path]) -> _Inside:
    real = [Path(os.path.realpath(place)) for place in places]

    def inside(path: str) -> bool:
        # What is not absolute is no path by now, but a URL.
        there = Path(os.path.realpath(path))
        return Path(path).is_absolute() and any(there.is_relative_to(place) for place in real)

    return inside


def _table(document: Mapping[str, Any], key: str) -> list[tuple[str, Mapping[str, Any]]]:
    return [(name, given or {}) for name, given in (document.get(key) or {}).items()]


def _count(service: Mapping[str, Any]) -> int:
    replicas = (service.get("deploy") or {}).get("replicas")
    return int(replicas or service.get("scale") or 1)


def _of_service(
    service: Mapping[str, Any], inside: _Inside, writable: Collection[str]
) -> Iterator[str]:
    for key, value in service.items():
        if not value or key in _SERVICE or key.startswith("x-"):
            continue
        match key:
            case "build":
                yield from _of_build(value, inside)
            case "volumes":
                yield from _of_mounts(value, inside, writable)
            case "deploy":
                if _reserves_devices(value):
                    yield "deploy: devices"
            case "cap_add":
                wanted = (str(name).upper().removeprefix("CAP_") for name in value)
                yield from (f"cap_add: {name}" for name in wanted if name not in _CAPABILITIES)
            case "security_opt":
                harmless = ("no-new-privileges", "no-new-privileges:true")
                yield from (f"security_opt: {each}" for each in value if each not in harmless)
            case "ulimits":
                yield from (f"ulimits: {name}" for name in value if name not in _ULIMITS)
            case "volumes_from":
                others = (str(each) for each in value if str(each).startswith("container:"))
                yield from (f"volumes_from: {each}" for each in others)
            case "cgroup" | "ipc" | "network_mode" | "pid":
                if value not in _NAMESPACES[key] and not str(value).startswith("service:"):
                    yield f"{key}: {value}"
            case _:
                yield key


def _reserves_devices(deploy: Mapping[str, Any]) -> bool:
    reserved = (deploy.get("resources") or {}).get("reservations") or {}
    return bool(reserved.get("devices") or reserved.get("generic_resources"))


def _of_mounts(
    volumes: Sequence[Mapping[str, Any]], inside: _Inside, writable: Collection[str]
) -> Iterator[str]:
    for volume in volumes:
        match volume.get("type"):
            case "volume" | "tmpfs":
                pass  # a volume is declared at the top
            case "bind":
                source = str(volume.get("source") or "/")
                if source not in writable and not inside(source):
                    yield f"mounts {source}"
            case other:
                yield f"mounts a {other}"


def _of_build(build: Mapping[str, Any], inside: _Inside) -> Iterator[str]:
    context = str(build.get("context") or "/")
    for key, value in build.items():
        if not value or key in _BUILD or key.startswith("x-"):
            continue
        match key:
            case "context":
                if not inside(context):
                    yield f"builds from {context}"
            case "dockerfile":
                path = str(Path(context) / value)
                if not inside(path):
                    yield f"builds by {path}"
            case "additional_contexts":
                for other in map(str, value.values()):
                    if not (other.startswith(("docker-image://", "service:")) or inside(other)):
                        yield f"builds from {other}"
            case "network":
                if value not in ("default", "none"):
                    yield f"builds in the network {value}"
            case _:
                yield f"build: {key}"


def _of_network(network: Mapping[str, Any]) -> Iterator[str]:
    for key, value in network.items():
        if not value or key in _NETWORK or key.startswith("x-"):
            continue
        if key == "driver" and value == "bridge":
            continue
        # Another's network. And addresses that the task names may be somebody's, whom the host
        # would then no longer reach.
        yield f"{key}: {value}" if isinstance(value, str) else key


def _of_volume(volume: Mapping[str, Any]) -> Iterator[str]:
    for key, value in volume.items():
        if not value or key in _VOLUME or key.startswith("x-"):
            continue
        if key == "driver" and value == "local":
            continue
        yield f"{key}: {value}" if isinstance(value, str) else key


def _of_secret(given: Mapping[str, Any], inside: _Inside) -> Iterator[str]:
    for key, value in given.items():
        match key:
            case "name" | "content" | "labels":
                pass
            case "environment":
                if affects_clients(str(value)):
                    yield f"the host's {value}"
            case "file":
                if not inside(str(value)):
                    yield f"reads {value}"
            case _ if value and not key.startswith("x-"):
                yield key


def _pairs(roots: Sequence[yaml.Node | None]) -> Iterator[tuple[str, yaml.Node]]:
    """Every key with its value, at any depth, each once however often it is referred to."""
    waiting = [root for root in roots if root is not None]
    seen: set[int] = set()
    while waiting:
        node = waiting.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            waiting += node.value
        elif isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                if not isinstance(key, yaml.ScalarNode) or key.tag == "tag:yaml.org,2002:binary":
                    raise ValueError(f"line {key.start_mark.line + 1}: a key that is not plain")
                yield key.value, value
                waiting.append(value)


def _scalars(node: yaml.Node) -> Iterator[str]:
    """The paths of `env_file`, in any of its forms."""
    if isinstance(node, yaml.ScalarNode):
        yield node.value
    elif isinstance(node, yaml.SequenceNode):
        for each in node.value:
            yield from _scalars(each)
    else:
        yield from (value.value for key, value in _pairs([node]) if key == "path")
