"""Byte-level vocabularies, as GPT-2 introduced them: each byte is written as one character."""

from __future__ import annotations

import codecs
from collections.abc import Mapping, Sequence


def byte_of_character() -> dict[str, int]:
    """The byte that each character of a byte-level vocabulary stands for."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    table = {chr(byte): byte for byte in printable}
    return table | {chr(256 + rank): byte for rank, byte in enumerate(others)}


def split_text(
    token_ids: Sequence[int], token_bytes: Sequence[bytes], names: Mapping[int, str]
) -> list[str]:
    """The text of each token; those in `names` by name.

    A character split over several tokens belongs to the last of them; bytes that are no UTF-8
    become U+FFFD. An id beyond the vocabulary, which a padded output layer can draw, reads U+FFFD.
    """
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    pieces = []
    for id in token_ids:
        name = names.get(id)
        if name is not None:
            pieces.append(decoder.decode(b"", final=True) + name)
        else:
            text = token_bytes[id] if id < len(token_bytes) else b"\xff"
            pieces.append(decoder.decode(text))
    rest = decoder.decode(b"", final=True)
    if rest:
        pieces[-1] += rest
    return pieces
