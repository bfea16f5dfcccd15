"""`tbtui tasks`: bad input in one line; sets, fetching and trying on the command line."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tbtui.catalog.sets import TaskSet, save_set, sets_dir
from tbtui.config import parse_settings
from tbtui.engines.prepare import prepare_run
from tbtui.engines.request import request_run
from tbtui.journal.events import TrialFinished
from tbtui.journal.rundir import RunDirectory, reserve
from tbtui.resources import tasks_dir
from tests.cli.process import invoke, tbtui
from tests.events import events_of
from tests.terminal import Terminal


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
        (["sets", "--delete"], 2, "--delete needs a set"),
        (["fetch"], 2, "name one data set"),
        (["fetch", "x", "--list"], 2, "name one data set"),
        (["fetch", "x", "--registry", "REGISTRY"], 2, "has no data set 'x'"),
        (["fetch", "x", "--registry", "none.json"], 1, "none.json can't be read"),
        (["list", "workshpo"], 2, "did you mean 'workshop'"),
        (["try", "copy-0"], 2, "no task 'copy-0' in starter, maze, workshop; did you mean 'copy-0"),
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
    result = invoke("tasks", *given)
    assert result.exit_code == status, result.output
    assert reason in result.stderr
    assert result.stderr.startswith("tbtui: ")
    assert result.stderr.count("\n") == 1


def held_out_task(where: Path, name: str = "copy-09", asks: str = "") -> Path:
    """A directory whose only task is one that is declared held out."""
    shutil.copytree(tasks_dir() / "starter" / "copy-09", where / name)
    if asks:
        (where / name / "instruction.md").write_text(asks)
    return where


def test_tasks_are_listed_a_line_each_and_uncut_where_nobody_looks(tmp_path: Path) -> None:
    asks = "Copy " + "every file " * 40 + "to /app/end"
    where = held_out_task(tmp_path / "mine", asks=f"# {asks}\n\nand no more")
    listed = invoke("tasks", "list", str(where))
    assert listed.exit_code == 0
    fields = ["mine", "copy-09", "heldout", "easy", "file-operations", asks]
    assert listed.stdout == "\t".join(fields) + "\n"
    assert listed.stderr == "1 task: 0 to train on, 1 held out\n"
    (document,) = json.loads(invoke("tasks", "list", "--json", str(where)).stdout)
    assert (document["name"], document["summary"]) == ("copy-09", asks)


@pytest.mark.parametrize("columns", [80, 160])
def test_on_a_terminal_what_a_task_asks_for_has_half_of_the_width(columns: int) -> None:
    screen = on_terminal("tasks", "list", columns=columns)
    head, *lines = screen.splitlines()
    assert "Copy the file" in screen
    assert head.index("asks") <= columns // 2
    assert ("difficulty" in head) == (columns == 160)
    assert max(map(len, lines)) <= columns


def on_terminal(*arguments: str, columns: int) -> str:
    """What `tbtui` prints on a terminal of so many columns."""
    with Terminal(sys.executable, "-m", "tbtui", *arguments, size=(columns, 24)) as terminal:
        assert terminal.ended() == 0, terminal.seen
    return re.sub(r"\x1b\[[0-9;]*m", "", terminal.seen.decode()).replace("\r\n", "\n")


def test_settings_are_looked_up_and_read_well_on_a_terminal() -> None:
    one = invoke("settings", "learning_rate").stdout
    assert one.startswith(
        "Learning\n  learning_rate=0.0002  (number above 0)\n    Peak learning rate of AdamW."
    )
    several = invoke("settings", "timeout").stdout
    assert {"sample_timeout_sec", "trial_timeout_sec"} < set(re.split(r"[\s=]", several))
    assert "learning_rate" not in several
    screen = on_terminal("settings", columns=80)
    assert "|---" not in screen
    assert "on_hangup=detach  (detach | stop)" in screen
    assert max(map(len, screen.splitlines())) <= 80


def test_sets_are_listed_and_deleted() -> None:
    save_set(TaskSet("few", ("copy-01", "copy-02"), Path("/tasks")))
    listed = invoke("tasks", "sets")
    assert listed.stdout == "@few     2 tasks  of /tasks\n"
    assert invoke("tasks", "sets", "@few").stdout == "copy-01\ncopy-02\n"
    broken = sets_dir() / "broken.toml"
    broken.write_text("[set")
    first, second = invoke("tasks", "sets").stdout.splitlines()
    assert first.startswith(f"@broken unreadable: {broken}: not TOML")
    assert second == "@few        2 tasks  of /tasks"
    for name in ("broken", "few"):
        deleted = invoke("tasks", "sets", name, "--delete")
        assert (deleted.exit_code, deleted.stdout) == (0, f"@{name} is deleted\n"), deleted.stderr
    assert "no set is saved" in invoke("tasks", "sets").stdout


def test_a_registry_is_listed(tmp_path: Path) -> None:
    registry = tmp_path / "registry.json"
    sets = [{"name": "a", "version": "1", "description": "Some\x1b[2J\ntasks", "tasks": []}]
    registry.write_text(json.dumps(sets))
    listed = invoke("tasks", "fetch", "--list", "--registry", str(registry))
    assert listed.stdout.splitlines() == [
        "a@1      0 tasks  Some␛[2J tasks",
        f"1 data set: tbtui tasks fetch NAME@VERSION --registry {registry}",
    ]


@pytest.mark.linux
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


@pytest.mark.slow
def test_a_solution_is_tried_by_hand(tmp_path: Path) -> None:
    tried = tbtui("tasks", "try", "log-triage", "--oracle", f"logs_dir={tmp_path}", "run_name=o")
    assert tried.returncode == 0, tried.stdout + tried.stderr
    assert "log-triage by the oracle: solved, reward 1" in tried.stdout
    (end,) = events_of(RunDirectory.open(tmp_path / "o"), TrialFinished)
    assert (end.reward, end.turns) == (1.0, 0)


@pytest.mark.slow
def test_of_a_task_in_a_directory_nothing_else_is_read_and_its_solution_s_best_is_no_failure(
    tmp_path: Path,
) -> None:
    where = held_out_task(tmp_path / "mine", "only")
    (where / "only" / "tests" / "test.sh").write_text(
        "#!/bin/bash\necho 0.8 > /logs/verifier/reward.txt\n"
    )
    (where / "broken").mkdir()
    (where / "broken" / "task.toml").write_text("[")
    tried = tbtui("tasks", "try", str(where / "only"), "--oracle", f"logs_dir={tmp_path / 'runs'}")
    assert tried.returncode == 0, tried.stdout + tried.stderr
    assert "only by the oracle: reward 0.8\n" in tried.stdout
    assert "warning" not in tried.stdout
    assert "broken" not in tried.stdout


@pytest.mark.slow
def test_a_policy_is_tried_by_hand(tmp_path: Path) -> None:
    task = tasks_dir() / "starter" / "count-09"
    tried = tbtui("tasks", "try", str(task), f"logs_dir={tmp_path}", "run_name=p", "max_turns=2")
    assert tried.returncode == 0, tried.stdout + tried.stderr
    assert re.search(r"^count-09 by the starting weights: \w+, reward [01]$", tried.stdout, re.M)
    (end,) = events_of(RunDirectory.open(tmp_path / "p"), TrialFinished)
    assert end.turns in (1, 2)


@pytest.mark.slow
def test_one_alone_is_tried_twice_at_once_and_its_solution_s_failure_shown(tmp_path: Path) -> None:
    where = held_out_task(tmp_path / "mine", "only")
    solution = where / "only" / "solution" / "solve.sh"
    solution.write_text("#!/bin/bash\necho begun\necho no such thing >&2\nexit 7\n")
    command = [sys.executable, "-m", "tbtui", "tasks", "try", str(where / "only"), "--oracle"]
    both = [
        subprocess.Popen(
            [*command, f"logs_dir={tmp_path / 'runs'}"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for _ in range(2)
    ]
    for process in both:
        said, _ = process.communicate(timeout=100)
        assert process.returncode == 0, said
        assert "only by the oracle: failed, reward 0" in said
        assert "  solution: exit status 7\n  solution: begun\n  solution: no such thing\n" in said
        assert "one trial, reward 0" in said
        assert "rollouts" not in said
        assert "pass rate" not in said
    assert len(list((tmp_path / "runs").iterdir())) == 2


def test_names_that_are_taken_are_passed_over(tmp_path: Path) -> None:
    assert [reserve(tmp_path / "runs", "r").name for _ in range(3)] == ["r", "r-2", "r-3"]
