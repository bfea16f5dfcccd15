"""The parts of Harbor's task.toml schema (1.4) that decide whether Harbor accepts a file.

Mirrors `harbor.models.task.config.TaskConfig`, because importing Harbor costs more than reading
a thousand tasks; a test compares the two on good and bad files. As in Harbor, unknown keys are
accepted (`check.py` warns about them).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from ipaddress import ip_address, ip_network
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, model_validator

_PACKAGE_NAME = re.compile(r"^[a-zA-Z0-9][a-zA-Z0-9._-]*/[a-zA-Z0-9][a-zA-Z0-9._-]*$")
_SERVICE_NAME = re.compile(r"^[a-zA-Z0-9][a-zA-Z0-9_.-]*$")
_HOST_LABEL = re.compile(r"^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$")
_TPU_TOPOLOGY = re.compile(r"^[1-9]\d*(x[1-9]\d*)+$")
_STEP_FORBIDDEN = re.compile(r'[<>:"/\\|?*\x00-\x1f\x7f]')
_DEVICE_NAME = re.compile(
    r"^(CON|PRN|AUX|NUL|CONIN\$|CONOUT\$|(?:COM|LPT)[1-9¹²³])$", re.IGNORECASE
)


def _is_ip_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _is_ip_network(host: str) -> bool:
    try:
        ip_network(host, strict=True)
    except ValueError:
        return False
    return True


def _check_allowed_host(entry: str) -> None:
    """A hostname, `*.suffix`, IP address or CIDR range; never a URL, port or path."""
    host = entry.strip().lower().rstrip(".")
    if "/" in host or ":" in host:
        known = _is_ip_network if "/" in host else _is_ip_address
        if "%" in host or not known(host):
            raise ValueError(f"{entry!r} is not a hostname, IP address or CIDR range")
        return
    suffix = host.removeprefix("*.")
    if suffix != host and _is_ip_address(suffix):
        raise ValueError(f"{entry!r}: a wildcard needs a hostname after '*.'")
    if not all(_HOST_LABEL.match(label) for label in suffix.split(".")):
        raise ValueError(f"{entry!r} is not a hostname, '*.' wildcard, IP address or CIDR range")


def _check_allowed_hosts(hosts: list[str] | None) -> list[str] | None:
    for host in hosts or []:
        _check_allowed_host(host)
    return hosts


NetworkMode = Literal["no-network", "public", "allowlist"]
AllowedHosts = Annotated[list[str] | None, AfterValidator(_check_allowed_hosts)]


def _check_network(mode: NetworkMode | None, hosts: list[str] | None) -> None:
    # An empty list is harmless beside an explicit mode, but means nothing without one.
    stray = bool(hosts) if mode is not None else hosts is not None
    if stray and mode != "allowlist":
        raise ValueError("allowed_hosts is only valid when network_mode = 'allowlist'")


class PhaseNetwork(BaseModel):
    """Network policy of one phase ([agent] or [verifier]); unset means the environment's."""

    network_mode: NetworkMode | None = None
    allowed_hosts: AllowedHosts = None

    @model_validator(mode="after")
    def _network(self) -> Self:
        _check_network(self.network_mode, self.allowed_hosts)
        return self


class Author(BaseModel):
    name: str
    email: str | None = None


def _check_package_name(name: str) -> str:
    if not _PACKAGE_NAME.match(name) or ".." in name:
        raise ValueError("must have the form 'org/name' (letters, digits, '.', '_', '-')")
    return name


class PackageSection(BaseModel):
    """[task]: the name under which a registry knows the task."""

    name: Annotated[str, AfterValidator(_check_package_name)]
    version: str | None = Field(default=None, min_length=1)
    description: str = ""
    authors: list[Author] = []
    keywords: list[str] = []


class SolutionSection(BaseModel):
    env: dict[str, str] = {}


class AgentSection(PhaseNetwork):
    timeout_sec: float | None = None
    user: str | int | None = None


class Healthcheck(BaseModel):
    command: str
    interval_sec: float = 5.0
    timeout_sec: float = 30.0
    start_period_sec: float = 0.0
    start_interval_sec: float = 5.0
    retries: int = 3


def _check_topology(topology: str) -> str:
    if not _TPU_TOPOLOGY.match(topology.strip()):
        raise ValueError("expected positive sizes joined by 'x', as in '2x2x1'")
    return topology


class TpuSection(BaseModel):
    type: str = Field(min_length=1)
    topology: Annotated[str, AfterValidator(_check_topology)]


class McpServer(BaseModel):
    name: str
    # "http" is an older spelling of "streamable-http".
    transport: Literal["stdio", "sse", "streamable-http", "http"] = "sse"
    url: str | None = None
    command: str | None = None
    args: list[str] = []

    @model_validator(mode="after")
    def _endpoint(self) -> Self:
        if self.transport == "stdio" and not self.command:
            raise ValueError("transport 'stdio' needs a command")
        if self.transport != "stdio" and not self.url:
            raise ValueError(f"transport {self.transport!r} needs a url")
        return self


def _size_mb(size: str) -> int:
    text = size.strip().upper()
    factor = {"G": 1024.0, "M": 1.0, "K": 1 / 1024}.get(text[-1:])
    if factor is None:
        raise ValueError(f"{size!r} is not a size: write a number with G, M or K")
    return int(float(text[:-1]) * factor)


