"""Examines before the first trial which tasks the chosen environment can serve.

What is found is kept in the user's cache, for as long as neither a task's files nor what this host
has have changed: thousands of tasks take a second the next time.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
import stat
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from tbtui.config import RunConfig
from tbtui.findings import Unusable, UnusableKind
from tbtui.invocation import to_type
from tbtui.paths import cache_dir, replace_file
from tbtui.rollout.environments.base import EnvironmentUnavailable
from tbtui.rollout.environments.choose import (
    DOCKER_IMPORT_PATH,
    PODMAN_IMPORT_PATH,
    SANDBOX_IMPORT_PATH,
    EnvironmentChoice,
    choose_environment,
    probe_host,
)
from tbtui.rollout.environments.host_variables import (
    HostVariable,
    host_variables,
    listed,
    unusable_for_variables,
)
from tbtui.rollout.environments.suitability import (
    SandboxHost,
    sandbox_host,
    unusable_in_containers,
    unusable_in_sandbox,
)
from tbtui.terminal import counted
from tbtui.wheels.cache import WheelCacheError

_FORMAT = 3
_MOST_KEPT = 100_000
_TREES = ("environment", "tests", "steps")
_MOST_FILES = 200
"""How many files of a task are looked at for a change."""

_WORDS: Mapping[UnusableKind, str] = {
    "compose": "{} of several containers",
    "image": "{} with base images that hold more than this host",
    "step": "{} with steps that it can't follow",
    "packages": "{} with packages that this host lacks",
    "fetching": "{} with steps that need a network",
    "gpu": "{} for a GPU",
    "memory": "{} for more memory than there is",
    "windows": "{} for Windows",
}
_OF_VARIABLES: Mapping[UnusableKind, str] = {
    "variables": "variables that are not set here",
    "credentials": "credentials of yours",
}
_NOT_BUILDING: frozenset[UnusableKind] = frozenset(["verifier", *_OF_VARIABLES])


@dataclass(frozen=True, slots=True)
class Fitness:
    """What an environment can serve of some tasks."""

    environment: str
    tasks: tuple[Path, ...]
    unusable: Mapping[Path, tuple[Unusable, ...]] = field(default_factory=dict)
    """Task -> all that keeps it from running; tasks that can be used are left out."""
    variables: Mapping[Path, tuple[HostVariable, ...]] = field(default_factory=dict)
    """Task -> the variables of this machine that it takes; tasks that take none are left out."""

    def summary(self) -> str | None:
        """One sentence for a person, None where all can be used."""
        if not self.unusable:
            return None
        total = len(self.tasks)
        firsts = Counter(found[0].kind for found in self.unusable.values())
        unbuilt = Counter({kind: n for kind, n in firsts.items() if kind not in _NOT_BUILDING})
        parts = []
        if unbuilt:
            kinds = ", ".join(_WORDS[kind].format(n) for kind, n in unbuilt.most_common())
            parts.append(
                f"{unbuilt.total()} of {counted(total, 'task')} can't be built in {self._name}"
                f" ({kinds})"
            )
        if verifiers := firsts["verifier"]:
            whose = f"of {verifiers}" + ("" if parts else f" of {counted(total, 'task')}")
            parts.append(
                f"the verifiers {whose} need a network, or a tool that is not there"
                f" (`{to_type('tasks', 'prefetch', self._directory)}` fetches Python packages)"
            )
        for kind, what in _OF_VARIABLES.items():
            if not (n := firsts[kind]):
                continue
            whose = str(n) if parts else f"{n} of {counted(total, 'task')}"
            first = next(found[0].text for found in self.unusable.values() if found[0].kind == kind)
            parts.append(f"{whose} {'needs' if n == 1 else 'need'} {what} ({first})")
        return "; ".join(parts)

    @property
    def refused(self) -> frozenset[Path]:
        """Tasks that a trial refuses in any environment: for variables not set, or credentials."""
        return frozenset(
            task
            for task, found in self.unusable.items()
            if any(each.kind in _OF_VARIABLES for each in found)
        )

    def taken(self) -> str | None:
        """The variables of this machine that the tasks take, set or not, in one line; None where
        they take none."""
        if not (n := len(self.variables)):
            return None
        names = listed(each for found in self.variables.values() for each in found)
        return (
            f"{n} of {counted(len(self.tasks), 'task')} {'takes' if n == 1 else 'take'} variables"
            f" of this machine: {names}"
        )

    @property
    def _directory(self) -> Path:
        """The one that has them all, or the only task."""
        only = self.tasks[0]
        return only if len(self.tasks) == 1 else Path(os.path.commonpath(self.tasks))

    @property
    def _name(self) -> str:
        return f"the {self.environment}" if self.environment == "sandbox" else self.environment


class _Examined(msgspec.Struct, frozen=True):
    """What a task's files say, in the cache."""

    state: str
    """A text that changes with the files."""
    unusable: tuple[tuple[UnusableKind, str], ...]
    """In the sandbox."""
    variables: tuple[HostVariable, ...]


class _Kept(msgspec.Struct):
    """The cache on disk."""

    format: int
    host: str
    """A digest of what the host has."""
    tasks: dict[str, _Examined] = {}


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
    solved = config.agent == "oracle" or config.check_zeros == "first"
    in_sandbox = choice.import_path == SANDBOX_IMPORT_PATH
    # There the first 0 of a task is checked against its solution.
    solution = solved or (in_sandbox and config.check_zeros == "auto")
    allowed = config.task_credentials
    fitness = examine(tasks, choice, solution=solution, allowed=allowed)
    if auto and in_sandbox and 2 * len(fitness.unusable) > len(tasks):
        containers = in_containers(tasks, solution=solved, allowed=allowed)
        if len(containers.unusable) < len(fitness.unusable) and _docker_answers():
            docker = choose_environment("docker", config.environment_kwargs)
            reason = (
                f"auto: the sandbox can't serve {len(fitness.unusable)} of"
                f" {counted(len(tasks), 'task')}"
            )
            return dataclasses.replace(docker, reason=reason), containers
    return choice, fitness


