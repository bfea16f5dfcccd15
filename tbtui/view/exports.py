"""The forms in which a trial can be given to others."""

from __future__ import annotations

import re
from typing import Literal

ExportFormat = Literal["cast", "atif", "jsonl", "html"]

ENDINGS: dict[ExportFormat, str] = {
    "cast": ".cast",
    "atif": ".trajectory.json",
    "jsonl": ".jsonl",
    "html": ".html",
}

MEANINGS: dict[ExportFormat, str] = {
    "cast": "the terminal, for asciinema players (asciicast v2)",
    "atif": "the trajectory, as Harbor writes it (ATIF)",
    "jsonl": "a line a model call, with its tokens",
    "html": "a page to read: turns, terminal, tokens, verdict",
}


def file_name(trial: str, format: ExportFormat) -> str:
    """What to call the file of a trial: nothing in it that a file system or shell minds."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", trial).strip("-.") + ENDINGS[format]
