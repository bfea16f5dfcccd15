"""How a completion's tokens are stored: once, compact, exact.

A prompt almost always begins with the previous prompt and completion of its trial, so only what
is new is stored, with the number of tokens that carry over.
"""

from __future__ import annotations

import array
import json
import re
import sys
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    # Readers on the start-up path do without it.
    import numpy as np
    import numpy.typing as npt

_LONGEST = 32 << 20
"""Bytes, of one value as it was before it was compressed."""
_ID = re.compile(r"‹\d+›")


@dataclass(frozen=True, slots=True)
class SampleRecord:
    """One model call of a trial, exactly as it happened."""

    trial: str
    turn: int
    prompt_ids: tuple[int, ...]
    completion_ids: tuple[int, ...]
    logprobs: npt.NDArray[np.float32]
    pieces: tuple[str, ...]
    """Text of each completion token; `ids_as_text` where it wasn't known."""
    prompt_text: str
    """The user's part of this turn (what is new in the prompt), as text."""
    stop_reason: str
    weights_version: int
    temperature: float
    seconds: float
    summary: bool = False
    """The agent asked for it to summarise its own history, not to act."""
    model_logprobs: npt.NDArray[np.float32] | None = None
    """Those of the model itself, at temperature 1 and of all tokens, where `logprobs` are of what
    was sampled from; NaN: not known. None: they are the same."""

    @property
    def of_model(self) -> npt.NDArray[np.float32]:
        """The model's own log-probabilities, NaN where they are not known."""
        return self.logprobs if self.model_logprobs is None else self.model_logprobs

    @property
    def has_logprobs(self) -> bool:
        """Whether its sampler gave any: else all are zeros."""
        return bool(self.logprobs.any())


def ids_as_text(ids: Sequence[int]) -> tuple[str, ...]:
    """Placeholders for tokens whose text is not known."""
    return tuple(f"‹{id}›" for id in ids)


def only_ids(pieces: Sequence[str]) -> bool:
    """Whether the pieces are placeholders of `ids_as_text`."""
    return bool(pieces) and all(_ID.fullmatch(piece) for piece in pieces)


def shared_prefix(previous: Sequence[int], current: Sequence[int]) -> int:
    """How many leading tokens two sequences share."""
    if tuple(current[: len(previous)]) == tuple(previous):
        return len(previous)
    return next(
        (i for i, (a, b) in enumerate(zip(previous, current, strict=False)) if a != b),
        min(len(previous), len(current)),
    )


def pack_ids(ids: Sequence[int]) -> bytes:
    """Little-endian 32-bit integers, compressed."""
    return zlib.compress(_little_endian(array.array("i", ids)).tobytes(), 1)


def unpack_ids(blob: bytes) -> tuple[int, ...]:
    ids = array.array("i")
    ids.frombytes(_decompressed(blob))
    return tuple(_little_endian(ids))


def pack_floats(values: Sequence[float] | npt.NDArray[np.float32]) -> bytes:
    """Little-endian 32-bit floats."""
    return _little_endian(array.array("f", values)).tobytes()


def unpack_floats(blob: bytes) -> list[float]:
    if not isinstance(blob, bytes):
        raise ValueError("no blob")
    floats = array.array("f")
    floats.frombytes(blob)
    return _little_endian(floats).tolist()


def _little_endian[T: (int, float)](values: array.array[T]) -> array.array[T]:
    if sys.byteorder == "big":
        values.byteswap()
    return values


def pack_texts(texts: Sequence[str]) -> bytes:
    """JSON, compressed. A lone surrogate, which no reader could show, becomes a question mark.

    Texts that are longer together than readers take lose their ends.
    """
    data = json.dumps(list(texts), ensure_ascii=False).encode("utf-8", "replace")
    if len(data) > _LONGEST:
        # A character takes at most six bytes, of a control character's escape.
        most = _LONGEST // 8 // len(texts)
        short = [text[:most] for text in texts]
        data = json.dumps(short, ensure_ascii=False).encode("utf-8", "replace")
    return zlib.compress(data, 1)


def unpack_texts(blob: bytes) -> tuple[str, ...]:
    try:
        texts = json.loads(_decompressed(blob))
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    if not isinstance(texts, list) or not all(isinstance(each, str) for each in texts):
        raise ValueError("no list of texts")
    return tuple(texts)


def _decompressed(blob: bytes) -> bytes:
    """Decompress; raises `ValueError` where that is cut off, or more than anybody has written."""
    if not isinstance(blob, bytes):
        raise ValueError("no blob")
    stream = zlib.decompressobj()
    data = stream.decompress(blob, _LONGEST)
    if not stream.eof:
        raise ValueError("cut off, or too long")
    return data