def offer(fitness: Fitness) -> str:
    """What to do about tasks that the sandbox can't serve, for the end of a sentence."""
    if fitness.environment != "sandbox" or 2 * len(fitness.unusable) <= len(fitness.tasks):
        return ""
    unusable = fitness.refused | in_containers(fitness.tasks, solution=False).unusable.keys()
    if (served := len(fitness.tasks) - len(unusable)) == 0:
        return ""
    where = "" if _docker_answers() else " (no Docker engine answers here)"
    return f". environment_type=docker takes {served} of them{where}"


def _docker_answers() -> bool:
    host = probe_host(everything=True)
    return host.docker == "works" and host.compose == "works"


def examine(
    tasks: Iterable[Path],
    choice: EnvironmentChoice,
    host: SandboxHost | None = None,
    *,
    solution: bool = True,
    allowed: Collection[str] = (),
) -> Fitness:
    """Read the tasks' files for what `choice` can't serve; no container starts.

    Environments elsewhere than on this machine are taken to serve all that have their variables.

    Args:
        solution: Whether tasks' own solutions run, too.
        allowed: The names of credentials that tasks may take.

    Raises:
        EnvironmentUnavailable: the wheel cache, which sandboxes show, can't be read.
    """
    paths = tuple(tasks)
    if choice.import_path == SANDBOX_IMPORT_PATH:
        try:
            here = host or sandbox_host()
        except WheelCacheError as error:
            raise EnvironmentUnavailable(str(error)) from error
        known = _in_sandbox(paths, here)
        unusable = {
            task: tuple(Unusable(kind, text) for kind, text in each.unusable)
            for task, each in known.items()
        }
        variables = {task: each.variables for task, each in known.items()}
        return _fitness("sandbox", unusable, variables, solution, allowed)
    if choice.import_path in (DOCKER_IMPORT_PATH, PODMAN_IMPORT_PATH) or choice.type == "docker":
        return in_containers(paths, choice.name, host, solution=solution, allowed=allowed)
    variables = {task: host_variables(task) for task in paths}
    return _fitness(choice.name, dict.fromkeys(paths, ()), variables, solution, allowed)


def in_containers(
    tasks: Sequence[Path],
    engine: str = "docker",
    host: SandboxHost | None = None,
    *,
    solution: bool = True,
    allowed: Collection[str] = (),
) -> Fitness:
    """What a container engine of this machine could serve of the tasks."""
    here = host or sandbox_host()
    unusable = {task: unusable_in_containers(task, here) for task in tasks}
    variables = {task: host_variables(task) for task in tasks}
    return _fitness(engine, unusable, variables, solution, allowed)


def _fitness(
    environment: str,
    unusable: Mapping[Path, tuple[Unusable, ...]],
    variables: Mapping[Path, tuple[HostVariable, ...]],
    solution: bool,
    allowed: Collection[str],
) -> Fitness:
    found: dict[Path, tuple[Unusable, ...]] = {}
    taken: dict[Path, tuple[HostVariable, ...]] = {}
    for task, each in unusable.items():
        used = tuple(v for v in variables[task] if solution or not v.of_solution)
        kept_back = unusable_for_variables(used, os.environ, solution=solution, allowed=allowed)
        if both := (*each, *kept_back):
            found[task] = both
        if used:
            taken[task] = used
    return Fitness(environment, tuple(unusable), found, taken)


def _in_sandbox(tasks: Sequence[Path], host: SandboxHost) -> dict[Path, _Examined]:
    place = cache_dir() / "task-fitness.json"
    kept = _read(place, _host_digest(host))
    found: dict[Path, _Examined] = {}
    new = False
    for task in tasks:
        name, state = str(task), _state(task)
        known = kept.tasks.get(name)
        if known is None or known.state != state:
            known = _Examined(
                state,
                tuple((each.kind, each.text) for each in unusable_in_sandbox(task, host)),
                host_variables(task),
            )
            kept.tasks[name] = known
            new = True
        found[task] = known
    if new:
        _write(place, kept)
    return found


def _state(task: Path) -> str:
    """A digest that changes with the files that are read."""
    digest = hashlib.sha256()
    waiting = [f"{task}/task.toml", *(f"{task}/{tree}" for tree in _TREES)]
    for number, path in enumerate(waiting):
        if number == _MOST_FILES:
            break
        try:
            status = os.stat(path)  # noqa: PTH116  thousands of tasks, many files each
            digest.update(f"{path}:{status.st_mtime_ns}:{status.st_size}\n".encode())
            if stat.S_ISDIR(status.st_mode):
                waiting += sorted(entry.path for entry in os.scandir(path))
        except OSError:
            digest.update(f"{path}:-\n".encode())
    return digest.hexdigest()


def _host_digest(host: SandboxHost) -> str:
    known = (
        sorted(host.packages),
        sorted(host.commands),
        sorted((each.requirements, each.python) for each in host.manifest.resolved),
        round(host.memory_mb),
        host.gpu,
        host.internet,
        sorted(host.programs or ()),
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
        replace_file(place, msgspec.json.encode(kept))
    except OSError:  # a full or read-only disk: it is looked at anew next time
        return
