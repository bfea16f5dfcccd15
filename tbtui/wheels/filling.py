"""Fills the wheel cache: resolves with uv, downloads with pip, each with its user's own settings.

Only wheels: to build a source distribution would run its code here, on the host. What was had
before is kept, so that an interrupted fill goes on and a second one has nothing to do.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from packaging.requirements import Requirement
from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import (
    InvalidWheelFilename,
    canonicalize_name,
    canonicalize_version,
    parse_wheel_filename,
)

from tbtui.paths import PathError, expanded
from tbtui.wheels.cache import (
    Manifest,
    Resolved,
    damaged,
    files_below,
    keep,
    read_manifest,
    write_manifest,
)
from tbtui.wheels.interpreters import (
    Interpreter,
    InterpreterError,
    box_python,
    copy,
    in_boxes,
    look_at,
    numbers,
)
from tbtui.wheels.requests import PackageRequests, Request

_AT_ONCE = 4
_PINS_A_DOWNLOAD = 15
_TOOLS = ("pip", "setuptools", "wheel")
_CREDENTIALS = re.compile(r"//[^/@\s]+@")


class FillError(Exception):
    """Nothing can be fetched at all; one line with the remedy."""


@dataclass(frozen=True, slots=True)
class FillProgress:
    """Progress of one stage."""

    stage: str
    done: int
    total: int


@dataclass(slots=True)
class Filled:
    """What a fill has fetched, and what it could not."""

    fetched: int = 0
    """Wheels that were not there before."""
    wheels: int = 0
    bytes: int = 0
    pythons: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    """What could not be had, a line each."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A request, and the version of Python that a box would run it with."""

    request: Request
    python: str


def find_uv() -> Path:
    """The uv that this process was started by, or the one on PATH.

    Raises:
        FillError: there is none.
    """
    for found in (os.environ.get("UV"), shutil.which("uv")):
        if found is None:
            continue
        # A version manager's stand-in on PATH may have no uv behind it.
        with contextlib.suppress(OSError):
            command = [found, "--version"]
            if subprocess.run(command, capture_output=True, cwd="/", check=False).returncode == 0:
                return Path(found)
    raise FillError("uv is not installed, and packages are resolved with it: pip install uv")


