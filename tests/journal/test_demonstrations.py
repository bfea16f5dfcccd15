"""Demonstrations on disk: keys as commands, answers as text and back, decisions, bad files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tbtui.chat import Message
from tbtui.journal.commands import Typed
from tbtui.journal.demonstrations import (
    DemonstratedAnswer,
    Demonstration,
    DemonstrationError,
    Demonstrations,
    answer_text,
    commands_of,
    read_answer,
)
from tbtui.journal.events import AgentCommand
from tbtui.journal.rundir import RunDirectory


def typed(*parts: str) -> list[Typed]:
    """Text, and keys in brackets."""
    return [
        Typed("key", part[1:-1]) if part.startswith("<") else Typed("text", part) for part in parts
    ]


@pytest.mark.parametrize(
    ("parts", "keystrokes"),
    [
        (["ls", "<Enter>"], ["ls\n"]),
        (["l", "s", "<Space>", "-l", "<Enter>", "pwd", "<Enter>"], ["ls -l\n", "pwd\n"]),
        (["lx", "<BSpace>", "s", "<Enter>"], ["ls\n"]),
        (["rm -rf /", "<C-u>", "ls", "<Enter>"], ["ls\n"]),
        (["top", "<Enter>", "q"], ["top\n", "q"]),
        (["sleep 9", "<Enter>", "<C-c>"], ["sleep 9\n", "C-c"]),
        (["gi", "<Tab>", "<Enter>"], ["gi", "Tab", "\n"]),
        (["<BSpace>"], ["BSpace"]),
        ([], []),
    ],
)
def test_what_is_typed_as_commands(parts: list[str], keystrokes: list[str]) -> None:
    assert [each.keystrokes for each in commands_of(typed(*parts))] == keystrokes


answers = st.builds(
    DemonstratedAnswer,
    analysis=st.text(max_size=20),
    plan=st.text(max_size=20),
    commands=st.lists(
        st.builds(
            AgentCommand,
            keystrokes=st.text(max_size=20),
            duration_sec=st.floats(0, 100, allow_nan=False),
        ),
        max_size=3,
    ).map(tuple),
    task_complete=st.booleans(),
)


@given(answer=answers, compact=st.booleans())
def test_an_answer_is_read_as_it_was_written(answer: DemonstratedAnswer, compact: bool) -> None:
    assert read_answer(answer_text(answer, compact=compact)) == answer


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "no JSON"),
        ("[]", "no JSON object"),
        ('{"plan": "x"}', '"commands" is missing'),
        ('{"commands": [], "thought": ""}', "unknown: thought"),
        ('{"commands": [{"keys": "ls"}]}', "is no command like"),
        ('{"commands": [{"keystrokes": "ls", "duration": -1}]}', "is no command like"),
        ('{"commands": [], "plan": 3}', "plan is no text"),
    ],
)
def test_an_answer_that_is_none(text: str, why: str) -> None:
    with pytest.raises(DemonstrationError) as caught:
        read_answer(text)
    assert why in str(caught.value)
    assert "\n" not in str(caught.value)


def demonstration(trial: str = "s0001-copy-03-1", turn: int = 1) -> Demonstration:
    return Demonstration(
        trial=trial,
        task="copy-03",
        turn=turn,
        step=1,
        actor="ada",
        time=turn,
        messages=(Message(role="user", content="copy it"),),
        prompt_ids=(1, 2),
        tokenizer=None,
        answer=DemonstratedAnswer(commands=(AgentCommand(keystrokes="ls\n", duration_sec=0.1),)),
    )


def test_found_and_decided_upon(tmp_path: Path) -> None:
    files = Demonstrations(RunDirectory(tmp_path))
    assert files.all() == []
    with pytest.raises(DemonstrationError, match="no demonstrations"):
        files.find("s")
    for turn in (2, 1):
        files.write(demonstration(turn=turn))
    assert [each.turn for each in files.all()] == [1, 2]
    with pytest.raises(DemonstrationError, match="several demonstrations begin so"):
        files.find("s0001")
    with pytest.raises(DemonstrationError, match="no such demonstration"):
        files.find("s0002")
    found = files.find("s0001-copy-03-1-t2")
    files.write(found.reviewed("accepted", "bob", DemonstratedAnswer(plan="better")))
    again = files.find("s0001-copy-03-1-t2")
    assert (again.status, again.answer.plan) == ("accepted", "better")
    assert [(each.actor, each.status, each.edited) for each in again.reviews] == [
        ("bob", "accepted", True)
    ]


def test_a_file_that_is_none(tmp_path: Path) -> None:
    files = Demonstrations(RunDirectory(tmp_path))
    files.write(demonstration())
    (file,) = files.directory.iterdir()
    content = json.loads(file.read_text())
    file.write_text("{")
    with pytest.raises(DemonstrationError, match="no demonstration"):
        files.all()
    file.write_text(json.dumps({**content, "trial": "../../x"}))
    with pytest.raises(DemonstrationError, match="a file has the name of its trial"):
        files.all()
    file.unlink()
    file.symlink_to("/dev/zero")
    with pytest.raises(DemonstrationError):
        files.all()
