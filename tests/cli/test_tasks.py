"""`tbtui tasks`: bad input in one line; sets, fetching and trying on the command line."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tbtui.catalog.sets import TaskSet, save_set, sets_dir
from tbtui.cli import app
from tbtui.config import parse_settings
from tbtui.engines.prepare import prepare_run
from tbtui.engines.request import request_run
from tbtui.journal.events import TrialFinished
from tbtui.journal.reader import JournalReader
from tbtui.journal.rundir import RunDirectory
from tbtui.resources import tasks_dir
from tests.cli.process import tbtui


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))


@pytest.mark.parametrize(
    ("arguments", "status", "reason"),
    [
        (["browse"], 2, "needs a terminal"),
        (["sets", "none"], 2, "no set @none"),
        (["sets", "none", "--delete"], 2, "no set @none"),
        (["sets", "--delete"], 2, "--delete is of a set"),
        (["fetch"], 2, "name one data set"),
        (["fetch", "x", "--list"], 2, "name one data set"),
        (["fetch", "x", "--registry", "REGISTRY"], 2, "has no data set 'x'"),
        (["fetch", "x", "--registry", "none.json"], 1, "none.json can't be read"),
        (["list", "workshpo"], 2, "did you mean 'workshop'"),
        (["try", "copy-0"], 2, "no task 'copy-0' in starter, workshop; did you mean 'copy-0"),
        (["try", "workshop/copy-01"], 2, "no task 'copy-01'"),
        (["try", "copy-01", "eval_group_size=3"], 2, "eval_group_size: one trial of copy-01"),
        (["try", "copy-01", "tasks_dir=nosuch"], 2, "no data set is called 'nosuch'"),
        (["try", "copy-01", "max_steps=3"], 2, "max_steps: an evaluation takes no training"),
        (["try", "copy-01", "no-such-run"], 2, "no such run"),
        (["try", "~no-such-user/a"], 2, "no such user (~no-such-user)"),
    ],
)
def test_bad_input_is_refused_in_one_line(
    arguments: list[str], status: int, reason: str, tmp_path: Path
) -> None:
    registry = tmp_path / "registry.json"
    registry.write_text("[]")
    given = [argument.replace("REGISTRY", str(registry)) for argument in arguments]
    result = CliRunner().invoke(app, ["tasks", *given])
    assert result.exit_code == status, result.output
    assert reason in result.stderr
    assert result.stderr.startswith("tbtui: ")
    assert result.stderr.count("\n") == 1


def test_sets_are_listed_and_deleted() -> None:
    save_set(TaskSet("few", ("copy-01", "copy-02"), Path("/tasks")))
    listed = CliRunner().invoke(app, ["tasks", "sets"])
    assert listed.stdout == "@few     2 tasks  of /tasks\n"
    assert CliRunner().invoke(app, ["tasks", "sets", "@few"]).stdout == "copy-01\ncopy-02\n"
    broken = sets_dir() / "broken.toml"
    broken.write_text("[set")
    first, second = CliRunner().invoke(app, ["tasks", "sets"]).stdout.splitlines()
    assert first.startswith(f"@broken unreadable: {broken}: not TOML")
    assert second == "@few        2 tasks  of /tasks"
    for name in ("broken", "few"):
        deleted = CliRunner().invoke(app, ["tasks", "sets", name, "--delete"])
        assert (deleted.exit_code, deleted.stdout) == (0, f"@{name} is deleted\n"), deleted.stderr
    assert "no set is saved" in CliRunner().invoke(app, ["tasks", "sets"]).stdout


def test_a_registry_is_listed(tmp_path: Path) -> None:
    registry = tmp_path / "registry.json"
    sets = [{"name": "a", "version": "1", "description": "Some\x1b[2J\ntasks", "tasks": []}]
    registry.write_text(json.dumps(sets))
    listed = CliRunner().invoke(app, ["tasks", "fetch", "--list", "--registry", str(registry)])
    assert listed.stdout.splitlines() == [
        "a@1      0 tasks  Some␛[2J tasks",
        "1 data sets: tbtui tasks fetch NAME@VERSION",
    ]


def test_a_run_trains_on_a_saved_set(tmp_path: Path) -> None:
    save_set(TaskSet("few", ("copy-01", "copy-02", "copy-09")))
    settings = ["tasks_dir=starter", "tasks=@few,move-*", f"logs_dir={tmp_path}"]
    prepared = prepare_run(request_run(parse_settings(settings)))
    names = [task.name for task in prepared.split.train]
    assert names[:2] == ["copy-01", "copy-02"]
    assert {name.partition("-")[0] for name in names[2:]} == {"move"}
    assert prepared.split.refused == ("copy-09", "move-07", "move-08", "move-09")
    assert len(prepared.split.heldout) == 24
    assert prepared.tasks_dir == tasks_dir() / "starter"


def ends(run: RunDirectory) -> Sequence[TrialFinished]:
    reader = JournalReader(run)
    try:
        entries = reader.read_kinds(["trial_finished"], 0)
    finally:
        reader.close()
    return [entry.event for entry in entries if isinstance(entry.event, TrialFinished)]


@pytest.mark.slow
def test_a_solution_is_tried_by_hand(tmp_path: Path) -> None:
    tried = tbtui("tasks", "try", "log-triage", "--oracle", f"logs_dir={tmp_path}", "run_name=o")
    assert tried.returncode == 0, tried.stdout + tried.stderr
    assert "log-triage by its solution: solved, reward 1" in tried.stdout
    (end,) = ends(RunDirectory.open(tmp_path / "o"))
    assert (end.reward, end.turns) == (1.0, 0)


@pytest.mark.slow
def test_a_policy_is_tried_by_hand(tmp_path: Path) -> None:
    task = tasks_dir() / "starter" / "count-09"
    tried = tbtui("tasks", "try", str(task), f"logs_dir={tmp_path}", "run_name=p", "max_turns=2")
    assert tried.returncode == 0, tried.stdout + tried.stderr
    assert re.search(r"^count-09 by the starting weights: \w+, reward [01]$", tried.stdout, re.M)
    (end,) = ends(RunDirectory.open(tmp_path / "p"))
    assert end.turns in (1, 2)
