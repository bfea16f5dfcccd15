"""`tbtui tasks audit` and `tasks flakes` on tasks that can be cheated, or whose verdict changes."""

from __future__ import annotations

import json
import shutil
import signal
from pathlib import Path

import pytest

from tbtui.catalog import CatalogError
from tbtui.catalog.cheats import battery
from tbtui.catalog.quarantine import Quarantined, read_quarantine, write_quarantine
from tbtui.config import parse_settings
from tbtui.engines.prepare import prepare_run
from tbtui.engines.request import request_run
from tbtui.resources import tasks_dir
from tests.cli.process import invoke, started, tbtui
from tests.waiting import wait_until

STARTER = tasks_dir() / "starter"


def copies(place: Path, *names: str, test: dict[str, str] | None = None) -> Path:
    """Copies of starter tasks; `test`: texts of their test scripts to replace."""
    for name in names:
        shutil.copytree(STARTER / name, place / name)
        script = place / name / "tests" / "test.sh"
        text = script.read_text()
        for old, new in (test or {}).items():
            assert old in text
            text = text.replace(old, new)
        script.write_text(text)
    return place


@pytest.mark.slow
def test_an_audit_proves_each_pass(tmp_path: Path) -> None:
    """Others' tasks share a box with their agent: what trust.md says is possible there is found."""
    tasks = copies(tmp_path / "tasks", "copy-01")
    chosen = ("nothing", "interpreter", "rewritten-verdict", "hard-coded")
    result = tbtui(
        *("tasks", "audit", str(tasks), f"logs_dir={tmp_path / 'runs'}", "--json"),
        *(word for name in chosen for word in ("--cheat", name)),
    )
    assert result.returncode == 1, result.stderr
    document = json.loads(result.stdout)
    (task,) = document["tasks"]
    trials = {trial["variant"]: trial for trial in task["trials"]}
    assert task["solution"]
    assert not task["holds"]
    passed = {name for name, trial in trials.items() if trial["passed"]}
    # The process that rewrites the verdict races with its reader, and may lose on a full machine.
    races = {"rewritten-verdict", "impossible-rewritten-verdict"}
    assert passed - races == {"solution", "interpreter", "impossible-interpreter"}
    assert not trials["impossible"]["passed"]
    assert not trials["hard-coded"]["tried"]  # the instruction shows no example
    assert Path(trials["interpreter"]["recording"]).is_file()


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_saved_task_is_tried_anew(tmp_path: Path) -> None:
    task = copies(tmp_path / "tasks", "copy-01") / "copy-01"
    output = tmp_path / "out"
    words = (str(task), "--watch", "--attempts", "1", "--no-ui")
    with started(
        "tasks", "try", *words, "--", f"logs_dir={tmp_path / 'runs'}", output=output
    ) as process:
        wait_until(lambda: "waits for a file" in output.read_text())
        first = output.read_text()
        assert "copy-01: its solution passes" in first
        assert "the policy passes" in first
        script = task / "tests" / "test.sh"
        script.write_text(script.read_text().replace('echo 1 > "$reward"', 'echo 0 > "$reward"'))
        wait_until(lambda: output.read_text().count("waits for a file") == 2)
        assert "copy-01: its solution fails" in output.read_text()[len(first) :]
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130


@pytest.mark.slow
def test_a_weak_verifier_is_passed_by_nothing(tmp_path: Path) -> None:
    tasks = copies(tmp_path / "tasks", "copy-01", test={'echo 0 > "$reward"': 'echo 1 > "$reward"'})
    result = tbtui(
        *("tasks", "audit", str(tasks), f"logs_dir={tmp_path / 'runs'}", "--cheat", "nothing")
    )
    assert result.returncode == 1
    assert "nothing: Does nothing" in result.stdout
    assert "0 of 1 task holds: 1 cheat passed in 3 trials" in result.stdout
    assert "tbtui replay" in result.stdout


