"""Reads which Python packages and interpreters a task's Dockerfile and scripts install.

Pure reading: no command of a task runs. What can't be known without running it (a variable, a URL,
a directory) is left out and named.
"""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement

from tbtui.dockerfile import DockerfileError, Instruction, expand, json_form, parse_dockerfile
from tbtui.wheels.shell import ShellCommand, commands

_VERSION = re.compile(r"3\.\d+")
_PYTHON = re.compile(r"python(3(?:\.\d+)?)?$")
_PIP = re.compile(r"pip(3(?:\.\d+)?)?$")
_DEBIAN = re.compile(r"[a-z0-9][a-z0-9.+-]+")
_SCRIPT_METADATA = re.compile(r"(?m)^# /// script\s*$\n(?P<body>(?:^#.*$\n)+?)^# ///\s*$")
_IMAGES_WITH_PYTHON = re.compile(
    r"(?:^|/)(?:python|miniconda3?|anaconda3?|mambaforge|miniforge3|pytorch|tensorflow"
    r"|python-nodejs|(?:base|minimal|scipy|datascience)-notebook)(?:[:@]|$)|astral-sh/uv:python"
)
_LONGEST_FILE = 1 << 20
# Options whose value is the next word.
_PIP_VALUES = frozenset(
    [
        *("-c", "--constraint", "-i", "--index-url", "--extra-index-url", "-f", "--find-links"),
        *("-t", "--target", "--prefix", "--root", "--src", "--python", "--platform"),
        *("--python-version", "--implementation", "--abi", "--progress-bar", "--timeout"),
        *("--retries", "--trusted-host", "--cert", "--no-binary", "--only-binary", "--log"),
        *("--upgrade-strategy", "--cache-dir", "--root-user-action", "--report", "--proxy"),
        *("-C", "--config-settings", "--config-setting", "--exists-action", "--index"),
        *("--default-index", "--index-strategy", "-p", "--torch-backend", "--link-mode"),
        *("--resolution", "--prerelease", "--exclude-newer"),
    ]
)
_UV_VALUES = _PIP_VALUES | {
    *("--with-editable", "--project", "--directory", "--env-file", "--extra", "--group"),
    *("--color", "--keyring-provider", "--python-platform", "-P", "--upgrade-package", "--name"),
    *("--optional", "--bounds", "--script", "-m", "--module"),
}


@dataclass(frozen=True, slots=True, order=True)
class Request:
    """Packages that one command installs together, and the interpreter they are for.

    `python` is a version such as 3.13, or None: the one that the box runs as `python3`.
    `exact` says that the command itself names it; otherwise it is the base image's.
    """

    requirements: tuple[str, ...]
    python: str | None = None
    exact: bool = False


@dataclass(slots=True)
class PackageRequests:
    """What a task, or several, ask for."""

    requests: set[Request] = field(default_factory=set)
    pythons: set[str] = field(default_factory=set)
    debian: Counter[str] = field(default_factory=Counter)
    """Debian packages, and how many tasks install each."""
    unread: list[str] = field(default_factory=list)
    """What was left out, a line each: file, line, text."""

    def add(self, other: PackageRequests) -> None:
        """Take in what another task asks for."""
        self.requests |= other.requests
        self.pythons |= other.pythons
        self.debian += other.debian
        self.unread += other.unread


def image_python(instructions: Iterable[Instruction]) -> tuple[bool, str | None]:
    """Whether the last stage's base image has a `python`, and which version if it says so."""
    arguments: dict[str, str] = {}
    found: tuple[bool, str | None] = (False, None)
    stages: dict[str, tuple[bool, str | None]] = {}
    for step in instructions:
        if step.keyword == "ARG":
            name, _, default = step.arguments.partition("=")
            arguments.setdefault(name.strip(), default.strip("\"' "))
        elif step.keyword == "FROM":
            _, rest = step.flags()
            image, *alias = expand(rest, arguments).split() or [""]
            version = _VERSION.search(image.rpartition(":")[2] if ":" in image else "")
            has = bool(_IMAGES_WITH_PYTHON.search(image))
            found = stages.get(image, (has, version[0] if has and version else None))
            if len(alias) == 2:
                stages[alias[1]] = found
    return found


def read_task(task: Path, *, solutions: bool = True) -> PackageRequests:
    """What one task's environment, tests and (unless asked otherwise) solution install."""
    reader = _Reader(task)
    reader.dockerfile(task / "environment" / "Dockerfile")
    for directory in ("tests", "solution") if solutions else ("tests",):
        for path in sorted((task / directory).rglob("*")):
            if path.suffix == ".sh":
                reader.script(path)
            elif path.suffix == ".py":
                reader.inline_metadata(path)
    return reader.asked


