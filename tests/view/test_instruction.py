"""What a task asks: found in a first prompt, and cut to a line."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tbtui.policies.local.renderer import harbor_directory, read_template
from tbtui.view.prompt import asks, instruction_in, named_files


def test_the_instruction_is_found_in_the_installed_agents_prompt() -> None:
    template = read_template(harbor_directory())
    text = "Write out.json.\n\nCurrent terminal state:\nis no heading here.\n"
    prompt = template.replace("{instruction}", text).replace("{terminal_state}", "$ ")
    assert instruction_in(prompt) == text.strip()
    assert instruction_in("New Terminal Output:\n$ ") == ""


@pytest.mark.parametrize(
    ("instruction", "line"),
    [
        ("Create out.json\nwith the sum.\n\nMore.", "Create out.json with the sum."),
        ("# Sums\n\nAdd the numbers.\n", "Add the numbers."),
        ("# Sums\n\n```\nx\n", "x"),
        ("# Sums\n", "Sums"),
        ("- first\n- second\n", "first second"),
        ("", ""),
    ],
)
def test_it_is_said_in_one_line(instruction: str, line: str) -> None:
    assert asks(instruction) == line


def test_files_are_named_without_their_directories() -> None:
    text = "Copy /app/data/in.csv to `/app/out.json`, e.g. in /app, in a directory named list."
    assert set(named_files(text)) == {"in.csv", "out.json", "list"}


@given(st.text())
def test_any_text_is_an_instruction(text: str) -> None:
    assert "\n" not in asks(text)
    named_files(text)
    instruction_in(f"Task Description:\n{text}")
