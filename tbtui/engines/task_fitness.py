"""Examines before the first trial which tasks the chosen environment can serve.

What is found is kept in the user's cache, for as long as neither a task's files nor what this host
has have changed: thousands of tasks take a second the next time.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from tbtui.config import RunConfig
from tbtui.paths import cache_dir
from tbtui.rollout.environments.base import EnvironmentUnavailable
from tbtui.rollout.environments.choose import (
    DOCKER_IMPORT_PATH,
    PODMAN_IMPORT_PATH,
    SANDBOX_IMPORT_PATH,
    EnvironmentChoice,
    choose_environment,
    probe_host,
)
from tbtui.rollout.environments.suitability import (
    Obstacle,
    ObstacleKind,
    SandboxHost,
    container_obstacles,
    sandbox_host,
    sandbox_obstacles,
)
from tbtui.wheels.cache import REMEDY, WheelCacheError

_FORMAT = 1
_MOST_KEPT = 100_000
_FILES = ("task.toml", "environment/Dockerfile", "environment/docker-compose.yaml", "tests/test.sh")

_WORDS: Mapping[ObstacleKind, str] = {
    "compose": "{} of several containers",
    "image": "{} with an image and no Dockerfile",
    "step": "{} with steps that it can't follow",
    "packages": "{} with packages that this host lacks",
    "fetching": "{} with steps that need a network",
    "gpu": "{} for a GPU",
    "memory": "{} for more memory than there is",
    "windows": "{} for Windows",
}


@dataclass(frozen=True, slots=True)
class Fitness:
    """What an environment can serve of some tasks."""

    environment: str
    tasks: tuple[Path, ...]
    obstacles: Mapping[Path, tuple[Obstacle, ...]] = field(default_factory=dict)
    """Task -> what keeps it from running; tasks without an obstacle are left out."""

    @property
    def unfit(self) -> int:
        return len(self.obstacles)

    def reason(self, task: Path) -> str | None:
        """Why a task can't be used, in one line; None: nothing is known against it."""
        found = self.obstacles.get(task, ())
        return found[0].text if found else None

    def summary(self) -> str | None:
        """One sentence for a person, None where all can be used."""
        if not self.obstacles:
            return None
        total = len(self.tasks)
        firsts = Counter(found[0].kind for found in self.obstacles.values())
        verifiers = firsts.pop("verifier", 0)
        parts = []
        if firsts:
            kinds = ", ".join(_WORDS[kind].format(n) for kind, n in firsts.most_common())
            unbuilt = firsts.total()
            parts.append(f"{unbuilt} of {total} tasks can't be built in {self._name} ({kinds})")
        if verifiers:
            whose = f"of {verifiers}" + ("" if firsts else f" of {total} tasks")
            parts.append(
                f"the verifiers {whose} need a network, or a tool that is not there"
                f" (`{REMEDY}` fetches Python packages)"
            )
        return "; ".join(parts)

    @property
    def _name(self) -> str:
        return f"the {self.environment}" if self.environment == "sandbox" else self.environment


class _Kept(msgspec.Struct):
    """The cache on disk."""

    format: int
    host: str
    """A digest of what the host has."""
    tasks: dict[str, tuple[str, tuple[tuple[ObstacleKind, str], ...]]] = {}
    """Task -> (digest of its files' times and sizes, obstacles in the sandbox)."""


def choose_for_tasks(config: RunConfig, tasks: Sequence[Path]) -> tuple[EnvironmentChoice, Fitness]:
    """The environment of a run, and what it can serve of the run's tasks.

    `environment_type=auto` is the sandbox, unless it can't serve most of the tasks and a Docker
    engine answers that can serve more of them.

    Raises:
        EnvironmentUnavailable: as `choose_environment`.
    """
    auto = config.environment_type == "auto"
    asked = None if auto else config.environment_type
    choice = choose_environment(asked, config.environment_kwargs)
    fitness = examine(tasks, choice)
    if auto and choice.import_path == SANDBOX_IMPORT_PATH and 2 * fitness.unfit > len(tasks):
        containers = in_containers(tasks)
        if containers.unfit < fitness.unfit and _docker_answers():
            docker = choose_environment("docker", config.environment_kwargs)
            reason = f"auto: the sandbox can't serve {fitness.unfit} of {len(tasks)} tasks"
            return dataclasses.replace(docker, reason=reason), containers
    return choice, fitness


