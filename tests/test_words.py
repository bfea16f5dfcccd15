"""Docstrings say what a thing is or does, in plain words."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[1]
_UNPLAIN = re.compile(r"Of\b|.*\b(told|whoever|goes round)\b", re.IGNORECASE)
"""A first line that can't be read without the name above it, or is in words of our own."""
_PERHAPS = re.compile(r'"""\s*(Of\b|[^\n]*\b(told|whoever|goes round)\b)', re.IGNORECASE)
"""In a file's text: where there is none, the file needs no parsing, which is what takes long."""


def _docstrings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and text of every docstring, those below fields and constants included."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            text = node.value.value
            if isinstance(text, str):
                yield node.lineno, text


@pytest.mark.parametrize("room", ["tbtui", "tests"])
def test_docstrings_are_plain_sentences(room: str) -> None:
    found = []
    for path in sorted((_ROOT / room).rglob("*.py")):
        source = path.read_text()
        if not _PERHAPS.search(source):
            continue
        for line, text in _docstrings(ast.parse(source)):
            first = text.strip().partition("\n")[0]
            if _UNPLAIN.match(first):
                found.append(f"{path.relative_to(_ROOT)}:{line}: {first}")
    assert not found, "\n".join(found)


def test_no_public_class_has_the_name_of_another() -> None:
    names = Counter(
        node.name
        for file in sorted((_ROOT / "tbtui").rglob("*.py"))
        for node in ast.parse(file.read_text("utf-8")).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    assert [name for name, count in names.items() if count > 1] == []