@pytest.mark.slow
def test_bundled_tasks_hold(tmp_path: Path) -> None:
    """A task of each data set; by hand all were tried: tbtui tasks audit starter, workshop."""
    for tasks, name in (("starter", "move-02"), ("workshop", "log-triage")):
        where = f"logs_dir={tmp_path / tasks}"
        result = tbtui("tasks", "audit", tasks, "--task", name, where, "--json")
        assert result.returncode == 0, result.stdout + result.stderr
        (task,) = json.loads(result.stdout)["tasks"]
        assert sum(trial["tried"] for trial in task["trials"]) >= 16


@pytest.mark.starves
@pytest.mark.slow
def test_a_verdict_that_changes_is_quarantined(tmp_path: Path) -> None:
    """It is drawn anew each time: that sixteen agree has a chance of one in 32,768."""
    tasks = copies(tmp_path / "tasks", "copy-01")
    copies(
        tasks,
        "create-01",
        test={'echo 1 > "$reward"': '((RANDOM % 2)) || fail "unlucky"; echo 1 > "$reward"'},
    )
    write_quarantine(tasks, {"copy-01": Quarantined(reason="was bad")})
    where = f"logs_dir={tmp_path / 'runs'}"
    result = tbtui("tasks", "flakes", str(tasks), "-n", "8", "--load", "2", where, "--json")
    assert result.returncode == 1, result.stderr
    by_name = {task["task"]: task for task in json.loads(result.stdout)["tasks"]}
    assert by_name["copy-01"]["fault"] is None
    assert by_name["copy-01"]["trials"]["solution"]["under load"]["passed"] == 8
    assert "its solution passes" in by_name["create-01"]["fault"]
    kept = read_quarantine(tasks)
    assert set(kept) == {"create-01"}
    assert kept["create-01"].evidence["nothing"]["alone"]["scored"] == 8
    settings = [f"tasks_dir={tasks}", where, "eval_split=0"]
    prepared = prepare_run(request_run(parse_settings(settings)))
    assert set(prepared.unusable) == {"create-01"}
    assert "quarantined: its solution passes" in prepared.unusable["create-01"].text
    used = prepare_run(request_run(parse_settings([*settings, "quarantine=ignore"])))
    assert not used.unusable


def test_a_quarantine_that_cant_be_read_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "quarantine.toml").write_text("[tasks.a]\nwhy = 3\n")
    with pytest.raises(CatalogError, match=r"quarantine.toml: .*reason.*; mend it, or remove it"):
        read_quarantine(tmp_path)


@pytest.mark.linux
def test_all_in_quarantine_is_refused(tmp_path: Path) -> None:
    tasks = copies(tmp_path / "tasks", "copy-01")
    write_quarantine(tasks, {"copy-01": Quarantined(reason="it changes")})
    result = invoke("eval", f"tasks_dir={tasks}", "eval_tasks=*", f"logs_dir={tmp_path / 'runs'}")
    assert result.exit_code == 2
    assert "quarantined: it changes" in result.stderr
    assert "quarantine=ignore" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["audit", "nosuch"], "no data set is called 'nosuch'"),
        (["audit", "starter", "--cheat", "interpretr"], "did you mean 'interpreter'"),
        (["audit", "starter", "--task", "copy-0"], "did you mean 'copy-0"),
        (["audit", "starter", "agent=oracle"], "agent: this command sets it itself"),
        (["flakes", "starter", "-n", "1"], "1 is not in the range"),
    ],
)
def test_bad_input_is_one_line(arguments: list[str], reason: str) -> None:
    result = invoke("tasks", *arguments)
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1), result.output
    assert reason in result.stderr


def test_each_cheat_says_what_it_does() -> None:
    cheats = battery()
    assert cheats[0].name == "nothing"
    assert len(cheats) >= 15
    for cheat in cheats:
        assert cheat.what[0].isupper(), cheat.name
        assert cheat.text.startswith("#!/bin/bash\n"), cheat.name
        script = cheat.script("Write /app/out.txt.\n```\n42 'quoted'\n```\n")
        assert not any(mark in script for mark in ("@OUTPUTS@", "@EXAMPLE@"))
