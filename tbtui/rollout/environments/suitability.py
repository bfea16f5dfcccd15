"""Finds what of a task an environment can't serve, from its files, before any trial.

Nothing of a task runs and no container starts. Only what is certain to fail counts:
a step that the sandbox can't follow, a package that this host lacks, something to be fetched where
there is no network. A task without any of that may still turn out unusable in its first trial.
"""

from __future__ import annotations

import contextlib
import os
import posixpath
import re
import shutil
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from tbtui.dockerfile import (
    KNOWN,
    DockerfileError,
    IgnoreRules,
    Instruction,
    expand,
    json_form,
    parse_dockerfile,
    without_heredoc_marks,
    words,
)
from tbtui.findings import Unusable, UnusableKind
from tbtui.rollout.environments.archives import archive_format
from tbtui.rollout.environments.base_images import image_lacks
from tbtui.rollout.environments.userland import (
    SYSTEM_PATH,
    UV_IMAGE,
    installed_packages,
    missing_packages,
    reaches_index,
    split_apt,
)
from tbtui.wheels.cache import Manifest, cache_root, read_manifest
from tbtui.wheels.requests import read_commands
from tbtui.wheels.shell import ShellCommand, commands

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
# What may put a program on PATH, and what leaves open whether a command runs at all.
_BRINGS = re.compile(
    r"bin\b|\b(?:install|make|cmake|ninja|curl|wget|npm|npx|pip3?|pipx|uvx?|conda|mamba|cargo|gem"
    r"|go|rustup|tar|unzip|dpkg|snap|brew|nix|ln|source|bash|sh|python3?|perl|git)\b"
)
_PLACE = re.compile(r"PATH|bin\b")
_UNCERTAIN = re.compile(
    r"\|\||\bif\b|\bcase\b|\bset \+e|\bcommand -v|\bwhich\b|\balias\b|\bfunction\b|\(\)|;"
    r"|\bPATH=|\bfor\b|\bwhile\b|\bexport\b|\s\.\s|^\.\s"
)
_PLAIN_NAME = re.compile(r"[A-Za-z][\w.+-]*")
# Python and its installers may be the image's, the box's or the wheel cache's.
_OF_THE_SHELL = frozenset(
    [
        *("alias", "bg", "break", "builtin", "cd", "command", "continue", "declare", "dirs"),
        *("disown", "do", "done", "echo", "elif", "else", "enable", "eval", "exec", "exit"),
        *("export", "false", "fc", "fg", "fi", "getopts", "hash", "help", "history", "jobs"),
        *("kill", "let", "local", "logout", "mapfile", "popd", "printf", "pushd", "pwd", "read"),
        *("readarray", "readonly", "return", "set", "shift", "shopt", "suspend", "test", "then"),
        *("time", "times", "trap", "true", "type", "typeset", "ulimit", "umask", "unalias"),
        *("unset", "wait", "python", "python3", "pip", "pip3", "uv", "uvx", "pytest"),
    ]
)
_MIB = 1 << 20


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
    internet: bool = True
    """Whether a box that shares this host's network reaches the package index."""
    programs: frozenset[str] | None = None
    """All programs on the box's PATH; None: it isn't known."""

    def has(self, program: str) -> bool:
        """Whether the box has a program; True where that isn't known."""
        return self.programs is None or program in self.programs or program in self.commands

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
        internet=reaches_index(),
        programs=_programs(),
    )


def _programs() -> frozenset[str]:
    found = {"apt", "apt-get"}  # the box's own
    for directory in SYSTEM_PATH.split(":"):
        with contextlib.suppress(OSError):
            found.update(path.name for path in Path(directory).iterdir())
    return frozenset(found)