def read_commands(task: Path, given: Iterable[ShellCommand]) -> PackageRequests:
    """What these commands of one of the task's scripts install."""
    reader = _Reader(task)
    for command in given:
        reader.command(task, command.line, list(command.words))
    return reader.asked


class _Reader:
    def __init__(self, task: Path) -> None:
        self.asked = PackageRequests()
        self._task = task
        self._image: str | None = None
        self._exact: str | None = None

    def dockerfile(self, path: Path) -> None:
        try:
            steps = parse_dockerfile(_text(path))
        except DockerfileError:
            return
        _, self._image = image_python(steps)
        if self._image is not None:
            self.asked.pythons.add(self._image)
        variables: dict[str, str] = {}
        for step in steps:
            if step.keyword in {"ARG", "ENV"}:
                for pair in step.arguments.split():
                    name, equals, value = pair.partition("=")
                    if equals:
                        variables.setdefault(name, value.strip("\"'"))
            elif step.keyword == "RUN":
                _, text = step.flags()
                argv = json_form(text)
                text = " ".join(argv) if argv else text
                bodies = "\n".join(heredoc.body for heredoc in step.heredocs)
                self._commands(path, _expand_known(text, variables), step.line)
                self._commands(path, bodies, step.line)

    def script(self, path: Path) -> None:
        self._commands(path, _text(path), None)

    def inline_metadata(self, path: Path) -> None:
        """PEP 723: a script that names its own dependencies."""
        match = _SCRIPT_METADATA.search(_text(path))
        if match is None:
            return
        lines = (
            line[2:] if line.startswith("# ") else line[1:] for line in match["body"].split("\n")
        )
        try:
            table = tomllib.loads("\n".join(lines))
        except tomllib.TOMLDecodeError:
            return
        self._add(path, 1, [str(each) for each in table.get("dependencies", [])])

    def _commands(self, path: Path, text: str, line: int | None) -> None:
        self._exact = None
        for command in commands(text):
            self.command(path, line or command.line, list(command.words))

    def command(self, path: Path, line: int, words: list[str]) -> None:
        name = words[0].rpartition("/")[2]
        if (match := _PYTHON.match(name)) and words[1:3] == ["-m", "pip"]:
            self._pip(path, line, words[3:], _exact(match[1]))
        elif match and words[1:3] == ["-m", "uv"]:
            self._uv(path, line, words[3:])
        elif match := _PIP.match(name):
            self._pip(path, line, words[1:], _exact(match[1]))
        elif name == "uvx":
            self._run(path, line, words[1:], tool=True)
        elif name == "uv":
            self._uv(path, line, words[1:])
        elif name in {"apt-get", "apt"} and "install" in words:
            given = words[words.index("install") + 1 :]
            names = (re.split("[=:/]", word)[0] for word in given)
            self.asked.debian |= Counter({each for each in names if _DEBIAN.fullmatch(each)})

    def _uv(self, path: Path, line: int, words: list[str]) -> None:
        while words and words[0].startswith("-"):
            words = words[2:] if words[0] in _UV_VALUES else words[1:]
        match words:
            case ["pip", *rest]:
                self._pip(path, line, rest, _python_option(rest))
            case ["tool", "run", *rest]:
                self._run(path, line, rest, tool=True)
            case ["tool", "install", *rest] | ["add", *rest]:
                options = _Options(rest, _UV_VALUES)
                given = [*options.values("-w", "--with"), *options.positional]
                self._files(path, line, options.values("-r", "--requirements"))
                self._add(path, line, given, _python_option(rest))
            case ["run", *rest]:
                self._run(path, line, rest, tool=False)
                self._project()
            case ["sync", *_]:
                self._project()
            case ["venv" | "init", *rest]:
                self._exact = _python_option(rest)
                self.asked.pythons |= {self._exact} if self._exact else set()
            case ["python", "install", *rest]:
                found = (_VERSION.search(word) for word in rest)
                self.asked.pythons |= {match[0] for match in found if match}

    def _run(self, path: Path, line: int, words: list[str], *, tool: bool) -> None:
        options = _Options(words, _UV_VALUES, stops=True)
        given = [part for each in options.values("-w", "--with") for part in each.split(",")]
        self._files(path, line, options.values("--with-requirements"))
        sources = options.values("--from")
        if tool and not sources and options.positional:
            sources = [re.sub(r"@latest$", "", options.positional[0])]
            sources = [re.sub(r"^([\w.-]+)@(\d)", r"\1==\2", each) for each in sources]
            if _PYTHON.match(sources[0]):
                sources = []
        self._add(path, line, [*sources, *given], _python_option(words))

    def _pip(self, path: Path, line: int, words: list[str], python: str | None) -> None:
        if not words or words[0] not in {"install", "sync"}:
            return
        options = _Options(words[1:], _PIP_VALUES)
        files = options.values("-r", "--requirement", "--requirements")
        self._files(path, line, files if words[0] == "install" else options.positional, python)
        if words[0] == "install":
            self._add(path, line, options.positional, python)
            if any(_is_path(each) for each in [*options.positional, *options.values("-e")]):
                self._project()

    def _files(
        self, path: Path, line: int, names: Iterable[str], python: str | None = None
    ) -> None:
        for name in names:
            file = self._find(name)
            if file is None:
                self._leave_out(path, line, f"-r {name}")
                continue
            lines = re.sub(r"\\\n", " ", _text(file)).splitlines()
            listed = [re.split(r"\s#|\s--", each)[0].strip() for each in lines]
            wanted = [each for each in listed if each and not each.startswith(("#", "-"))]
            self._add(file, 1, wanted, python)

    def _project(self) -> None:
        """Dependencies and build requirements of the projects in environment/."""
        for file in sorted((self._task / "environment").rglob("pyproject.toml")):
            try:
                table = tomllib.loads(_text(file))
            except tomllib.TOMLDecodeError:
                continue
            groups = [
                table.get("project", {}).get("dependencies", []),
                table.get("build-system", {}).get("requires", []),
                *table.get("dependency-groups", {}).values(),
            ]
            for group in groups:
                self._add(file, 1, [each for each in group if isinstance(each, str)])

    def _find(self, name: str) -> Path | None:
        """A file of the task that a script names by its place in the container."""
        base = name.rpartition("/")[2]
        places = (self._task / "environment", self._task / "tests", self._task / "solution")
        found = (path for place in places for path in sorted(place.rglob(base) if base else []))
        return next((path for path in found if path.is_file()), None)

    def _add(self, path: Path, line: int, given: Sequence[str], python: str | None = None) -> None:
        wanted = []
        for text in given:
            if _is_path(text):
                continue
            try:
                requirement = Requirement(text)
            except InvalidRequirement:
                self._leave_out(path, line, text)
                continue
            if requirement.url:
                self._leave_out(path, line, text)
            else:
                wanted.append(str(requirement))
        exact = python or self._exact
        if exact is not None:
            self.asked.pythons.add(exact)
        if wanted:
            order = tuple(sorted(set(wanted), key=str.lower))
            self.asked.requests.add(Request(order, exact or self._image, exact is not None))

    def _leave_out(self, path: Path, line: int, text: str) -> None:
        place = path.relative_to(self._task.parent)
        self.asked.unread.append(f"{place}:{line}: {text}")


