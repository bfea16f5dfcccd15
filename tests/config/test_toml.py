"""TOML is written as it was read, and nothing in it is obeyed by a terminal."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest

from tbtui.config.toml import toml_text


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"a": {}, "b": {"c": {}}, "d": {"e": {"f": 1}}},
        {"a": [{"b": [{"c": 1}, {}]}, {"d": {"e": [1, 2]}}], "f": []},
        {"text": '"\\\n\t\x7f\x00 é 😀', "a key": {"an.other": 1}, "": 0},
        {"numbers": [1e-05, float("inf"), -3, True], "mixed": [1, {"a": {"b": []}}, [{}]]},
    ],
)
def test_any_toml_is_written_as_it_was_read(document: dict[str, Any]) -> None:
    assert tomllib.loads(toml_text(document)) == document


def test_what_a_terminal_might_obey_is_escaped() -> None:
    text = toml_text({"a\u202eb": ["\x9b2J", {"c": "\u2028"}]})
    assert all(each.isprintable() for each in text.splitlines())
    assert tomllib.loads(text) == {"a\u202eb": ["\x9b2J", {"c": "\u2028"}]}


def test_no_value_is_no_toml() -> None:
    with pytest.raises(TypeError, match="NoneType"):
        toml_text({"a": None})
