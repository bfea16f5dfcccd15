"""`tbtui demos`: listed, shown, decided upon, edited and exported; bad input is one line."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tbtui.journal.demonstrations import Demonstrations
from tbtui.journal.rundir import RunDirectory
from tests.cli.process import invoke
from tests.journal.test_demonstrations import demonstration
from tests.ui.opening import run_at

EDITED = '{"analysis": "a", "plan": "p", "commands": [{"keystrokes": "pwd\\n"}]}'


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    run = run_at(tmp_path / "run", 20.0)
    for turn in (1, 2):
        Demonstrations(run).write(demonstration(turn=turn))
    return run


def test_listed_shown_accepted_dropped_and_exported(run: RunDirectory, tmp_path: Path) -> None:
    at = str(run.path)
    listed = invoke("demos", "list", at)
    assert listed.stdout.splitlines()[0].split() == [
        "pending", "s0001-copy-03-1-t1", "copy-03", "ls",
    ]  # fmt: skip
    refused = invoke("demos", "export", at)
    assert (refused.exit_code, refused.stderr.count("\n")) == (2, 1)
    assert "of 2 demonstrations none is accepted" in refused.stderr
    assert invoke("demos", "accept", at, "s0001-copy-03-1-t1").exit_code == 0
    assert invoke("demos", "drop", at, "s0001-copy-03-1-t2").exit_code == 0
    rows = json.loads(invoke("demos", "list", at, "--json").stdout)
    assert [row["status"] for row in rows] == ["accepted", "dropped"]
    shown = invoke("demos", "show", at, "s0001-copy-03-1-t1").stdout
    assert {"-- asked --", "copy it", '      "keystrokes": "ls\\n",'} <= {*shown.splitlines()}
    file = tmp_path / "demos.jsonl"
    assert invoke("demos", "export", at, str(file)).exit_code == 0
    (line,) = map(json.loads, file.read_text().splitlines())
    assert [message["role"] for message in line["messages"]] == ["user", "assistant"]
    assert json.loads(line["messages"][1]["content"])["commands"][0]["keystrokes"] == "ls\n"


def test_edited_in_an_editor_and_by_a_file(
    run: RunDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at, name = str(run.path), "s0001-copy-03-1-t1"
    editor = tmp_path / "editor.py"
    editor.write_text(f"import sys, pathlib\npathlib.Path(sys.argv[1]).write_text({EDITED!r})\n")
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.setenv("EDITOR", f"{sys.executable} {editor}")
    done = invoke("demos", "edit", at, name)
    assert done.stdout == f"{name}: edited; pending\n"
    assert Demonstrations(run).find(name).answer.commands[0].keystrokes == "pwd\n"
    monkeypatch.setenv("EDITOR", "false")
    failed = invoke("demos", "edit", at, name)
    assert (failed.exit_code, "ended with 1" in failed.stderr) == (2, True)
    monkeypatch.setenv("EDITOR", "/no/such/editor")
    assert "set it to your editor" in invoke("demos", "edit", at, name).stderr
    answer = tmp_path / "answer.json"
    answer.write_text("{")
    refused = invoke("demos", "accept", at, name, "--answer", str(answer))
    assert (refused.exit_code, refused.stderr.count("\n")) == (2, 1)
    assert "no JSON" in refused.stderr
    answer.write_text(EDITED.replace("pwd", "id"))
    assert invoke("demos", "accept", at, name, "--answer", str(answer)).exit_code == 0
    found = Demonstrations(run).find(name)
    assert (found.status, found.answer.commands[0].keystrokes) == ("accepted", "id\n")


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["list", "nosuch"], "nosuch: no such run"),
        (["show", "RUN", "x"], "x: no such demonstration: s0001-copy-03-1-t1"),
        (["accept", "RUN", "s0001"], "several demonstrations begin so"),
        (["drop", "RUN", "s0001-copy-03-1-t1", "y"], "y: no such demonstration"),
        (["export", "RUN", "/proc/x.jsonl", "--all"], "/proc/x.jsonl: can't be written ("),
    ],
)
def test_bad_input_is_one_line_and_changes_nothing(
    run: RunDirectory, arguments: list[str], why: str
) -> None:
    done = invoke("demos", *(str(run.path) if word == "RUN" else word for word in arguments))
    assert (done.exit_code, done.stderr.count("\n")) == (2, 1)
    assert why in done.stderr
    assert {each.status for each in Demonstrations(run).all()} == {"pending"}
