"""Recognises the archives that ADD unpacks: by their content, as Docker does, not by their name."""

from __future__ import annotations

import bz2
import gzip
import lzma
import tarfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Literal

ArchiveFormat = Literal["tar", "gzip", "bzip2", "xz", "zstd"]
"""A tar file as it is, or compressed by the program of that name."""

_MAGIC: Mapping[bytes, ArchiveFormat] = {
    b"\x1f\x8b\x08": "gzip",
    b"BZh": "bzip2",
    b"\xfd7zXZ\x00": "xz",
    b"\x28\xb5\x2f\xfd": "zstd",
}
_BLOCK = tarfile.BLOCKSIZE
_NOT_READABLE = (OSError, EOFError, zlib.error, lzma.LZMAError)


def archive_format(path: Path) -> ArchiveFormat | None:
    """How a tar archive is compressed; None: the file is no archive that begins with a member."""
    try:
        with path.open("rb") as file:
            start = file.read(8)
            file.seek(0)
            kinds = (kind for magic, kind in _MAGIC.items() if start.startswith(magic))
            kind: ArchiveFormat = next(kinds, "tar")
            tarfile.TarInfo.frombuf(_first_block(file, kind), "utf-8", "surrogateescape")
    except (*_NOT_READABLE, tarfile.TarError):
        return None
    return kind


def _first_block(file: IO[bytes], kind: ArchiveFormat) -> bytes:
    match kind:
        case "tar":
            return file.read(_BLOCK)
        case "gzip":
            return gzip.GzipFile(fileobj=file).read(_BLOCK)
        case "bzip2":
            return bz2.BZ2File(file).read(_BLOCK)
        case "xz":
            return lzma.LZMAFile(file).read(_BLOCK)
        case "zstd":
            import zstandard  # few tasks have such a file

            try:
                return zstandard.ZstdDecompressor().stream_reader(file).read(_BLOCK)
            except zstandard.ZstdError as error:
                raise EOFError(str(error)) from error
