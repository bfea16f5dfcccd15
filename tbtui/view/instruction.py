"""What a task asks: its instruction, from a trial's first prompt, and in one line."""

from __future__ import annotations

import re

HEADING = "Task Description:"
"""What stands above the instruction in Terminus-2's first prompt."""
_BEGIN = re.compile(rf"^{HEADING}[ \t]*\n", re.MULTILINE)
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
    """The task's instruction in Terminus-2's first prompt; empty where it isn't laid out so."""
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
