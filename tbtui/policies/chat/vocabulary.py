"""Reads a Hugging Face tokenizer's vocabulary: exact ids from text, text from ids."""

from __future__ import annotations

import codecs
import hashlib
import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_BLANK = re.compile(r"[\s▁]+")
"""Added tokens that are mere white space (Gemma has some) are ordinary text."""


class Vocabulary:
    """What a `tokenizers.Tokenizer` does, without padding, truncation or tokens of its own accord.

    An *added token* is one that the tokenizer looks for in the text before it splits it: the
    marks of a chat format, and what marks thinking or tool calls.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        """`tokenizer` is the vocabulary's own from now on."""
        from tokenizers import Tokenizer as Make

        self._tokenizer = tokenizer
        tokenizer.no_truncation()
        tokenizer.no_padding()
        # The same splitting and merging, with no text that is looked for first.
        self._plain = plain = Make(self._tokenizer.model)
        if self._tokenizer.normalizer is not None:
            plain.normalizer = self._tokenizer.normalizer
        if self._tokenizer.pre_tokenizer is not None:
            plain.pre_tokenizer = self._tokenizer.pre_tokenizer
        added = self._tokenizer.get_added_tokens_decoder()
        self.names = {
            id: token.content for id, token in added.items() if not _BLANK.fullmatch(token.content)
        }
        """Id -> text of every added token."""
        self.ids = {name: id for id, name in self.names.items()}
        self._special = frozenset(id for id, token in added.items() if token.special)
        self._name = _any_of(self.ids)
        # Added tokens that are looked for in normalised text can hide in text that isn't.
        self._normalised = _any_of(
            token.content for id, token in added.items() if token.normalized and id in self.names
        )
        vocabulary = self._tokenizer.get_vocab(with_added_tokens=True)
        self.size = max(vocabulary.values()) + 1
        listing = "\n".join(f"{id} {token}" for token, id in sorted(vocabulary.items()))
        self.digest = hashlib.sha256(listing.encode(errors="backslashreplace")).hexdigest()
        self._bytes = self._byte_table(vocabulary)
        start = self._ids("\n")
        # SentencePiece puts a space before the first word, which a text's later parts must not get.
        self._prefix = start if self._ids("\na") != start + self._ids("a") else None

    def replaced(self, text: str, replacement: Callable[[str], str]) -> str:
        """`text` with a replacement for whatever would become an added token."""
        normalizer = self._tokenizer.normalizer
        if normalizer is not None and self._normalised is not None:
            rest = self._name.sub("", text) if self._name else text
            if self._normalised.search(normalizer.normalize_str(_clean(rest))):
                return replacement(text)
        return self._name.sub(lambda found: replacement(found[0]), text) if self._name else text

    def encode(self, text: str) -> list[int]:
        """Ids of `text`; the names of added tokens in it become these tokens."""
        return self._ids(_clean(text))

    def encode_parts(self, parts: Sequence[str]) -> list[int]:
        """Ids of texts that follow each other, every second of them as ordinary text: what reads
        like an added token there doesn't become one."""
        ids: list[int] = []
        for number, part in enumerate(parts):
            if number % 2:
                ids += self._ordinary(_clean(part))
            elif part:
                ids += self._later(_clean(part)) if ids else self._ids(_clean(part))
        return ids

    def text(self, ids: Sequence[int], kept: Collection[int] = ()) -> str:
        """What `ids` say, without special tokens but those in `kept`."""
        at = [n for n, id in enumerate(ids) if id in kept] if kept else []
        if at:
            names = [self.names[ids[n]] for n in at]
            parts = zip([-1, *at], [*at, len(ids)], [*names, ""], strict=True)
            return "".join(self.text(ids[start + 1 : end]) + name for start, end, name in parts)
        if self._bytes is None:
            decoded: str = self._tokenizer.decode(list(ids), skip_special_tokens=True)
            return decoded
        special = self._special
        return "".join(split_text([id for id in ids if id not in special], self._bytes, {}))

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """The text of each token, added ones by name. A character split over several tokens
        belongs to the last of them."""
        if self._bytes is not None:
            return split_text(ids, self._bytes, self.names)
        from tokenizers.decoders import DecodeStream

        stream = DecodeStream(skip_special_tokens=False)
        pieces = [stream.step(self._tokenizer, id) or "" for id in ids]
        said = sum(map(len, pieces))
        if pieces:
            pieces[-1] += self._tokenizer.decode(list(ids), skip_special_tokens=False)[said:]
        return pieces

    def _ids(self, text: str) -> list[int]:
        return encoded(self._tokenizer, text)

    def _later(self, text: str) -> list[int]:
        if self._prefix is None:
            return self._ids(text)
        ids = self._ids("\n" + text)
        head = len(self._prefix)
        return ids[head:] if ids[:head] == self._prefix else self._ids(text)

    def _ordinary(self, text: str) -> list[int]:
        before = "" if self._prefix is None else "\n"
        ids = encoded(self._plain, before + text)
        if self._prefix is not None and ids[: len(self._prefix)] == self._prefix:
            ids = ids[len(self._prefix) :]
        if any(id in self.names for id in ids):
            # The vocabulary has the name as a word too: spell it.
            ids = [id for character in text for id in self._later(character)]
        return ids

    def _byte_table(self, vocabulary: dict[str, int]) -> list[bytes] | None:
        """The bytes of each id; None for a vocabulary that isn't byte-level."""
        from tokenizers.decoders import ByteLevel

        if not isinstance(self._tokenizer.decoder, ByteLevel):
            return None
        byte_of = byte_of_character()
        table = [b""] * self.size
        for token, id in vocabulary.items():
            if id in self.names or any(character not in byte_of for character in token):
                table[id] = token.encode(errors="replace")
            else:
                table[id] = bytes(map(byte_of.__getitem__, token))
        return table


def encoded(tokenizer: Tokenizer, text: str) -> list[int]:
    """The ids of `text`, without tokens that it doesn't have itself. Other threads run meanwhile:
    `Tokenizer.encode` would hold the interpreter, for seconds where the text is long."""
    # Its own threads would be of no use for one text, and it complains of forks once it has any.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    ids: list[int] = tokenizer.encode_batch_fast([text], add_special_tokens=False)[0].ids
    return ids


def _any_of(names: Iterable[str]) -> re.Pattern[str] | None:
    longest_first = sorted(names, key=len, reverse=True)
    return re.compile("|".join(map(re.escape, longest_first))) if longest_first else None


def _clean(text: str) -> str:
    """Lone surrogates have no UTF-8 form; they come from undecodable bytes."""
    return text.encode(errors="replace").decode()


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