class EnvironmentSection(BaseModel):
    build_timeout_sec: float = 600.0
    docker_image: str | None = None
    os: Annotated[
        Literal["linux", "windows"],
        BeforeValidator(lambda value: value.lower() if isinstance(value, str) else value),
    ] = "linux"
    cpus: int | None = None
    memory_mb: int | None = None
    storage_mb: int | None = None
    gpus: int | None = None
    gpu_types: list[str] | None = None
    tpu: TpuSection | None = None
    mcp_servers: list[McpServer] = []
    env: dict[str, str] = {}
    skills_dir: str | None = None
    healthcheck: Healthcheck | None = None
    workdir: str | None = None
    network_mode: NetworkMode = "public"
    allowed_hosts: AllowedHosts = None
    allow_internet: bool | None = None  # deprecated: network_mode

    @model_validator(mode="before")
    @classmethod
    def _legacy_sizes(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        migrated = dict(data)
        for old, new in (("memory", "memory_mb"), ("storage", "storage_mb")):
            size = migrated.pop(old, None)
            if not isinstance(size, str):
                continue
            megabytes = _size_mb(size)
            if migrated.setdefault(new, megabytes) != megabytes:
                raise ValueError(f"{old} = {size!r} conflicts with {new} = {migrated[new]!r}")
        return migrated

    @model_validator(mode="after")
    def _network(self) -> Self:
        _check_network(self.network_mode, self.allowed_hosts)
        return self

    @property
    def allows_network(self) -> bool:
        """Whether the agent may reach any host, the deprecated key included."""
        explicit = "network_mode" in self.model_fields_set or self.allowed_hosts is not None
        if self.allow_internet is not None and not explicit:
            return self.allow_internet
        return self.network_mode != "no-network"


def _check_service(name: str | None) -> str | None:
    if name is not None and not _SERVICE_NAME.match(name.strip()):
        raise ValueError(f"{name!r} is not a Docker Compose service name")
    return name


class CollectHook(BaseModel):
    command: str
    service: Annotated[str, AfterValidator(_check_service)] = "main"
    timeout_sec: float = 60.0
    user: str | int | None = None


class VerifierSection(PhaseNetwork):
    timeout_sec: float = 600.0
    env: dict[str, str] = {}
    user: str | int | None = None
    environment_mode: Literal["shared", "separate"] | None = None
    environment: EnvironmentSection | None = None
    collect: list[CollectHook] = []

    @model_validator(mode="after")
    def _mode(self) -> Self:
        if self.environment_mode == "shared" and self.environment is not None:
            raise ValueError("environment_mode = 'shared' excludes [verifier.environment]")
        return self

    @property
    def runs_apart(self) -> bool:
        """Whether the verifier gets an environment of its own."""
        return self.environment_mode == "separate" or self.environment is not None


def _check_source(source: str) -> str:
    if ".." in PurePosixPath(source).parts:
        raise ValueError(f"source {source!r} must not contain '..'")
    return source


class Artifact(BaseModel):
    """An artifact; a mere text stands for a table with that `source`."""

    source: Annotated[str, AfterValidator(_check_source)]
    destination: str | None = None
    exclude: list[str] = []
    service: Annotated[str | None, AfterValidator(_check_service)] = None

    @model_validator(mode="before")
    @classmethod
    def _text(cls, data: Any) -> Any:
        return {"source": data} if isinstance(data, str) else data

    @model_validator(mode="after")
    def _paths(self) -> Self:
        absolute = self.source.startswith("/") or re.match(r"^[A-Za-z]:[/\\]", self.source)
        if (self.service or "main").strip() != "main" and not absolute:
            raise ValueError(f"source {self.source!r} of a sidecar must be an absolute path")
        if self.destination:
            target = PurePosixPath(self.destination)
            if "\\" in self.destination or target.is_absolute() or ".." in target.parts:
                raise ValueError(f"destination {self.destination!r} must be a plain relative path")
            if not target.parts or self.destination.rstrip("/") == "manifest.json":
                raise ValueError(f"destination {self.destination!r} is reserved or names nothing")
        return self


def _check_step_name(name: str) -> str:
    if (
        not name.strip()
        or name in {".", ".."}
        or name.endswith((".", " "))
        or _STEP_FORBIDDEN.search(name)
        or _DEVICE_NAME.fullmatch(name.partition(".")[0].rstrip(" "))
        or len(name.encode()) > 255
    ):
        raise ValueError(f"{name!r} is not a portable directory name")
    return name


class StepSection(BaseModel):
    name: Annotated[str, AfterValidator(_check_step_name)]
    agent: AgentSection = AgentSection()
    verifier: VerifierSection = VerifierSection()
    min_reward: float | dict[str, float] | None = None
    healthcheck: Healthcheck | None = None
    artifacts: list[Artifact] = []


def _check_step_names(steps: Sequence[StepSection] | None) -> Sequence[StepSection] | None:
    # Names must stay apart on file systems that fold case or normalise Unicode.
    keys = [unicodedata.normalize("NFC", step.name).casefold() for step in steps or ()]
    for index, key in enumerate(keys):
        if key in keys[:index]:
            raise ValueError(f"two steps are called {(steps or ())[index].name!r}")
    return steps


class TaskFile(BaseModel):
    """One task.toml."""

    schema_version: str = "1.4"
    task: PackageSection | None = None
    metadata: dict[str, Any] = {}
    verifier: VerifierSection = VerifierSection()
    agent: AgentSection = AgentSection()
    environment: EnvironmentSection = EnvironmentSection()
    solution: SolutionSection = SolutionSection()
    source: str | None = None
    multi_step_reward_strategy: Literal["mean", "final"] | None = None
    steps: Annotated[list[StepSection] | None, AfterValidator(_check_step_names)] = None
    artifacts: list[Artifact] = []

    @model_validator(mode="before")
    @classmethod
    def _legacy_version(cls, data: Any) -> Any:
        if isinstance(data, dict) and "version" in data:
            return {"schema_version": data["version"], **data}
        return data
