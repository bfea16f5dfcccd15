"""Copies files between the host and a container, safe from what the container prepared.

Both ways go through the engine's `cp`, as a tar stream: no directory is shared, and nothing in the
container takes part. What comes out is read here member by member and never extracted: links and
special files stay behind, names are checked, bytes and entries are counted (`transfer.receive`).
"""

from __future__ import annotations

import asyncio
import contextlib
import filecmp
import io
import os
import stat
import subprocess
import tarfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, BinaryIO, cast, override

from tbtui.rollout.environments.base import SandboxError
from tbtui.rollout.environments.docker_cli import client_environment
from tbtui.rollout.environments.transfer import receive

MAX_DOWNLOAD_BYTES = 1 << 30
_CHUNK = 1 << 20
_MESSAGE = 400


@dataclass(frozen=True, slots=True)
class Source:
    """A place in a container."""

    engine: tuple[str, ...]
    container: str
    path: str

    def argv(self) -> list[str]:
        return [*self.engine, "cp", f"{self.container}:{self.path}", "-"]


class _TarFrames(io.RawIOBase):
    """A tar stream as the frames that `receive` reads."""

    def __init__(self, tar: tarfile.TarFile, top: str | None) -> None:
        self._chunks = self._frames(tar, top)
        self._rest = memoryview(b"")

    @override
    def readable(self) -> bool:
        return True

    @override
    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        while not self._rest:
            try:
                self._rest = memoryview(next(self._chunks))
            except StopIteration:
                return 0
        size = min(len(buffer), len(self._rest))
        buffer[:size] = self._rest[:size]
        self._rest = self._rest[size:]
        return size

    def _frames(self, tar: tarfile.TarFile, top: str | None) -> Iterator[bytes]:
        for member in tar:
            name = PurePosixPath(member.name).as_posix()
            if top is not None:
                if name != top or not member.isreg():
                    raise SandboxError(f"{top} in the container is not a regular file")
                name = ""  # the target itself
            elif name == "." or not (member.isreg() or member.isdir()):
                continue
            encoded = os.fsencode(name)
            size = member.size if member.isreg() else 0
            kind = "f" if member.isreg() else "d"
            yield f"{kind} {member.mode & 0o777} {size} {len(encoded)}\n".encode() + encoded
            if member.isreg():
                content = cast(IO[bytes], tar.extractfile(member))
                while chunk := content.read(_CHUNK):
                    yield chunk


def _copying(argv: Sequence[str]) -> subprocess.Popen[bytes]:
    """The engine's client, writing a tar archive to its standard output."""
    return subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=client_environment(os.environ),
    )


def download(
    source: Source,
    target: Path,
    *,
    directory: bool,
    max_bytes: int = MAX_DOWNLOAD_BYTES,
    overwrite: bool = True,
) -> int:
    """Copies one regular file to `target`, or what is below a directory to below `target`.

    Blocking: call it in a thread.

    Returns:
        Number of files written.

    Raises:
        SandboxError: nothing there, a limit was passed, or the engine failed.
    """
    path = f"{source.path.rstrip('/')}/." if directory else source.path
    asked = Source(source.engine, source.container, path)
    top = None if directory else PurePosixPath(path).name
    with _copying(asked.argv()) as client, contextlib.ExitStack() as stack:
        stack.callback(client.kill)  # a refused download: the engine is not heard to the end
        assert client.stdout is not None and client.stderr is not None
        try:
            with tarfile.open(fileobj=client.stdout, mode="r|") as tar:
                frames = io.BufferedReader(_TarFrames(tar, top), _CHUNK)
                written = receive(
                    cast(BinaryIO, frames),
                    target,
                    max_bytes=max_bytes,
                    overwrite=overwrite,
                )
            client.stdout.read()  # the padding after the archive's end
        except tarfile.TarError as error:
            said = client.stderr.read(_MESSAGE).decode(errors="replace").strip()
            raise SandboxError(f"{source.path} not copied out: {said or error}") from error
        if client.wait() != 0:
            said = client.stderr.read(_MESSAGE).decode(errors="replace").strip()
            raise SandboxError(f"{source.path} not copied out: {said}")
    return written


def first_entry(source: Source) -> str | None:
    """The name of something below a directory, whatever kind it is; None: it is empty.

    Nothing in the container takes part. Blocking: call it in a thread.

    Raises:
        SandboxError: there is no such directory, or the engine failed.
    """
    with _copying(source.argv()) as client, contextlib.ExitStack() as stack:
        stack.callback(client.kill)  # one entry is enough
        assert client.stdout is not None and client.stderr is not None
        try:
            with tarfile.open(fileobj=client.stdout, mode="r|") as tar:
                directory = tar.next()
                if directory is None or not directory.isdir():
                    raise SandboxError(f"{source.path} in the container is not a directory")
                entry = tar.next()
        except tarfile.TarError as error:
            said = client.stderr.read(_MESSAGE).decode(errors="replace").strip()
            raise SandboxError(f"{source.path} can't be listed: {said or error}") from error
    return None if entry is None else entry.name


def first_difference(sources: Sequence[Path], copied: Path) -> str | None:
    """The first regular file below the directories that isn't the same below `copied`, which
    nothing else writes to. Where two directories have a file the last one counts."""
    files = {
        path.relative_to(source): path
        for source in sources
        for path in sorted(source.rglob("*"))
        if path.is_file() and not path.is_symlink()
    }
    for name, path in files.items():
        copy = copied / name
        if not copy.is_file() or not filecmp.cmp(path, copy, shallow=False):
            return name.as_posix()
    return None


async def download_async(
    source: Source, target: Path, *, directory: bool, overwrite: bool = True
) -> int:
    """`download`, off the event loop."""
    return await asyncio.to_thread(
        download, source, target, directory=directory, overwrite=overwrite
    )


def archive(source: Path, name: str, *, skip: Sequence[str] = ()) -> bytes:
    """A tar archive of a file or of what is below a directory, owned by root.

    Args:
        name: The path in the archive of the file, or of the directory.
        skip: Names directly below the directory that stay behind.

    Raises:
        OSError: the source can't be read.
    """
    buffer = io.BytesIO()

    def owned_by_root(info: tarfile.TarInfo) -> tarfile.TarInfo | None:
        if not (info.isreg() or info.isdir() or info.issym()):
            return None
        info.uid = info.gid = 0
        info.uname = info.gname = ""
        # Whatever the host's umask was, the container's own users must be able to read it.
        info.mode |= 0o444 | (0o111 if info.isdir() else 0)
        return info

    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        if not stat.S_ISDIR(source.stat().st_mode):
            tar.add(source.resolve(), arcname=name, filter=owned_by_root)
            return buffer.getvalue()
        for path in sorted(source.iterdir()):
            if path.name not in skip:
                tar.add(path, arcname=f"{name}/{path.name}", filter=owned_by_root)
    return buffer.getvalue()
