"""The browser's search line: words, and terms like `difficulty:hard pass:<.5 size:<1M`. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tbtui.ui.library import TaskEntry, TaskRecord

_SIZES = {"": 1, "k": 1e3, "m": 1e6, "g": 1e9}
_NUMBER = re.compile(r"(\d*\.?\d+)([kmg]?)b?")
_TERM = re.compile(r"(-?)([a-z]+):(.*)", re.IGNORECASE)

WORDS: Mapping[str, Callable[[TaskEntry], str]] = {
    "difficulty": lambda entry: entry.difficulty,
    "kind": lambda entry: entry.kind,
    "category": lambda entry: entry.kind,
    "dataset": lambda entry: entry.dataset,
}
NUMBERS: Mapping[str, Callable[[TaskEntry, TaskRecord], float | None]] = {
    "pass": lambda entry, record: record.pass_rate,
    "seconds": lambda entry, record: record.seconds,
    "size": lambda entry, record: entry.size,
    "tries": lambda entry, record: record.rollouts,
}
STATES = ("selected", "train", "heldout")
TERMS = (*WORDS, *NUMBERS, "is")


class QueryError(Exception):
    """The search line can't be read; one short line that says why."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A task, and all that a search may ask of it."""

    entry: TaskEntry
    record: TaskRecord
    selected: bool


Query = Callable[[Candidate], bool]


def parse_query(text: str) -> Query:
    """Whether a task is meant: by every part of the line. A `-` before a term turns it round.

    Raises:
        QueryError: a term has an unknown name, or a value that can't be read.
    """
    parts = [_part(part) for part in text.split()]
    return lambda candidate: all(part(candidate) for part in parts)


def _part(text: str) -> Query:
    term = _TERM.fullmatch(text)
    if term is None:
        wanted = text.lower()
        return lambda candidate: (
            wanted in candidate.entry.name.lower() or wanted in candidate.entry.summary.lower()
        )
    minus, name, value = term[1], term[2].lower(), term[3].lower()
    if name in TERMS and not value:
        return lambda candidate: True  # it is being written
    wanted_part = _term(name, value)
    if minus:
        return lambda candidate: not wanted_part(candidate)
    return wanted_part


def _term(name: str, value: str) -> Query:
    if name == "is":
        if value not in STATES:
            raise QueryError(f"is:{value}: there are {', '.join(STATES)}")
        if value == "selected":
            return lambda candidate: candidate.selected
        return lambda candidate: (candidate.entry.use == "train") == (value == "train")
    if name in WORDS:
        word = WORDS[name]
        return lambda candidate: word(candidate.entry).lower() == value
    if name in NUMBERS:
        return _range(name, value)
    raise QueryError(f"{name}: there is no such term; there are {', '.join(TERMS)}")


def _range(name: str, value: str) -> Query:
    """`<.5`, `>.5`, `.2-.8`, `.5`, or `none`: nothing known."""
    measure = NUMBERS[name]
    if value == "none":
        return lambda candidate: not measure(candidate.entry, candidate.record)
    low, high = -1.0, float("inf")
    start, dash, end = value.partition("-")
    if value.startswith("<"):
        high, inclusive = _number(name, value[1:]), False
    elif value.startswith(">"):
        low, inclusive = _number(name, value[1:]), False
    else:
        low, inclusive = _number(name, start), True
        high = _number(name, end) if dash else low

    def within(candidate: Candidate) -> bool:
        measured = measure(candidate.entry, candidate.record)
        if measured is None:
            return False
        return low <= measured <= high if inclusive else low < measured < high

    return within


def _number(name: str, text: str) -> float:
    found = _NUMBER.fullmatch(text)
    if found is None:
        raise QueryError(f"{name}:{text}: write {name}:<N, >N, N-M or none")
    return float(found[1]) * _SIZES[found[2]]


def with_term(text: str, name: str, value: str | None) -> str:
    """The line with the term `name` set to `value`, or without it (None)."""
    parts = [part for part in text.split() if not part.lower().startswith(f"{name}:")]
    return " ".join([*parts, f"{name}:{value}"] if value is not None else parts)


def term_value(text: str, name: str) -> str | None:
    """The value of the term `name` in the line, if it is there."""
    for part in text.split():
        if part.lower().startswith(f"{name}:"):
            return part[len(name) + 1 :]
    return None
