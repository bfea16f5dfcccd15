"""Finds the line of a key in a TOML file, so that a complaint can point at it.

`tomllib` keeps no positions. This reads headers and keys line by line; a value that spans lines
and happens to hold `key =` could mislead it, which costs a slightly wrong line number, no more.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_HEADER = re.compile(r"^\s*\[(\[)?\s*([^\[\]]+?)\s*\]\]?\s*(#.*)?$")
_KEY = re.compile(r"""^\s*((?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*')(?:\s*\.\s*[A-Za-z0-9_-]+)*)\s*=""")
_SYNTAX_LINE = re.compile(r"\(at line (\d+), column \d+\)")

Location = Sequence[str | int]


def _parts(dotted: str) -> tuple[str, ...]:
    return tuple(part.strip().strip("\"'") for part in dotted.split("."))


def _common(path: tuple[str | int, ...], wanted: tuple[str | int, ...]) -> int:
    """How many leading elements of `wanted` the whole of `path` covers; 0 if it leads elsewhere."""
    return len(path) if wanted[: len(path)] == path else 0


def line_of(text: str, location: Location) -> int | None:
    """Line (from 1) of the key at `location`, or of the nearest enclosing key or table."""
    wanted = tuple(location)
    table: tuple[str | int, ...] = ()
    arrays: dict[tuple[str, ...], int] = {}
    best, best_line = 0, None
    for number, line in enumerate(text.splitlines(), start=1):
        if header := _HEADER.match(line):
            names = _parts(header.group(2))
            table = names
            if header.group(1):
                arrays[names] = arrays.get(names, -1) + 1
                table = (*names, arrays[names])
            path: tuple[str | int, ...] = table
        elif key := _KEY.match(line):
            path = (*table, *_parts(key.group(1)))
        else:
            continue
        covered = _common(path, wanted)
        if covered > best:
            best, best_line = covered, number
    return best_line


def line_of_syntax_error(message: str) -> int | None:
    """Line that a `tomllib.TOMLDecodeError` names; None at the end of the file."""
    found = _SYNTAX_LINE.search(message)
    return int(found.group(1)) if found else None
