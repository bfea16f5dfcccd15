"""Copies files of the host into a box."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tbtui.rollout.environments.box import Box


@dataclass(frozen=True, slots=True)
class Ownership:
    """What COPY's --chown and --chmod ask for; None: box-root, and the file's own mode.

    `owner` is `user`, `user:group` or numbers, as the box's own /etc/passwd knows them.
    """

    owner: str | None = None
    mode: int | None = None


@dataclass(frozen=True, slots=True)
class _Entry:
    kind: Literal["directory", "file", "link"]
    source: Path
    name: str


async def upload_file(
    box: Box, source: Path, target: str, ownership: Ownership | None = None
) -> None:
    """Copies one file to the path `target`; makes the directories above it.

    Raises:
        OSError: the source can't be read, or the box can't write the target.
    """
    wanted = ownership or Ownership()
    descriptor = os.open(source, os.O_RDONLY | os.O_CLOEXEC)
    try:
        mode = os.fstat(descriptor).st_mode & 0o777
        # Whatever the host's umask was, the box's own users must be able to read it.
        mode = mode | 0o444 if wanted.mode is None else wanted.mode
        await box.put_file(descriptor, target, mode=mode, owner=wanted.owner)
    finally:
        os.close(descriptor)


async def upload_tree(
    box: Box,
    source: Path,
    target: str,
    ownership: Ownership | None = None,
    left_out: Callable[[Path], bool] = lambda path: False,
) -> None:
    """Copies what is below the directory `source` to below `target`; links stay links.

    `left_out` says of a path whether it stays behind; of a directory, what is in it may not.

    Raises:
        OSError: as for `upload_file`.
    """
    target = target.rstrip("/")
    await box.make_directories([target or "/"])
    for entry in _walk(source):
        if left_out(entry.source):
            continue
        path = f"{target}/{entry.name}"
        match entry.kind:
            case "directory":
                await box.make_directories([path])
            case "link":
                await box.put_link(str(entry.source.readlink()), path)
            case "file":
                await upload_file(box, entry.source, path, ownership)


async def changed_file(box: Box, sources: Sequence[Path], target: str) -> str | None:
    """The first file below `target` that isn't as `upload_tree` put it there from `sources`.

    A file of a later directory has replaced that of an earlier one. What was added is not looked
    at.
    """
    entries = {entry.name: entry for source in sources for entry in _walk(source)}
    for name, entry in entries.items():
        path = f"{target.rstrip('/')}/{name}"
        if entry.kind == "link":
            same = await box.is_same(path, target=str(entry.source.readlink()))
        elif entry.kind == "file":
            descriptor = os.open(entry.source, os.O_RDONLY | os.O_CLOEXEC)
            try:
                same = await box.is_same(path, source=descriptor)
            finally:
                os.close(descriptor)
        else:
            continue
        if not same:
            return path
    return None


def _walk(source: Path) -> Iterator[_Entry]:
    for directory, names, files in os.walk(source):
        base = Path(directory)
        for name in sorted([*names, *files]):
            path = base / name
            inner = path.relative_to(source).as_posix()
            if path.is_symlink():
                yield _Entry("link", path, inner)
            elif path.is_dir():
                yield _Entry("directory", path, inner)
            elif path.is_file():
                yield _Entry("file", path, inner)
