"""Finds what of a task an environment can't serve, from its files, before any trial.

Nothing of a task runs and no container starts. Only what is certain to fail counts as an obstacle:
a step that the sandbox can't follow, a package that this host lacks, something to be fetched where
there is no network. A task without obstacles may still turn out unusable in its first trial.
"""

from __future__ import annotations

import os
import re
import shutil
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import psutil

from tbtui.dockerfile import DockerfileError, Instruction, json_form, parse_dockerfile, words
from tbtui.rollout.environments.userland import (
    SYSTEM_PATH,
    UV_IMAGE,
    installed_packages,
    missing_packages,
    split_apt,
)
from tbtui.wheels.cache import Manifest, cache_root, read_manifest
from tbtui.wheels.requests import read_commands
from tbtui.wheels.shell import Command, commands

ObstacleKind = Literal[
    "compose",  # several containers
    "image",  # an image and nothing to build it from
    "step",  # a step of the Dockerfile that the sandbox can't follow
    "packages",  # Debian packages that this host lacks
    "fetching",  # a step that needs a network
    "gpu",
    "memory",
    "windows",
    "verifier",  # its verifier needs a network, or a tool that is not there
]

_COMPOSE = "docker-compose.yaml"
_LONGEST_FILE = 1 << 20
_QUOTED = 80
# Where a step goes on after a failure, nothing is certain.
_TOLERANT = re.compile(r"\|\|\s*(?:true|:|echo|exit 0|\()|set \+e|; *true\b")
_REMOTE = re.compile(r"\b(?:https?|ftp|git|ssh)://(?!localhost|127\.|0\.0\.0\.0|\[::1\])|git@")
# Programs that fetch what they are named, and the sub-commands that do so.
_FETCHING: Mapping[str, frozenset[str]] = {
    "npm": frozenset(["install", "i", "ci", "add", "exec"]),
    "npx": frozenset(),
    "yarn": frozenset(["add", "install"]),
    "pnpm": frozenset(["add", "install", "i"]),
    "gem": frozenset(["install"]),
    "cargo": frozenset(["install", "fetch"]),
    "go": frozenset(["install", "get", "mod"]),
    "conda": frozenset(["install", "create", "update"]),
    "mamba": frozenset(["install", "create"]),
    "apk": frozenset(["add", "update"]),
    "dnf": frozenset(["install"]),
    "yum": frozenset(["install"]),
    "add-apt-repository": frozenset(),
    "rustup": frozenset(),
    "opam": frozenset(["install", "init"]),
    "cpan": frozenset(),
    "cpanm": frozenset(),
}
_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Why an environment can't serve a task."""

    kind: ObstacleKind
    text: str
    """One line: the file and line, and what is there."""


@dataclass(frozen=True, slots=True)
class SandboxHost:
    """What this host's sandboxes have, as far as tasks ask for it."""

    packages: frozenset[str]
    """Debian packages that are installed."""
    commands: frozenset[str]
    """Programs on the box's PATH that verifiers call, of those that may be missing."""
    manifest: Manifest
    """What the wheel cache holds."""
    memory_mb: float
    gpu: bool

    def has_packages(self, requirements: tuple[str, ...]) -> bool:
        """Whether the wheel cache can install these together."""
        return any(each.requirements == requirements for each in self.manifest.resolved)


def sandbox_host() -> SandboxHost:
    """Look at this host; the files of the wheel cache are not read, only what it says it holds."""
    wanted = ("pytest", "uv", "uvx", "python3", "python", "pip", "pip3", "curl")
    found = {name for name in wanted if shutil.which(name, path=SYSTEM_PATH)}
    manifest = read_manifest(cache_root() / "manifest.json")
    if _finds_pytest():
        found.add("pytest")
    if "bin/uv" in manifest.files:
        found |= {"uv", "uvx"}
    return SandboxHost(
        packages=installed_packages(),
        commands=frozenset(found),
        manifest=manifest,
        memory_mb=psutil.virtual_memory().total / _MIB,
        gpu=Path("/dev/nvidia0").exists(),
    )


