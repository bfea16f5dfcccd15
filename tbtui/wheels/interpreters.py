"""Interpreters for boxes: which the host has, and copies that need nothing of where they were.

A box sees the host's /usr, so an interpreter below /usr is there already. Any other is copied with
its standard library, without what is installed in it.
"""

from __future__ import annotations

import compileall
import json
import platform
import re
import shutil
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

_HOST_PATH = "/usr/local/bin:/usr/bin:/bin"
_ABOUT = (
    "import json, platform, sys; print(json.dumps("
    "[sys.base_prefix, platform.python_version(), sys.implementation.name]))"
)
_WORKS = "import encodings, hashlib, json, zlib; print(open('/proc/self/maps').read())"
_NOT_COPIED = (
    "site-packages",
    "test",
    "tests",
    "idlelib",
    "turtledemo",
    "*.a",
    "EXTERNALLY-MANAGED",
)


class InterpreterError(Exception):
    """An interpreter can't be brought along; one line that says why."""


@dataclass(frozen=True, slots=True)
class Interpreter:
    """An interpreter of the host."""

    executable: Path
    prefix: Path
    version: str
    """With its patch level: 3.13.2."""

    @property
    def minor(self) -> str:
        """Such as 3.13."""
        return ".".join(self.version.split(".")[:2])

    @property
    def in_boxes(self) -> bool:
        """Whether boxes see it already, as part of the host's /usr."""
        return self.prefix.is_relative_to("/usr")

    @property
    def name(self) -> str:
        """The directory that uv would give it, by which uv in a box recognises it."""
        return f"cpython-{self.version}-linux-{platform.machine()}-gnu"


def in_boxes(version: str) -> bool:
    """Whether boxes have Python of this version because the host has, as `python3.11`, say."""
    return shutil.which(f"python{version}", path=_HOST_PATH) is not None


def numbers(version: str) -> tuple[int, ...]:
    """A version's parts, to compare it."""
    return tuple(int(part) for part in version.split("."))


def box_python() -> str | None:
    """The version of `python3` in a box that has none of its own: the host's, such as 3.11."""
    found = shutil.which("python3", path=_HOST_PATH)
    if found is None:
        return None
    # Debian's link names it; asking the interpreter would take as long as making a box.
    if match := re.fullmatch(r"python(3\.\d+)", Path(found).resolve().name):
        return match[1]
    return look_at(Path(found)).minor


def look_at(executable: Path) -> Interpreter:
    """What an interpreter says of itself.

    Raises:
        InterpreterError: it doesn't run, or isn't CPython.
    """
    try:
        result = subprocess.run(
            [str(executable), "-I", "-c", _ABOUT], capture_output=True, text=True, check=True
        )
        prefix, version, kind = json.loads(result.stdout)
    except (OSError, subprocess.CalledProcessError, ValueError) as error:
        raise InterpreterError(f"{executable}: is no Python that runs here") from error
    if kind != "cpython":
        raise InterpreterError(f"{executable}: is {kind}; only CPython can be brought along")
    return Interpreter(executable, Path(prefix), version)


def copy(interpreter: Interpreter, wheels: list[Path], into: Path) -> None:
    """Copies it to the directory `into`, with `wheels` installed: pip, at least.

    Raises:
        InterpreterError: the copy doesn't work without the original.
    """
    source, minor = interpreter.prefix, interpreter.minor
    library = into / "lib" / f"python{minor}"
    try:
        for pattern in ("bin/python*", "lib/lib*.so*"):
            for path in source.glob(pattern):
                target = into / path.relative_to(source)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(path, target, follow_symlinks=False)
        ignored = shutil.ignore_patterns(*_NOT_COPIED)
        shutil.copytree(source / "lib" / library.name, library, symlinks=True, ignore=ignored)
        headers = source / "include" / library.name
        if headers.is_dir():
            shutil.copytree(headers, into / "include" / library.name, symlinks=True)
    except OSError as error:
        raise InterpreterError(f"Python {minor} can't be copied: {error}") from error
    packages = library / "site-packages"
    packages.mkdir()
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(packages)
    _write_programs(into / "bin", minor)
    executable = into / "bin" / f"python{minor}"
    for path in (executable, *into.glob("lib/libpython*.so*")):
        _find_own_libraries(path, source)
    _require_works(executable, source)
    compileall.compile_dir(packages, quiet=2) if minor == _own_minor() else None
    for path in into.rglob("*"):
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() or path.stat().st_mode & 0o111 else 0o644)


def _own_minor() -> str:
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def _write_programs(directory: Path, minor: str) -> None:
    for name in ("python3", "python"):
        link = directory / name
        link.unlink(missing_ok=True)
        link.symlink_to(f"python{minor}")
    # Not pip's own scripts: those name the interpreter by one place, and boxes show it at two.
    script = f'#!/bin/sh\nexec "${{0%/*}}/python{minor}" -m pip "$@"\n'
    for name in ("pip", "pip3", f"pip{minor}"):
        program = directory / name
        program.unlink(missing_ok=True)
        program.write_text(script)
        program.chmod(0o755)


def _find_own_libraries(path: Path, prefix: Path) -> None:
    """Makes a program look for its libraries beside itself, where it was built to look in `prefix`.

    As chrpath does: the new search path takes the old one's place, and is no longer than it.
    """
    if path.is_symlink() or not path.is_file():
        return
    old, new = f"{prefix}/lib\0".encode(), b"$ORIGIN/../lib\0"
    content = path.read_bytes()
    if old in content and len(new) <= len(old):
        path.write_bytes(content.replace(old, new.ljust(len(old), b"\0")))


def _require_works(executable: Path, original: Path) -> None:
    result = subprocess.run(
        [str(executable), "-I", "-c", _WORKS], capture_output=True, text=True, check=False
    )
    if result.returncode:
        last = (result.stderr.strip().splitlines() or ["no output"])[-1]
        raise InterpreterError(f"Python at {original}: its copy does not run: {last}")
    if f" {original}/" in result.stdout:
        raise InterpreterError(f"Python at {original}: its copy needs libraries of the original")
