"""The terminal that a program may have, and text from outside on its way to one."""

from __future__ import annotations

import re
import sys
import unicodedata
from collections.abc import MutableMapping

_VARIATION_SELECTORS = re.compile("[\ufe00-\ufe0f]")
_COMBINING_RUN = re.compile(
    "([\u0300-\u036f\u0483-\u0489\u20d0-\u20ff]{2})[\u0300-\u036f\u0483-\u0489\u20d0-\u20ff]+"
)


_ESCAPE_SEQUENCE = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)|[ -/]*[0-OQ-WYZ\\`-~])"
)
"""ECMA-48's control sequences, strings (titles, links) with what ends them, other escapes."""


def on_terminal() -> bool:
    """Whether input and output of this program are a terminal."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def set_delays(environment: MutableMapping[str, str]) -> None:
    """Set how long Textual waits after escape; it reads that when it is imported."""
    if "SSH_CONNECTION" not in environment:
        # How long `esc` is waited with, lest it begin another key's sequence (milliseconds; curses
        # programs read it too). A sequence arrives whole where there is no network in between.
        environment.setdefault("ESCDELAY", "10")


def one_line(text: str, most: int | None = None) -> str:
    """`text` with white space as single spaces; of more than `most` characters its beginning."""
    line = " ".join(text.split())
    return line if most is None or len(line) <= most else line[: most - 1] + "…"


def counted(number: int, what: str) -> str:
    """`1 task`, `3 tasks`."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def both_ends(line: str, most: int) -> str:
    """A line, or of one with more than `most` characters its beginning, which says where, and more
    of its end, where the reason stands."""
    head = most // 3
    return line if len(line) <= most else f"{line[:head]}…{line[head + 1 - most :]}"


def reason(error: BaseException) -> str:
    """What an exception says, on one line; its type's name where it says nothing."""
    return one_line(str(error)) or type(error).__name__


def without_escapes(text: str) -> str:
    """`text` without the escape sequences of colours, cursor movements, titles and links."""
    return _ESCAPE_SEQUENCE.sub("", text) if "\x1b" in text else text


def visible(text: str) -> str:
    """`text` with every character that a terminal might obey or hide made visible: `␀`, `␛`, `�`.

    The result has no line breaks and holds nothing that a terminal interprets.
    """
    if text.isascii() and text.isprintable():
        return text
    text = _VARIATION_SELECTORS.sub("", text)
    if not text.isprintable():
        text = "".join(char if char.isprintable() else _picture(char) for char in text)
    return _COMBINING_RUN.sub(r"\1", text)


def visible_lines(text: str) -> list[str]:
    """The lines of `text`, each made visible; tabs become spaces."""
    return [visible(line.expandtabs(4)) for line in re.split(r"\r\n|\r|\n", text)]


def _picture(char: str) -> str:
    code = ord(char)
    if code < 0x20:
        return chr(0x2400 + code)
    if code == 0x7F:
        return "␡"
    if unicodedata.category(char) == "Zs":
        return " "
    return "�"