class _Options:
    """A command's words taken apart: options with their values, and the rest."""

    def __init__(
        self, words: Sequence[str], valued: frozenset[str], *, stops: bool = False
    ) -> None:
        """`stops`: what follows the first positional word belongs to the command it names."""
        self.positional: list[str] = []
        self._values: list[tuple[str, str]] = []
        ours = {"-r", "--requirement", "--requirements", "-e", "--editable", "--from", "-w"}
        valued = valued | ours | {"--with", "--with-requirements"}
        rest = iter(words)
        for word in rest:
            if word.startswith("--") and "=" in word:
                name, _, value = word.partition("=")
                self._values.append((name, value))
            elif word in valued:
                self._values.append((word, next(rest, "")))
            elif re.match(r"-[rwe]\S", word):
                self._values.append((word[:2], word[2:]))
            elif not word.startswith("-"):
                self.positional.append(word)
                if stops:
                    break

    def values(self, *names: str) -> list[str]:
        return [value for name, value in self._values if name in names]


def _python_option(words: Sequence[str]) -> str | None:
    options = _Options(words, _UV_VALUES | {"--python"})
    return next((_exact(each) for each in options.values("-p", "--python")), None)


def _exact(text: str | None) -> str | None:
    match = _VERSION.search(text or "")
    return match[0] if match else None


def _is_path(text: str) -> bool:
    return text.startswith((".", "/", "~")) or text.endswith((".whl", ".tar.gz", ".zip"))


def _expand_known(text: str, variables: dict[str, str]) -> str:
    def value(match: re.Match[str]) -> str:
        return variables.get(match[1] or match[2], match[0])

    return re.sub(r"\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)\})", value, text)


def _text(path: Path) -> str:
    try:
        if path.stat().st_size > _LONGEST_FILE:
            return ""
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
