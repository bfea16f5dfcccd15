"""Reads HTTP responses of servers that may be hostile: up to a number of bytes, unpacked."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import httpx

ENCODINGS: Mapping[str, str] = MappingProxyType({"Accept-Encoding": "gzip"})
"""Header of a request: one packing, in which a piece from the network can't grow beyond 64 MiB.
Others that httpx unpacks, and several on each other, make gigabytes of it unseen."""
_UNPACKED = frozenset({"", "identity", "gzip"})


class ResponseError(Exception):
    """A response that is not read; the message says why, without naming its server."""


async def limited_body(response: httpx.Response, most: int) -> AsyncIterator[bytes]:
    """The body of a streamed response, as it comes.

    Raises:
        ResponseError: it has more than `most` bytes, or is packed in a way that isn't read.
        httpx.HTTPError: as httpx has it.
    """
    packed = response.headers.get("content-encoding", "").strip().lower()
    if packed not in _UNPACKED:
        raise ResponseError(f"it is packed as {packed[:40]!a}, where gzip was asked for")
    read = 0
    async for part in response.aiter_bytes():
        read += len(part)
        if read > most:
            raise ResponseError(f"it has more than {most >> 20} MiB")
        yield part
