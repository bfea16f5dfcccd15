"""Compares two screens of a terminal, apart from what differs whenever the same keys are typed.

Times, process ids and the like are put in one form by rule; what differs beyond that differs.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass

_LONGEST_LINE = 60
"""Characters of a line that a difference shows."""


@dataclass(frozen=True, slots=True)
class ScreenRule:
    """What is put in one form, by name."""

    name: str
    pattern: re.Pattern[str]
    form: str


def _rule(name: str, pattern: str, form: str) -> ScreenRule:
    return ScreenRule(name, re.compile(pattern), form)


_MONTH = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)"
_DAY = r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)"
RULES: Sequence[ScreenRule] = (
    _rule("heading", r"\A(?:New Terminal Output|Current Terminal Screen):\n", ""),
    _rule(
        "date",
        r"\b\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?)?(?:Z|[+-]\d{4})?\b",
        "‹date›",
    ),
    _rule(
        "date",
        rf"(?:\b{_DAY},? )?\b{_MONTH} +\d{{1,2}},? +(?:\d\d:\d\d(?::\d\d)?|\d{{4}})"
        r"(?: [A-Z]{3,4})?(?: \d{4})?",
        "‹date›",
    ),
    _rule("date", rf"\b(?:{_DAY},? )?\d{{1,2}} {_MONTH} \d{{4}}\b", "‹date›"),
    _rule("time", r"\b\d{1,2}:\d\d(?::\d\d(?:[.,]\d+)?)?\b", "‹time›"),
    _rule("duration", r"\b\d+m\d+[.,]\d+s\b", "‹seconds›"),
    _rule("duration", r"\b\d+(?:[.,]\d+)? ?(?:ns|us|µs|ms|s|secs?|seconds?)\b", "‹seconds›"),
    _rule("rate", r"\b\d+(?:[.,]\d+)? ?(?:[kKMG]i?B/s|[kKMG]?bit/s|it/s)", "‹rate›"),
    _rule("job", r"(?m)^\[(\d+)\] \d+$", r"[\1] ‹pid›"),
    _rule("pid", r"(?i)\b(pid|process|PPID)([ =:#]+)\d+\b", r"\1\2‹pid›"),
    _rule("pid", r"(?m)^( *[a-z_][\w+-]* +)\d+(?= +\d+\.\d +\d+\.\d )", r"\1‹pid›"),
    _rule("pid", r"(?m)^ *\d+ (?=(?:pts/\d+|\?|tty\d+) )", "‹pid› "),
    _rule("address", r"\b0x[0-9a-f]{6,16}\b", "‹address›"),
    _rule("temporary", r"/tmp/tmp[\w.]+", "/tmp/‹name›"),
    # A container's name is in its prompt.
    _rule("prompt", r"\b([a-z_][\w-]*)@[0-9a-f]{12}:", r"\1@‹host›:"),
)


def normalised(screen: str) -> str:
    """A screen as it is compared: by the rules, without blanks at line ends or empty last lines."""
    text = screen
    for rule in RULES:
        text = rule.pattern.sub(rule.form, text)
    # A column of numbers is as wide as its widest number.
    lines = [re.sub(r" {2,}", "  ", line.rstrip()) for line in text.split("\n")]
    return "\n".join(lines).strip("\n")


def difference(recorded: str, now: str) -> str:
    """Where two screens part, one line; empty: nowhere, but for what the rules put in one form."""
    was, has = normalised(recorded).split("\n"), normalised(now).split("\n")
    if was == has:
        return ""
    matcher = difflib.SequenceMatcher(None, was, has, autojunk=False)
    for kind, first, last, begin, end in matcher.get_opcodes():
        if kind != "equal":
            before = _shown(was[first:last])
            return f"{before} was recorded, {_shown(has[begin:end])} is there"
    return ""


def shown_of(recorded: str, now: str) -> str | None:
    """The part of `now` that `recorded` had shown, which was looked at earlier; None: it is no
    beginning of it.

    Both are new output, as the agent is shown it.
    """
    was, has = recorded.split("\n", 1), now.split("\n", 1)
    if len(was) < 2 or len(has) < 2 or not was[0] == has[0] == "New Terminal Output:":
        return None
    lines = was[1].rstrip().split("\n")
    shown = has[1].split("\n")[: len(lines)]
    if not lines[-1].strip() or len(shown) < len(lines):
        return None
    if shown[-1].startswith(lines[-1]):
        shown[-1] = lines[-1]
    part = "\n".join(shown)
    return None if difference(was[1], part) else part


def _shown(lines: Sequence[str]) -> str:
    line = next((each for each in lines if each.strip()), "").strip()
    if not line:
        return "an empty line" if lines else "nothing"
    return repr(line if len(line) <= _LONGEST_LINE else f"{line[:_LONGEST_LINE]}…")
