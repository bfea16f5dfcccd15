"""Byte-level BPE with Terminus-2's fixed texts as single tokens.

Any text can be encoded and any ids decoded. A special token is only ever put in by id: text that
happens to read `<|end|>` is encoded as plain characters.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Self

from tokenizers import Tokenizer

from tbtui.policies.base import PolicyError
from tbtui.policies.chat.vocabulary import byte_of_character, encoded, split_text

END = "<|end|>"
USER = "<|user|>"
ASSISTANT = "<|asst|>"
SPECIAL = (END, USER, ASSISTANT)

CHECKPOINTS = Path(__file__).parent / "checkpoints"
"""A directory for each of the models in the package, by its name, and the tokenizer of all."""
SHIPPED = CHECKPOINTS / "starter"
TOKENIZER = CHECKPOINTS / "tokenizer.json"


class LocalTokenizer:
    """Text to token ids and back."""

    def __init__(self, path: Path) -> None:
        """Raises `PolicyError` when `path` is not a tokenizer of this kind."""
        try:
            text = path.read_text(encoding="utf-8")
        except OSError as error:
            raise PolicyError(f"{path}: {error.strerror}") from error
        self.path = path
        self.digest = hashlib.sha256(text.encode()).hexdigest()
        try:
            self._tokenizer = Tokenizer.from_str(text)
        except ValueError as error:
            raise PolicyError(f"{path} is not a tokenizer file: {error}") from error
        self._tokenizer.encode_special_tokens = True
        self.vocab_size = self._tokenizer.get_vocab_size()
        added = self._tokenizer.get_added_tokens_decoder()
        specials = {token.content: id for id, token in added.items() if token.special}
        if set(specials) != set(SPECIAL):
            raise PolicyError(f"{path} is not a tokenizer of the embedded policy")
        self.end_id, self.user_id, self.assistant_id = (specials[name] for name in SPECIAL)
        self._special_names = {id: name for name, id in specials.items()}
        byte_of = byte_of_character()
        self._bytes: list[bytes] = [b""] * self.vocab_size
        for token, id in self._tokenizer.get_vocab().items():
            fixed = id in added
            self._bytes[id] = token.encode() if fixed else bytes(byte_of[char] for char in token)
        self.fixed_texts = tuple(t.content for t in added.values() if not t.special)

    def __reduce__(self) -> tuple[type[Self], tuple[Path]]:
        return type(self), (self.path,)

    def encode(self, text: str) -> list[int]:
        # Lone surrogates have no UTF-8 form; they come from undecodable bytes.
        clean = text.encode(errors="replace").decode()
        return encoded(self._tokenizer, clean)

    def decode(self, ids: Iterable[int]) -> str:
        """The text of `ids` without special tokens; undecodable bytes become U+FFFD, ids beyond the
        vocabulary too."""
        known = len(self._bytes)
        kept = [
            self._bytes[id] if id < known else b"\xff"
            for id in ids
            if id not in self._special_names
        ]
        return b"".join(kept).decode(errors="replace")

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """The text of each token; special tokens by name.

        A character split over several tokens belongs to the last of them.
        """
        return split_text(ids, self._bytes, self._special_names)