class Filling:
    """One fill of the cache at `root`."""

    def __init__(
        self,
        root: Path,
        uv: Path,
        tell: Callable[[FillProgress], None],
        *,
        skip: Iterable[str] = (),
    ) -> None:
        self._root = root
        self._shown = root / "shown"
        self._staging = root / "partial"
        self._uv = uv
        self._tell = tell
        self._skip = {canonicalize_name(name) for name in skip}
        self._manifest = Manifest()
        self._interpreters: dict[str, Interpreter | None] = {}
        """Version -> what to copy; None: boxes have it already."""
        self._host = box_python()
        self.result = Filled()

    async def fill(self, asked: PackageRequests, given: Sequence[str] = ()) -> Filled:
        """Fetches all that is asked for and not there yet.

        Args:
            asked: By tasks.
            given: More interpreters, by version or by path.

        Raises:
            WheelCacheError: the manifest can't be read.
            OSError: the cache can't be written.
        """
        self._staging.mkdir(parents=True, exist_ok=True)
        (self._shown / "wheels").mkdir(parents=True, exist_ok=True)
        self._root.chmod(0o755)
        self._manifest = read_manifest(self._root / "manifest.json")
        await asyncio.to_thread(self._drop_damaged)
        await self._find_interpreters(sorted(asked.pythons), given)
        wanted = self._wanted(asked.requests)
        resolved = await self._resolve(wanted)
        await self._download(resolved)
        self._unpack_uv()
        await self._copy_interpreters()
        self._save()
        shutil.rmtree(self._staging)
        names = [name for name in self._manifest.files if name.startswith("wheels/")]
        self.result.wheels = len(names)
        self.result.bytes = sum(
            (self._shown / name).lstat().st_size for name in self._manifest.files
        )
        self.result.pythons = sorted(self._manifest.pythons, key=numbers)
        return self.result

    def _drop_damaged(self) -> None:
        for name in damaged(self._shown, self._manifest, thorough=True):
            self._manifest.files.pop(name, None)
            (self._shown / name).unlink(missing_ok=True)
            area, _, rest = name.partition("/")
            for version, directory in list(self._manifest.pythons.items()):
                if area == "python" and rest.startswith(f"{directory}/"):
                    self._forget_python(version)

    def _forget_python(self, version: str) -> None:
        directory = f"python/{self._manifest.pythons.pop(version)}"
        shutil.rmtree(self._shown / directory, ignore_errors=True)
        files = self._manifest.files
        for name in [each for each in files if each.startswith(f"{directory}/")]:
            del files[name]

    async def _find_interpreters(self, versions: Sequence[str], given: Sequence[str]) -> None:
        paths = [each for each in given if "/" in each]
        versions = [*versions, *(each for each in given if "/" not in each)]
        for path in paths:
            try:
                found = look_at(expanded(path))
            except (InterpreterError, PathError) as error:
                self.result.problems.append(str(error))
                continue
            self._interpreters[found.minor] = None if found.in_boxes else found
        for version in versions:
            if version in self._interpreters:
                continue
            if version in self._manifest.pythons or in_boxes(version):
                self._interpreters[version] = None
            else:
                await self._find_interpreter(version)

    async def _find_interpreter(self, version: str) -> None:
        find = ("python", "find", "--system", "--no-project", "--no-python-downloads", version)
        status, output, _ = await self._run_uv(*find)
        if status:
            status, _, said = await self._run_uv("python", "install", "--no-bin", version)
            if status:
                why = _last_line(said)
                self.result.problems.append(
                    f"Python {version}: not on this host, and `uv python install {version}` fails"
                    f" ({why}): give one with --python PATH"
                )
                return
            status, output, _ = await self._run_uv(*find)
        try:
            found = look_at(Path(output.strip()))
        except InterpreterError as error:
            self.result.problems.append(f"Python {version}: {error}")
            return
        self._interpreters[version] = None if found.in_boxes else found

    def _wanted(self, requests: Iterable[Request]) -> list[Wanted]:
        """Each request with the Python that boxes will have for it."""
        wanted = {
            Wanted(Request(_TOOLS), python)
            for python in (*self._interpreters, self._host)
            if python
        }
        if self._host:
            wanted.add(Wanted(Request(("uv",)), self._host))
        for request in requests:
            python = request.python
            if python is None or (python not in self._interpreters and not request.exact):
                python = self._host
            # For one that a command names and no index has, its own line was said.
            if python is not None and (python == self._host or python in self._interpreters):
                wanted.add(Wanted(request, python))
        return sorted(wanted, key=lambda each: (each.python, each.request.requirements))

    async def _resolve(self, wanted: Sequence[Wanted]) -> list[Resolved]:
        done = 0
        room = asyncio.Semaphore(_AT_ONCE)

        async def one(each: Wanted) -> Resolved | None:
            nonlocal done
            known = self._manifest.resolution(each.request, each.python)
            if known is None:
                async with room:
                    known = await self._resolve_one(each)
            done += 1
            self._tell(FillProgress("resolved", done, len(wanted)))
            return known

        unique = {(each.request.requirements, each.python): each for each in wanted}
        wanted = list(unique.values())
        found = await asyncio.gather(*(one(each) for each in wanted))
        resolved = []
        for each in found:
            if each is None:
                continue
            unwanted = self._skip & {_name(pin) for pin in each.pins}
            if unwanted:
                left_out = f"{_shown(each)}: left out, for it needs {', '.join(sorted(unwanted))}"
                self.result.problems.append(left_out)
            else:
                resolved.append(each)
        return resolved

    async def _resolve_one(self, wanted: Wanted) -> Resolved | None:
        requirements = wanted.request.requirements
        status, output, said = await self._run_uv(
            *("pip", "compile", "--quiet", "--no-annotate", "--no-header", "--no-progress"),
            *("--only-binary", ":all:", "--python", sys.executable),
            *("--python-version", wanted.python, "-"),
            stdin="\n".join(requirements),
        )
        found = Resolved(requirements, wanted.python, tuple(_pins(output)))
        if status or not found.pins:
            self.result.problems.append(f"{_shown(found)}: {_reason(said)}")
            return None
        return found

    async def _download(self, resolved: Sequence[Resolved]) -> None:
        wanted = {(each.python, pin) for each in resolved for pin in each.pins}
        missing = sorted(each for each in wanted if self._wheel(*each) is None)
        done, lost = 0, set[tuple[str, str]]()
        for python, pins in _rounds(missing):
            failed = await self._download_some(python, pins)
            lost |= {(python, pin) for pin in failed}
            done += len(pins)
            self._tell(FillProgress("downloaded", done, len(missing)))
        for each in resolved:
            whole = not any((each.python, pin) in lost for pin in each.pins)
            if whole and each not in self._manifest.resolved:
                self._manifest.resolved.append(each)
        self._save()

    async def _download_some(self, python: str, pins: Sequence[str]) -> list[str]:
        """Downloads some wheels; those that could not be had."""
        target = self._staging / "wheels"
        target.mkdir(exist_ok=True)
        status, _, said = await self._run_uv(
            *("tool", "run", "--quiet", "--python", sys.executable),
            *("pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"),
            *("--python-version", python, "--implementation", "cp", "--dest", str(target), *pins),
        )
        for wheel in target.glob("*.whl"):
            wheel.chmod(0o644)
            name = f"wheels/{wheel.name}"
            wheel.replace(self._shown / name)
            if name not in self._manifest.files:
                self.result.fetched += 1
            self._manifest.files[name] = keep(self._shown / name)
        self._save()
        if not status:
            return []
        if len(pins) == 1:
            self.result.problems.append(f"{pins[0]} for Python {python}: {_reason(said)}")
            return list(pins)
        rest = [pin for pin in pins if self._wheel(python, pin) is None]
        return [failed for pin in rest for failed in await self._download_some(python, [pin])]

    def _wheel(self, python: str, pin: str) -> Path | None:
        """A wheel of exactly this package that this Python can use."""
        tags = _tags(python)
        name, _, version = pin.partition("==")
        wanted = (canonicalize_name(name.partition("[")[0]), canonicalize_version(version))
        for file in self._manifest.files:
            if not file.startswith("wheels/"):
                continue
            try:
                project, release, _, supported = parse_wheel_filename(file.removeprefix("wheels/"))
            except InvalidWheelFilename:
                continue
            if (project, canonicalize_version(release)) == wanted and supported & tags:
                return self._shown / file
        return None

    def _tool_wheels(self, python: str) -> list[Path]:
        known = self._manifest.resolution(Request(_TOOLS), python)
        pins = known.pins if known else ()
        # As the official images have it: only pip from 3.12 on.
        names = _TOOLS if numbers(python) < (3, 12) else _TOOLS[:1]
        found = (self._wheel(python, pin) for pin in pins if _name(pin) in names)
        return [path for path in found if path is not None]

    def _unpack_uv(self) -> None:
        known = self._manifest.resolution(Request(("uv",)), self._host or "")
        wheel = self._wheel(known.python, known.pins[0]) if known else None
        if wheel is None or "bin/uv" in self._manifest.files:
            return
        (self._shown / "bin").mkdir(exist_ok=True)
        with zipfile.ZipFile(wheel) as archive:
            for member in archive.namelist():
                program = re.search(r"\.data/scripts/(uvx?)$", member)
                if program is None:
                    continue
                partial = self._staging / program[1]
                partial.write_bytes(archive.read(member))
                partial.chmod(0o755)
                name = f"bin/{program[1]}"
                partial.replace(self._shown / name)
                self._manifest.files[name] = keep(self._shown / name)
        self._save()

    async def _copy_interpreters(self) -> None:
        for version, interpreter in sorted(self._interpreters.items()):
            if interpreter is None or version in self._manifest.pythons:
                continue
            partial = self._staging / interpreter.name
            shutil.rmtree(partial, ignore_errors=True)
            try:
                await asyncio.to_thread(copy, interpreter, self._tool_wheels(version), partial)
            except InterpreterError as error:
                self.result.problems.append(str(error))
                continue
            target = self._shown / "python" / interpreter.name
            target.parent.mkdir(exist_ok=True)
            shutil.rmtree(target, ignore_errors=True)
            partial.replace(target)
            for name in files_below(target):
                path = f"python/{interpreter.name}/{name}"
                self._manifest.files[path] = keep(self._shown / path)
            self._manifest.pythons[version] = interpreter.name
            self._save()

    def _save(self) -> None:
        write_manifest(self._root / "manifest.json", self._manifest)

    async def _run_uv(self, *arguments: str, stdin: str = "") -> tuple[int, str, str]:
        environment = {**os.environ, "NO_COLOR": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
        environment.pop("VIRTUAL_ENV", None)
        process = await asyncio.create_subprocess_exec(
            str(self._uv),
            *arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=environment,
            cwd=self._staging,  # the settings of the user, not of a project that we stand in
        )
        try:
            output, said = await process.communicate(stdin.encode())
        except asyncio.CancelledError:
            process.kill()
            await process.wait()
            raise
        return process.returncode or 0, output.decode(), _CREDENTIALS.sub("//", said.decode())


def _tags(python: str) -> frozenset[Tag]:
    version = numbers(python)
    interpreter = f"cp{version[0]}{version[1]}"
    return frozenset([*cpython_tags(version), *compatible_tags(version, interpreter)])


def _name(pin: str) -> str:
    return canonicalize_name(Requirement(pin).name)


def _pins(output: str) -> Iterable[str]:
    for line in output.splitlines():
        pin = line.partition(";")[0].partition("#")[0].strip()
        if "==" in pin and not pin.startswith("-"):
            yield pin


def _rounds(missing: Sequence[tuple[str, str]]) -> Iterable[tuple[str, list[str]]]:
    """Groups of pins for one Python, each package once: pip takes no two versions at a time."""
    groups: list[tuple[str, list[str], set[str]]] = []
    for python, pin in missing:
        name = _name(pin)
        for group_python, pins, names in groups:
            if group_python == python and name not in names and len(pins) < _PINS_A_DOWNLOAD:
                pins.append(pin)
                names.add(name)
                break
        else:
            groups.append((python, [pin], {name}))
    return [(python, pins) for python, pins, _ in groups]


def _shown(resolved: Resolved) -> str:
    return f"{' '.join(resolved.requirements)} for Python {resolved.python}"


def _reason(said: str) -> str:
    """What uv or pip gives as the reason, in one line."""
    lines = [line.strip(" │╰▶─×├") for line in said.splitlines()]
    causes = [line for line in lines if re.match(r"(cause: )?Because|ERROR: |cause: ", line)]
    if not causes:
        return _last_line(said)
    reason = causes[0].removeprefix("cause: ").removeprefix("ERROR: ")
    return re.sub(r",? we can conclude.*", "", reason)


def _last_line(said: str) -> str:
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return lines[-1] if lines else "no reason given"
