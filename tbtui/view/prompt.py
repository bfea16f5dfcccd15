"""The prompt of a model call, part by part, from what the journal has of its trial's calls; and
what a task asks: its instruction, from a trial's first prompt."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from tbtui.journal.samples import SampleRecord


HEADING = "Task Description:"
"""What stands above the instruction in Terminus-2's first prompt."""
_BEGIN = re.compile(rf"^{HEADING}[ \t]*\n", re.MULTILINE)
_SMALL = re.compile(
    r"\ASolve the task in a bash terminal\..*?\nCurrent terminal state:\n"
    r"(?:.*\nDONE\n\n)?.*?^Task: ",
    re.MULTILINE | re.DOTALL,
)
"""What stands above it in the small agent's, examples included."""
_END = re.compile(r"\n+Current terminal state:[ \t]*\n")
_FILE = re.compile(
    r"(?<![\w./-])(?:[\w.-]*/)*[\w-][\w.-]*\.[A-Za-z]\w{0,7}\b|(?<!\S)/\w[\w.-]*/[\w./-]*\w"
)
_NAMED = re.compile(r"\b(?:named|called)\s+[`'\"]?([\w./-]+\w)")
_MARKS = re.compile(r"^(?:#+\s+|[-*]\s+|>\s+)+")
_NO_FILES = frozenset({"e.g", "i.e", "app"})
_LONGEST = 20_000
"""Characters of an instruction that are looked through for names."""


def instruction_in(prompt: str) -> str:
    """The task's instruction in the first prompt of Terminus-2, or of the small agent; empty where
    it isn't laid out so."""
    if small := _SMALL.match(prompt):
        return prompt[small.end() :].strip()
    begin = _BEGIN.search(prompt)
    if begin is None:
        return ""
    # The last heading: an instruction may quote it.
    ends = [found.start() for found in _END.finditer(prompt, begin.end())]
    return prompt[begin.end() : ends[-1] if ends else len(prompt)].strip()


def asks(instruction: str) -> str:
    """The instruction's first paragraph that says something, in one line without Markdown's marks.

    Of a title that a paragraph follows, the paragraph.
    """
    title = ""
    paragraph: list[str] = []
    for line in instruction.splitlines():
        text = line.strip()
        if not text or text.startswith(("```", "---", "<!--", "![")):
            if paragraph:
                break
        elif text.startswith("#"):
            if paragraph:
                break
            title = title or _MARKS.sub("", text)
        else:
            paragraph.append(_MARKS.sub("", text))
    return " ".join(" ".join(paragraph).split()) or title


def named_files(instruction: str) -> tuple[str, ...]:
    """Names of files and directories that the instruction mentions, without their directories."""
    found: dict[str, None] = {}
    text = instruction[:_LONGEST]
    for match in (*_FILE.finditer(text), *_NAMED.finditer(text)):
        name = (match[1] if match.re is _NAMED else match[0]).rstrip("./").rsplit("/", 1)[-1]
        if name and name not in _NO_FILES:
            found[name] = None
    return tuple(found)


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