def sandbox_obstacles(task: Path, host: SandboxHost) -> tuple[Obstacle, ...]:
    """What keeps the sandbox from building this task's environment or from verifying it."""
    table = _environment_table(task)
    environment = task / "environment"
    found = list(_machine_obstacles(table, host))
    network = table.get("network_mode") == "public" or table.get("allow_internet") is True
    if (environment / _COMPOSE).exists():
        found.append(Obstacle("compose", f"environment/{_COMPOSE}: several containers"))
    elif (environment / "Dockerfile").exists():
        found += _Dockerfile(environment, host, network).obstacles()
    elif image := table.get("docker_image"):
        found.append(Obstacle("image", f"task.toml: its environment is the image {image}"))
    if not network:
        found += _verifier_obstacles(task, host)
    return tuple(found)


def container_obstacles(task: Path, host: SandboxHost) -> tuple[Obstacle, ...]:
    """What keeps a container engine on this host from serving the task."""
    return tuple(_machine_obstacles(_environment_table(task), host))


def _environment_table(task: Path) -> dict[str, Any]:
    try:
        table = tomllib.loads((task / "task.toml").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    found = table.get("environment", {})
    return found if isinstance(found, dict) else {}


def _machine_obstacles(table: Mapping[str, Any], host: SandboxHost) -> Iterator[Obstacle]:
    gpus = table.get("gpus")
    if isinstance(gpus, int) and gpus > 0 and not host.gpu:
        yield Obstacle("gpu", f"task.toml: it asks for {gpus} GPU{'s' if gpus > 1 else ''}")
    memory = table.get("memory_mb")
    if isinstance(memory, int | float) and memory > host.memory_mb:
        yield Obstacle(
            "memory",
            f"task.toml: it asks for {memory / 1024:.0f} GiB of memory, this machine has"
            f" {host.memory_mb / 1024:.0f}",
        )
    if str(table.get("os", "linux")).lower() == "windows":
        yield Obstacle("windows", "task.toml: it needs Windows")


class _Dockerfile:
    """One Dockerfile, up to the first step that can't be followed."""

    def __init__(self, environment: Path, host: SandboxHost, network: bool) -> None:
        self._environment = environment
        self._host = host
        self._network = network

    def obstacles(self) -> list[Obstacle]:
        try:
            steps = parse_dockerfile(_text(self._environment / "Dockerfile"))
        except DockerfileError as error:
            return [Obstacle("step", f"environment/Dockerfile:{error.line}: {error}")]
        based = False
        for step in steps:
            if step.keyword == "FROM":
                if based:
                    return [self._at(step, "step", "a second build stage")]
                based = True
            elif step.keyword in ("COPY", "ADD"):
                if what := self._copy(step):
                    return [self._at(step, "step", what)]
            elif step.keyword == "RUN" and (obstacle := self._run(step)):
                return [obstacle]
        return []

    def _at(self, step: Instruction, kind: ObstacleKind, what: str) -> Obstacle:
        return Obstacle(kind, f"environment/Dockerfile:{step.line}: {what}")

    def _copy(self, step: Instruction) -> str | None:
        flags, rest = step.flags()
        if UV_IMAGE.search(flags.get("from", "")) and "uv" in self._host.commands:
            return None
        for flag in ("from", "checksum", "exclude", "parents"):
            if flag in flags:
                return f"{step.keyword} --{flag}"
        if step.keyword == "ADD":
            sources = (json_form(rest) or words(rest, {}))[:-1]
            if any(_REMOTE.search(source) for source in sources):
                return "ADD of a URL"
        return None

    def _run(self, step: Instruction) -> Obstacle | None:
        _, text = step.flags()
        argv = json_form(text)
        if argv is None and not step.heredocs and (apt := split_apt(text)) is not None:
            if missing := missing_packages(apt.packages, self._host.packages):
                shown = " ".join(missing[:4]) + (" ..." if len(missing) > 4 else "")
                return self._at(step, "packages", f"apt-get install {shown}")
            text = apt.rest
        if self._network or _TOLERANT.search(text):
            return None
        script = " ".join(argv) if argv else text
        what = _fetched(commands(script), self._environment.parent, self._host)
        return self._at(step, "fetching", what) if what else None


def _verifier_obstacles(task: Path, host: SandboxHost) -> Iterator[Obstacle]:
    for script in (task / "tests/test.sh", *sorted(task.glob("steps/*/tests/test.sh"))):
        if not script.is_file():
            continue
        text = _text(script)
        called = list(commands(text))
        what = _fetched(called, task, host, tolerant=True)
        what = what or _missing_runner(text, called, task, host)
        if what:
            yield Obstacle("verifier", f"{script.relative_to(task)}: {what}")
            return


def _fetched(
    called: Iterable[Command], task: Path, host: SandboxHost, *, tolerant: bool = False
) -> str | None:
    """The first command that has to fetch something which is not there already.

    `tolerant`: what fetches a tool that the box has by another way is passed over, and so is apt,
    for what it installs may be there.
    """
    for command in called:
        asked = read_commands(task, [command])
        if any(not host.has_packages(request.requirements) for request in asked.requests):
            return _quoted(command)
        if asked.requests:
            continue
        if asked.unread and any(_REMOTE.search(word) for word in command.words):
            return _quoted(command)
        if _installs_uv(command):
            if not {"uv", "uvx"} <= host.commands:
                return _quoted(command)
        elif _fetches(command) and not (tolerant and _TOLERANT.search(" ".join(command.words))):
            return _quoted(command)
    return None


def _installs_uv(command: Command) -> bool:
    text = " ".join(command.words)
    return "astral.sh/uv" in text or "astral-sh/uv" in text


def _fetches(command: Command) -> bool:
    name, *rest = command.words
    name = name.rpartition("/")[2]
    if name in ("curl", "wget"):
        return any(_REMOTE.search(word) for word in rest)
    if name == "git":
        fetching = bool(rest) and rest[0] in ("clone", "fetch", "pull", "submodule")
        return fetching and any(_REMOTE.search(word) for word in rest)
    wanted = _FETCHING.get(name)
    if wanted is None:
        return False
    verbs = [word for word in rest if not word.startswith("-")]
    return not wanted or bool(verbs and verbs[0] in wanted)


def _missing_runner(
    script: str, called: Iterable[Command], task: Path, host: SandboxHost
) -> str | None:
    """pytest, called by a script of a task that nowhere installs it."""
    calls = [
        command
        for command in called
        if command.words[0] == "pytest"
        or (command.words[0].startswith("python") and command.words[1:3] == ("-m", "pytest"))
    ]
    if not calls or "pytest" in host.commands:
        return None
    # Somewhere in its files; whether that works is another obstacle's question.
    brought = (_text(path) for path in (task / "environment").rglob("*") if _small(path))
    if "pytest" in script.replace(" ".join(calls[0].words), "", 1) or any(
        "pytest" in text for text in brought
    ):
        return None
    return f"{_quoted(calls[0])}: this host has no pytest, and nothing installs it"


def _finds_pytest() -> bool:
    """Whether the python3 of this host's /usr does."""
    places = ("usr/lib/python3*/dist-packages", "usr/local/lib/python3*/dist-packages")
    return any(path for place in places for path in Path("/").glob(f"{place}/pytest"))


def _quoted(command: Command) -> str:
    text = " ".join(command.words)
    return text if len(text) <= _QUOTED else text[: _QUOTED - 1] + "…"


def _small(path: Path) -> bool:
    return path.suffix in ("", ".txt", ".toml", ".cfg", ".sh", ".lock") and path.is_file()


def _text(path: Path) -> str:
    try:
        if os.stat(path).st_size > _LONGEST_FILE:  # noqa: PTH116
            return ""
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
