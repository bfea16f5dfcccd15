"""The prompt of a model call, part by part, from what the journal has of its trial's calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from tbtui.journal.samples import SampleRecord

Pieces = Callable[[Sequence[int]], Sequence[str]]
"""Token ids to the text of each."""


@dataclass(frozen=True, slots=True)
class PromptPart:
    """Tokens of a prompt that came in at the same time."""

    origin: Literal["given", "sampled"]
    """`given` to the policy: by its chat format, the task and the terminal; else its own words."""
    turn: int
    """In whose prompt or completion they were new."""
    ids: tuple[int, ...]
    pieces: tuple[str, ...] | None = None
    """The text of each token; None: the journal has their ids alone."""
    text: str = ""
    """Where there are no pieces: what the agent wrote, without what the chat format adds."""

    def cut(self, count: int) -> PromptPart:
        """The part's first `count` tokens."""
        if count >= len(self.ids):
            return self
        pieces = self.pieces[:count] if self.pieces is not None else None
        return replace(self, ids=self.ids[:count], pieces=pieces, text="")


def prompt_parts(calls: Sequence[SampleRecord]) -> list[PromptPart]:
    """The prompt of the last of a trial's calls up to it, in order; empty without any."""
    from tbtui.journal.samples import only_ids, shared_prefix

    parts: list[PromptPart] = []
    tokens: tuple[int, ...] = ()
    for index, call in enumerate(calls):
        shared = shared_prefix(tokens, call.prompt_ids)
        parts = _first(parts, shared)
        if new := call.prompt_ids[shared:]:
            parts.append(PromptPart("given", call.turn, new, text=call.prompt_text))
        if index < len(calls) - 1:
            known = None if only_ids(call.pieces) else call.pieces
            parts.append(PromptPart("sampled", call.turn, call.completion_ids, known))
        tokens = call.prompt_ids + call.completion_ids
    return parts


def with_pieces(parts: Sequence[PromptPart], pieces: Pieces) -> list[PromptPart] | None:
    """The same with the text of every token; None: `pieces` is of another vocabulary.

    What the policy has sampled was recorded as ids and as text, which tells.
    """
    for part in parts:
        if part.pieces is not None and tuple(pieces(part.ids)) != part.pieces:
            return None
    return [
        part if part.pieces is not None else replace(part, pieces=tuple(pieces(part.ids)))
        for part in parts
    ]


def _first(parts: Sequence[PromptPart], count: int) -> list[PromptPart]:
    """The first `count` tokens of the parts."""
    kept: list[PromptPart] = []
    for part in parts:
        if count <= 0:
            break
        kept.append(part.cut(count))
        count -= len(part.ids)
    return kept
