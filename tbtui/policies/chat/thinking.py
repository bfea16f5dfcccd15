"""Splits a completion into its thinking and its answer."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from tbtui.policies.base import Answer
from tbtui.policies.chat.vocabulary import Vocabulary

_PAIRS = (
    ("<think>", "</think>"),
    ("<seed:think>", "</seed:think>"),
    ("[THINK]", "[/THINK]"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
    ("<thinking>", "</thinking>"),
)


@dataclass(frozen=True, slots=True)
class Marks:
    """What a model puts before and after its thinking."""

    opening: str
    closing: str

    def left_open(self, text: str) -> bool:
        """Whether thinking that begins in `text` doesn't end in it."""
        return text.rfind(self.opening) > text.rfind(self.closing)


def find_marks(template: str, added_tokens: Collection[str]) -> Marks | None:
    """The marks that the chat template writes, else those in the vocabulary; None: there are none.

    Whether a model thinks can't be seen from its vocabulary (Qwen's is the same for models that
    don't), only how it would.
    """
    for places in (template, added_tokens):
        for opening, closing in _PAIRS:
            if closing in places:
                return Marks(opening, closing)
    return None


class AnswerReader:
    """Splits completions at the marks."""

    def __init__(self, vocabulary: Vocabulary, marks: Marks | None, opened: bool) -> None:
        """`opened`: the prompt's last words are the opening mark, or come after it."""
        self._vocabulary = vocabulary
        self._marks = marks
        self._opened = opened
        ids = vocabulary.ids
        self._ids: tuple[int, int] | None = None
        if marks is not None and marks.opening in ids and marks.closing in ids:
            self._ids = ids[marks.opening], ids[marks.closing]

    def may_think(self, history: Sequence[int]) -> bool:
        """Whether there can be thinking in a conversation, of which `history` are the tokens."""
        if self._marks is None:
            return False
        return self._ids is None or any(id in history for id in self._ids)

    def read(self, ids: Sequence[int]) -> Answer:
        """Text and thinking of a completion without its stop token. Thinking that was cut off
        before its end leaves no text."""
        text_of = self._vocabulary.text
        if self._marks is None:
            return Answer(text_of(ids))
        if self._ids is None:
            return read_text(text_of(ids), self._marks, self._opened)
        opening, closing = self._ids
        ids = list(ids)
        begin = 0
        if opening in ids and not text_of(ids[: ids.index(opening)]).strip():
            begin = ids.index(opening) + 1
        elif not self._opened:
            return Answer(text_of(ids))
        if closing not in ids[begin:]:
            return Answer("", text_of(ids[begin:]).strip())
        end = ids.index(closing, begin)
        return _answer(text_of(ids[begin:end]), text_of(ids[end + 1 :]))


def read_text(text: str, marks: Marks, opened: bool) -> Answer:
    """As `AnswerReader.read`, where marks are plain text."""
    begins = text.lstrip()
    if begins.startswith(marks.opening):
        text = begins.removeprefix(marks.opening)
    elif not opened:
        return Answer(text)
    thinking, closing, rest = text.partition(marks.closing)
    return _answer(thinking, rest) if closing else Answer("", text.strip())


def _answer(thinking: str, rest: str) -> Answer:
    return Answer(rest.lstrip("\n"), thinking.strip())