def unusable_in_sandbox(task: Path, host: SandboxHost) -> tuple[Unusable, ...]:
    """What keeps the sandbox from building this task's environment or from verifying it."""
    table = _environment_table(task)
    environment = task / "environment"
    found = list(_unusable_on_machine(table, host))
    asked = table.get("network_mode") == "public" or table.get("allow_internet") is True
    network = asked and host.internet
    if (environment / _COMPOSE).exists():
        found.append(Unusable("compose", f"environment/{_COMPOSE}: several containers"))
    elif (environment / "Dockerfile").exists():
        found += _Dockerfile(environment, host, network).unusable()
    elif image := table.get("docker_image"):
        found.append(Unusable("image", f"task.toml: its environment is the image {image}"))
    if not network:
        found += _unusable_verifier(task, host)
    return tuple(found)


def unusable_in_containers(task: Path, host: SandboxHost) -> tuple[Unusable, ...]:
    """What keeps a container engine on this host from serving the task."""
    return tuple(_unusable_on_machine(_environment_table(task), host))


def _environment_table(task: Path) -> dict[str, Any]:
    found = task_table(task).get("environment", {})
    return found if isinstance(found, dict) else {}


def task_table(task: Path) -> dict[str, Any]:
    """What task.toml says; nothing where it can't be read."""
    try:
        return tomllib.loads((task / "task.toml").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}


def _unusable_on_machine(table: Mapping[str, Any], host: SandboxHost) -> Iterator[Unusable]:
    gpus = table.get("gpus")
    if isinstance(gpus, int) and gpus > 0 and not host.gpu:
        yield Unusable("gpu", f"task.toml: it asks for {gpus} GPU{'s' if gpus > 1 else ''}")
    memory = table.get("memory_mb")
    if isinstance(memory, int | float) and memory > host.memory_mb:
        yield Unusable(
            "memory",
            f"task.toml: it asks for {memory / 1024:.0f} GiB of memory, this machine has"
            f" {host.memory_mb / 1024:.0f}",
        )
    if str(table.get("os", "linux")).lower() == "windows":
        yield Unusable("windows", "task.toml: it needs Windows")