def offer(fitness: Fitness) -> str:
    """What to do about tasks that the sandbox can't serve, for the end of a sentence."""
    if fitness.environment != "sandbox" or 2 * fitness.unfit <= len(fitness.tasks):
        return ""
    served = len(fitness.tasks) - in_containers(fitness.tasks).unfit
    where = "" if _docker_answers() else " (no Docker engine answers here)"
    return f". environment_type=docker takes {served} of them{where}"


def _docker_answers() -> bool:
    host = probe_host(everything=True)
    return host.docker == "works" and host.compose == "works"


def examine(
    tasks: Iterable[Path], choice: EnvironmentChoice, host: SandboxHost | None = None
) -> Fitness:
    """Read the tasks' files for what `choice` can't serve; no container starts.

    Environments elsewhere than on this machine are taken to serve all.

    Raises:
        EnvironmentUnavailable: the wheel cache, which sandboxes show, can't be read.
    """
    paths = tuple(tasks)
    if choice.import_path == SANDBOX_IMPORT_PATH:
        try:
            here = host or sandbox_host()
        except WheelCacheError as error:
            raise EnvironmentUnavailable(str(error)) from error
        return Fitness("sandbox", paths, _in_sandbox(paths, here))
    if choice.import_path in (DOCKER_IMPORT_PATH, PODMAN_IMPORT_PATH) or choice.type == "docker":
        return in_containers(paths, choice.name, host)
    return Fitness(choice.name, paths)


def in_containers(
    tasks: Sequence[Path], engine: str = "docker", host: SandboxHost | None = None
) -> Fitness:
    """What a container engine of this machine could serve of the tasks."""
    here = host or sandbox_host()
    found = {task: container_obstacles(task, here) for task in tasks}
    return Fitness(engine, tuple(tasks), {task: each for task, each in found.items() if each})


def _in_sandbox(tasks: Sequence[Path], host: SandboxHost) -> dict[Path, tuple[Obstacle, ...]]:
    place = cache_dir() / "task-fitness.json"
    kept = _read(place, _host_digest(host))
    found: dict[Path, tuple[Obstacle, ...]] = {}
    new = False
    for task in tasks:
        name, state = str(task), _state(task)
        known = kept.tasks.get(name)
        if known is None or known[0] != state:
            obstacles = sandbox_obstacles(task, host)
            kept.tasks[name] = state, tuple((each.kind, each.text) for each in obstacles)
            new = True
        else:
            obstacles = tuple(Obstacle(kind, text) for kind, text in known[1])
        if obstacles:
            found[task] = obstacles
    if new:
        _write(place, kept)
    return found


def _state(task: Path) -> str:
    """A text that changes with the files that are read; a directory's time, with what is in it."""
    parts = []
    for name in (*_FILES, "environment", "steps"):
        try:
            status = os.stat(f"{task}/{name}")  # noqa: PTH116  four thousand tasks, six files
            parts.append(f"{status.st_mtime_ns}:{status.st_size}")
        except OSError:
            parts.append("-")
    return " ".join(parts)


def _host_digest(host: SandboxHost) -> str:
    known = (
        sorted(host.packages),
        sorted(host.commands),
        sorted((each.requirements, each.python) for each in host.manifest.resolved),
        round(host.memory_mb),
        host.gpu,
    )
    return hashlib.sha256(repr(known).encode()).hexdigest()


def _read(place: Path, host: str) -> _Kept:
    try:
        kept = msgspec.json.decode(place.read_bytes(), type=_Kept)
    except (OSError, msgspec.DecodeError):  # it is only a cache
        return _Kept(_FORMAT, host)
    current = (kept.format, kept.host) == (_FORMAT, host) and len(kept.tasks) < _MOST_KEPT
    return kept if current else _Kept(_FORMAT, host)


def _write(place: Path, kept: _Kept) -> None:
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        partial = place.with_suffix(f".{os.getpid()}")
        partial.write_bytes(msgspec.json.encode(kept))
        partial.replace(place)
    except OSError:  # a full or read-only disk: it is looked at anew next time
        return
