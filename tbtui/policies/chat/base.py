"""What a policy on a server needs of a renderer besides turning chat into tokens."""

from __future__ import annotations

from typing import Literal, Protocol

from tbtui.policies.base import Renderer

Thinking = Literal["keep", "strip", "off"]
"""What becomes of the thinking of earlier turns; "off": the model is told not to think."""


class ChatRenderer(Renderer, Protocol):
    """A renderer of a real model's chat."""

    @property
    def stop_ids(self) -> tuple[int, ...]:
        """Tokens that end the assistant's turn; single tokens, never pieces of text."""
        ...

    @property
    def digest(self) -> str | None:
        """Of the vocabulary: with another one, token ids mean something else. None: unknown."""
        ...

    @property
    def vocab_size(self) -> int | None:
        """One more than the largest token id. None: unknown."""
        ...

    @property
    def notes(self) -> tuple[str, ...]:
        """What a person should know of the model's chat format, one line each."""
        ...