class _Dockerfile:
    """One Dockerfile, up to the first step that can't be followed."""

    def __init__(self, environment: Path, host: SandboxHost, network: bool) -> None:
        self._environment = environment
        self._host = host
        self._network = network
        self._ignored = IgnoreRules(iter(()))
        self._brings = False
        """Some step before may have put further programs on PATH."""

    def unusable(self) -> list[Unusable]:
        try:
            steps = parse_dockerfile(_text(self._environment / "Dockerfile"))
            self._ignored = IgnoreRules.read(self._environment)
        except DockerfileError as error:
            return [Unusable("step", f"environment/Dockerfile:{error.line}: {error}")]
        based = False
        arguments: dict[str, str] = {}
        for step in steps:
            if step.keyword not in KNOWN:
                return [self._at(step, "step", f"unknown instruction {step.keyword}")]
            if step.keyword == "ARG":
                name, _, default = step.arguments.partition("=")
                arguments.setdefault(name.strip(), default.strip("\"' "))
            elif step.keyword == "FROM":
                if based:
                    return [self._at(step, "step", "a second build stage")]
                based = True
                image = (step.flags()[1].split() or [""])[0]
                if lacks := image_lacks(expand(image, arguments), self._host.has):
                    return [self._at(step, "image", lacks)]
            elif step.keyword in ("COPY", "ADD"):
                if what := self._copy(step):
                    return [self._at(step, "step", what)]
            elif step.keyword == "RUN" and (lacking := self._run(step)):
                return [lacking]
            if step.keyword == "SHELL" or (
                step.keyword in ("ENV", "COPY", "ADD") and _PLACE.search(step.arguments)
            ):
                self._brings = True
        return []

    def _at(self, step: Instruction, kind: UnusableKind, what: str) -> Unusable:
        return Unusable(kind, f"environment/Dockerfile:{step.line}: {what}")

    def _copy(self, step: Instruction) -> str | None:
        flags, rest = step.flags()
        if UV_IMAGE.search(flags.get("from", "")) and "uv" in self._host.commands:
            return None
        for flag in ("from", "checksum", "exclude", "parents"):
            if flag in flags:
                return f"{step.keyword} --{flag}"
        sources = (json_form(rest) or words(without_heredoc_marks(rest), {}))[:-1]
        if step.keyword == "ADD" and any(_REMOTE.search(source) for source in sources):
            return "ADD of a URL"
        if "$" not in rest:
            return next(filter(None, (self._source(step, source) for source in sources)), None)
        return None

    def _source(self, step: Instruction, source: str) -> str | None:
        """Why a source can't be copied, or unpacked."""
        relative = posixpath.normpath(source.lstrip("/") or ".")
        if re.search(r"[*?\[]", relative):
            found = list(self._environment.glob(relative))
        else:
            found = [self._environment / relative]
        if not any(path.exists() for path in found):
            return f"{step.keyword} of {source!r}, which environment/ does not hold"
        if all(
            path.is_file() and self._ignored.leaves_out(_inner(path, self._environment))
            for path in found
        ):
            return f"{step.keyword} of {source!r}, which .dockerignore leaves out"
        for path in found if step.keyword == "ADD" else ():
            kind = archive_format(path) if path.is_file() else None
            if kind not in (None, "tar") and not self._host.has(kind):
                return f"ADD of {source!r} unpacks it, and this host has no {kind}"
        return None

    def _run(self, step: Instruction) -> Unusable | None:
        _, text = step.flags()
        argv = json_form(text)
        if argv is None and not step.heredocs and (apt := split_apt(text)) is not None:
            if missing := missing_packages(apt.packages, self._host.packages):
                shown = " ".join(missing[:4]) + (" ..." if len(missing) > 4 else "")
                return self._at(step, "packages", f"apt-get install {shown}")
            text = apt.rest
        script = " ".join(argv) if argv else text
        called = list(commands(script))
        if not self._network and not _TOLERANT.search(text):
            what = _fetched(called, self._environment.parent, self._host)
            if what:
                return self._at(step, "fetching", what)
        if not step.heredocs and (absent := self._missing(script, called)):
            return self._at(step, "step", f"{absent}: this host has no such program")
        self._brings = self._brings or bool(step.heredocs) or bool(_BRINGS.search(script))
        return None

    def _missing(self, script: str, called: Iterable[ShellCommand]) -> str | None:
        """The first command that is certainly not there."""
        if self._brings or _UNCERTAIN.search(script):
            return None
        for command in called:
            name = command.words[0]
            if _PLAIN_NAME.fullmatch(name) and name not in _OF_THE_SHELL:
                if not self._host.has(name):
                    return _quoted(command)
                if _BRINGS.search(" ".join(command.words)):
                    return None
        return None


def _unusable_verifier(task: Path, host: SandboxHost) -> Iterator[Unusable]:
    for script in (task / "tests/test.sh", *sorted(task.glob("steps/*/tests/test.sh"))):
        if not script.is_file():
            continue
        text = _text(script)
        called = list(commands(text))
        what = _fetched(called, task, host, tolerant=True)
        what = what or _missing_runner(text, called, task, host)
        if what:
            yield Unusable("verifier", f"{script.relative_to(task)}: {what}")
            return


def _fetched(
    called: Iterable[ShellCommand], task: Path, host: SandboxHost, *, tolerant: bool = False
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


def _installs_uv(command: ShellCommand) -> bool:
    text = " ".join(command.words)
    return "astral.sh/uv" in text or "astral-sh/uv" in text


def _fetches(command: ShellCommand) -> bool:
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
    script: str, called: Iterable[ShellCommand], task: Path, host: SandboxHost
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
    # Somewhere in its files; whether that works is another question.
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


def _inner(path: Path, directory: Path) -> str:
    return path.relative_to(directory).as_posix()


def _quoted(command: ShellCommand) -> str:
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
