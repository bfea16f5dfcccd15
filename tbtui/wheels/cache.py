"""The user's wheel cache: its directory, its manifest, and the check that files are as fetched.

    ~/.cache/tbtui/offline/
        manifest.json      every file's SHA-256, and which packages each request resolved to
        shown/wheels/      the only part that boxes see, read-only
        shown/bin/         uv and uvx
        shown/python/      interpreters, in directories named as uv names its own

No address of an index is kept: those may hold credentials.
"""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from tbtui.errors import UserError
from tbtui.invocation import to_type
from tbtui.paths import cache_dir
from tbtui.wheels.requests import Request

_FORMAT = 1


class WheelCacheError(UserError):
    """The cache can't be used; one line with the file and the remedy."""


class Resolved(msgspec.Struct, frozen=True):
    """The exact packages that a request stands for, for one version of Python."""

    requirements: tuple[str, ...]
    python: str
    pins: tuple[str, ...]


class Kept(msgspec.Struct, frozen=True, array_like=True):
    """A file as it was when its hash was taken."""

    sha256: str
    """Digest of its bytes; of a link, of its target."""
    size: int
    changed_ns: int


class Manifest(msgspec.Struct):
    """What the cache holds."""

    format: int = _FORMAT
    files: dict[str, Kept] = {}
    """By path below shown/."""
    resolved: list[Resolved] = []
    pythons: dict[str, str] = {}
    """Version such as 3.13 -> directory below shown/python/."""

    def resolution(self, request: Request, python: str) -> Resolved | None:
        """What this request was resolved to before, if it was."""
        for each in self.resolved:
            if each.python == python and each.requirements == request.requirements:
                return each
        return None


@dataclass(frozen=True, slots=True)
class WheelCache:
    """A cache whose files are those of its manifest."""

    shown: Path
    pythons: dict[str, str]
    wheels: tuple[str, ...]

    def python(self, version: str) -> Path | None:
        """The directory of this version's interpreter."""
        name = self.pythons.get(version)
        return self.shown / "python" / name if name else None


def cache_root() -> Path:
    """Where this user's cache lies, whether or not there is one."""
    return cache_dir() / "offline"


def open_cache() -> WheelCache | None:
    """The user's cache, or None where nothing was prefetched.

    A file whose size or time is another than when it was fetched is hashed again, once for each
    state of the manifest that this process sees.

    Raises:
        WheelCacheError: a file is not what was fetched.
    """
    path = cache_root() / "manifest.json"
    try:
        info = path.stat()
    except OSError:
        return None
    return _opened(path, info.st_ino, info.st_mtime_ns)


@functools.lru_cache(maxsize=1)
def _opened(path: Path, _inode: int, _changed_ns: int) -> WheelCache:
    manifest = read_manifest(path)
    shown = path.parent / "shown"
    if wrong := damaged(shown, manifest, thorough=False):
        more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
        again = to_type("tasks", "prefetch", "DIR")
        raise WheelCacheError(
            f"{shown / wrong[0]}: not the file that was fetched{more}: `{again}` fetches it again"
        )
    names = [name.removeprefix("wheels/") for name in manifest.files if name.startswith("wheels/")]
    return WheelCache(shown, dict(manifest.pythons), tuple(sorted(names)))


def read_manifest(path: Path) -> Manifest:
    """The manifest; an empty one where there is none.

    Raises:
        WheelCacheError: it can't be read.
    """
    try:
        manifest = msgspec.json.decode(path.read_bytes(), type=Manifest)
    except FileNotFoundError:
        return Manifest()
    except (OSError, msgspec.DecodeError) as error:
        raise WheelCacheError(f"{path}: {error}: delete {path.parent} and fetch again") from error
    if manifest.format != _FORMAT:
        raise WheelCacheError(f"{path}: of another version: delete {path.parent} and fetch again")
    return manifest


def write_manifest(path: Path, manifest: Manifest) -> None:
    """Puts the manifest in place whole."""
    partial = path.with_suffix(".partial")
    partial.write_bytes(msgspec.json.format(msgspec.json.encode(manifest)))
    partial.replace(path)


def damaged(shown: Path, manifest: Manifest, *, thorough: bool) -> list[str]:
    """Paths that are missing, differ from the manifest, or are not in it.

    `thorough`: hashes also those whose size and time are as they were.
    """
    there = set(files_below(shown)) if shown.is_dir() else set()
    wrong = there ^ manifest.files.keys()
    for name in there - wrong:
        kept, info = manifest.files[name], os.lstat(f"{shown}/{name}")
        untouched = (info.st_size, info.st_mtime_ns) == (kept.size, kept.changed_ns)
        if (thorough or not untouched) and digest(shown / name) != kept.sha256:
            wrong.add(name)
    return sorted(wrong)


def keep(path: Path) -> Kept:
    """The file as it is now."""
    info = path.lstat()
    return Kept(digest(path), info.st_size, info.st_mtime_ns)


def files_below(directory: Path) -> Iterator[str]:
    """Every file and link, as a path relative to the directory."""
    # Not by pathlib: with some interpreters these are ten thousand, before the first trial.
    start = len(str(directory)) + 1
    waiting = [str(directory)]
    while waiting:
        with os.scandir(waiting.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
                else:
                    yield entry.path[start:]


def digest(path: Path) -> str:
    """SHA-256 of a file's bytes, or of a link's target."""
    if path.is_symlink():
        return hashlib.sha256(f"link {path.readlink()}".encode()).hexdigest()
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
