"""`tbtui runs`, `runs search`, `compare` and `replay` as a person meets them on the console."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tbtui.cli import app
from tbtui.journal.events import RunFinished, StepFinished, TurnObserved
from tbtui.journal.rundir import RunDirectory
from tbtui.journal.writer import JournalWriter
from tests.events import damage, run_started, trial_finished, trial_queued


def write(path: Path, reward: float, seed: int) -> None:
    with JournalWriter(RunDirectory.create(path)) as writer:
        writer.append(run_started(run=path.name, settings={"seed": seed}))
        for number in (1, 2):
            name = f"trial-{number}"
            writer.append(trial_queued(name, label=f"copy-01/{number}"))
            writer.append(TurnObserved(trial=name, turn=1, observation="\x1b[1msaw", seconds=1))
            writer.append(trial_finished(name, reward))
        writer.append(StepFinished(step=1, weights_version=1, metrics={}))
        writer.append(RunFinished(status="finished", reason="done"))


@pytest.fixture
def console(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CliRunner:
    """In a directory with two runs."""
    write(tmp_path / "runs" / "first", 0.0, seed=1)
    write(tmp_path / "runs" / "second", 1.0, seed=2)
    monkeypatch.chdir(tmp_path)
    return CliRunner()


def test_runs_as_a_table_and_as_json(console: CliRunner, tmp_path: Path) -> None:
    table = console.invoke(app, ["runs"])
    assert table.exit_code == 0
    assert all(name in table.stdout for name in ("first", "second", "finished"))
    rows = json.loads(console.invoke(app, ["runs", "--json"]).stdout)
    assert [row["run"] for row in rows] == ["second", "first"]
    assert (rows[0]["state"], rows[0]["rollouts"]) == ("finished", 2)
    nothing = console.invoke(app, ["runs", "--logs-dir", str(tmp_path / "nowhere")])
    assert nothing.exit_code == 0
    assert "no run in" in nothing.stdout


def test_a_text_is_found_and_shown_without_its_escapes(console: CliRunner) -> None:
    found = console.invoke(app, ["runs", "search", "SAW", "first"])
    assert found.exit_code == 0
    assert found.stdout.count("copy-01/") == 2
    assert found.stdout.count(", saw: saw\n") == 2
    assert not {"\x1b", "␛"} & set(found.stdout)
    lines = console.invoke(app, ["runs", "search", "saw", "--json"]).stdout.splitlines()
    assert {json.loads(line)["run"] for line in lines} == {"first", "second"}
    assert console.invoke(app, ["runs", "search", "elsewhere"]).exit_code == 1


def test_a_search_looks_in_every_directory_that_is_named(
    console: CliRunner, tmp_path: Path
) -> None:
    write(tmp_path / "others" / "third", 0.0, seed=3)
    asked = ["runs", "--logs-dir", str(tmp_path / "others"), "--json", "search", "saw"]
    lines = console.invoke(app, asked).stdout.splitlines()
    assert [json.loads(line)["run"] for line in lines] == ["third", "third"]
    places = ("--logs-dir", str(tmp_path / "runs"), "--logs-dir", str(tmp_path / "others"))
    named = console.invoke(app, ["runs", "search", "saw", "third", *places])
    assert (named.exit_code, named.stdout.count("copy-01/")) == (0, 2)
    nowhere = console.invoke(app, ["runs", "search", "saw", "thirt", *places])
    assert "did you mean 'third'?" in nowhere.stderr


def test_two_runs_are_compared(console: CliRunner) -> None:
    compared = json.loads(console.invoke(app, ["compare", "first", "second", "--json"]).stdout)
    assert compared["settings"] == [{"name": "seed", "first": 1, "second": 2}]
    assert compared["tasks"][0]["change"] == 1.0
    table = console.invoke(app, ["compare", "first", "second"])
    assert table.exit_code == 0
    assert "+1.00" in table.stdout


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["replay", "frist"], "did you mean 'first'?"),
        (["replay", "first", "copy-02"], "no such trial in first"),
        (
            ["replay", "first", "copy-01"],
            "2 trials are called so; write which: trial-1 (copy-01/1, step 1)",
        ),
        (["replay", "first"], "replay needs a terminal"),
        (["compare", "first", "nothing-like-it"], "no such run"),
        (["runs", "search", "saw", "frist"], "did you mean 'first'?"),
        (["runs", "search", " "], "write what to look for"),
    ],
)
def test_bad_input_is_one_line(console: CliRunner, arguments: list[str], says: str) -> None:
    result = console.invoke(app, arguments)
    assert result.exit_code == 2
    assert says in result.stderr
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("path", "says"),
    [("~no-such-user/r", "no such user"), ("n" * 300, "File name too long")],
    ids=["user", "long"],
)
def test_what_is_no_path_is_one_line(path: str, says: str) -> None:
    of_a_run = ("replay", "whatif", "export", "eval", "ctl run show", "attach", "serve", "diagnose")
    for command in (*of_a_run, "run --no-ui --resume", "runs --logs-dir"):
        result = CliRunner().invoke(app, [*command.split(), path])
        assert result.exit_code == 2, command
        assert says in result.stderr, command
        assert len(result.stderr.splitlines()) == 1, command


def test_a_damaged_run_is_one_line(console: CliRunner, tmp_path: Path) -> None:
    damage(RunDirectory(tmp_path / "runs" / "second"))
    for command in ("whatif", "compare first", "runs search saw", "export", "ctl run show"):
        result = console.invoke(app, [*command.split(), "second"])
        assert result.exit_code == 2, command
        assert "second/run.db: can't be read (database disk image is malformed)" in result.stderr
        assert len(result.stderr.splitlines()) == 1, command


def test_a_damaged_run_hides_no_other(
    console: CliRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    damage(RunDirectory(tmp_path / "runs" / "second"))
    rows = json.loads(console.invoke(app, ["ctl", "run", "list", "--ended", "--json"]).stdout)
    assert [(row["run"], row["status"]) for row in rows["runs"]] == [
        ("first", "finished"),
        ("second", "unreadable"),
    ]
    assert "malformed" in rows["runs"][1]["reason"]
    assert rows["runs"][0].keys() == rows["runs"][1].keys()
    table = console.invoke(app, ["ctl", "run", "list", "--ended"]).stdout.splitlines()
    assert [line.split()[:2] for line in table[1:]] == [
        ["first", "finished"],
        ["second", "unreadable"],
    ]
    found = console.invoke(app, ["runs", "search", "saw"])
    assert found.exit_code == 0
    assert "first" in found.stdout
    assert "second/run.db: can't be read" in found.stderr
