"""`tbtui probe`: what it refuses at once, and real probes of the embedded model."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import signal
from collections import Counter
from pathlib import Path

import psutil
import pytest

from tbtui.commands.probe import NOT_AS_IT_IS, probe
from tbtui.journal.events import (
    EvalFinished,
    Noted,
    ProbeMeasured,
    ProbeStarted,
    RunFinished,
    TrialFinished,
    TrialQueued,
)
from tbtui.journal.rundir import RunDirectory
from tbtui.resources import tasks_dir
from tests.cli.process import started, tbtui
from tests.events import events_of
from tests.waiting import wait_until


@pytest.fixture
def tasks(tmp_path: Path) -> Path:
    """Four training tasks of two kinds, and a held-out one."""
    place = tmp_path / "tasks"
    for name in ("mkdir-01", "mkdir-02", "remove-01", "remove-02", "mkdir-07"):
        shutil.copytree(tasks_dir() / "starter" / name, place / name)
    return place


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["HERE"], "there is no config.json in it; name a directory with config.json"),
        (["HERE/file"], "a file is no model; give a directory"),
        (["nosuch"], "the embedded policy has two models"),
        (["starter", "NONE"], "does not exist"),
        (["seed=1", "starter"], "the model and its tasks come before the settings"),
        (["max_steps=3"], "max_steps: an evaluation takes no training steps"),
        (["probe=terminus-2"], "write AGENT@TEMPERATURE, as in terminus-2@0.7"),
        (["probe=terminus-2@0"], "the temperature should be above 0"),
        (["/nowhere/model"], "model_name=/nowhere/model: there is no such directory"),
        (["probe=terminus-3@1"], "did you mean terminus-2?"),
        (["probe=oracle@1"], "it asks no model"),
        (["probe_tasks=0"], "should be a whole number of at least 1"),
        (["TASKS", "budget.rollouts=3"], "takes 8; give as many, or probe_tasks=1"),
        (["TASKS", "budget.rollouts=1"], "one trial of each of 4 tasks in each of 2 arms takes 8"),
        (["TASKS", "budget.minutes=3"], "budget.minutes: no run counts that"),
    ],
)  # fmt: skip
def test_bad_input_is_refused_in_one_line(
    arguments: list[str],
    reason: str,
    tasks: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "file").touch()
    places = {"HERE": str(tmp_path / "here"), "TASKS": f"tasks_dir={tasks}", "NONE": "/nowhere"}
    given = [re.sub("HERE|TASKS|NONE", lambda found: places[found[0]], text) for text in arguments]
    logs = tmp_path / "runs"
    assert probe([*given, f"logs_dir={logs}"], "lines") == 2
    told = capsys.readouterr()
    assert told.out == ""
    *plan, refused = told.err.splitlines()
    assert reason in refused
    assert all(line.startswith("tbtui: probe of ") for line in plan)
    assert not logs.exists()


@pytest.mark.slow
def test_a_probe_of_the_embedded_model(tasks: Path, tmp_path: Path) -> None:
    settings = (
        f"logs_dir={tmp_path / 'runs'}",
        "probe_tasks=2",
        "eval_group_size=2",
        "n_workers=1",
    )
    shown = tbtui("probe", "starter", str(tasks), "--no-ui", "run_name=p", *settings)
    assert shown.returncode in (0, NOT_AS_IT_IS), shown.stdout + shown.stderr
    assert (
        "up to 8 trials, 2 of each of 2 tasks with terminus-2@1 and terminus-2@0.7" in shown.stderr
    )
    assert "budget: time 15m00s" in shown.stderr
    run = RunDirectory.open(tmp_path / "runs" / "p")
    (begun,) = events_of(run, ProbeStarted)
    first, last = events_of(run, ProbeMeasured)
    assert {name.partition("-")[0] for name in begun.tasks} == {"mkdir", "remove"}
    assert "mkdir-07" not in begun.tasks, "it is held out"
    assert not events_of(run, EvalFinished)
    queued = {each.trial: each for each in events_of(run, TrialQueued)}
    assert Counter(each.purpose for each in queued.values()) == {"probe": 8}
    assert len({each.label for each in queued.values()}) == 8, "a label names one trial"
    rewards = [end.reward for end in events_of(run, TrialFinished)]
    assert [arm.trials for arm in first.arms] == [2, 2]
    assert [arm.trials for arm in last.arms] == [4, 4]
    assert sum(arm.pass_at[1].value * arm.scored for arm in last.arms) == sum(map(bool, rewards))
    assert all(arm.readable == arm.answers > 0 for arm in last.arms), "it is made for the agent"
    assert (first.stopped, last.stopped) == ("", "all trials are over")
    assert last.tokens_per_sec and last.memory_mb

    # The table, the verdict, and a command that is one.
    assert re.search(r"^terminus-2@0.7 +4 +100% +0% +\d?\.\d\d ", shown.stdout, re.M)
    assert max(map(len, shown.stdout[shown.stdout.index("arm ") :].splitlines()[:5])) <= 80
    verdict = re.search(r"^verdict: (.*)$", shown.stdout, re.M)
    (end,) = events_of(run, RunFinished)
    assert verdict and verdict[1] == end.reason
    command = re.search(r"^next: (.*)$", shown.stdout, re.M)
    assert command
    words = shlex.split(command[1])
    words = words[words.index("tbtui") + 1 :]
    printed = tbtui(*words, "--print-config" if words[0] == "run" else "--help")
    assert printed.returncode == 0, printed.stderr

    # A run is no probe, and a probe does not go on.
    refused = tbtui("run", "--resume", str(run.path), "--no-ui")
    assert (refused.returncode, "p is a probe" in refused.stderr) == (2, True)


@pytest.mark.slow
def test_a_probe_as_a_document(tasks: Path, tmp_path: Path) -> None:
    """And a budget of trials, which ends it before its last round."""
    settings = (
        f"logs_dir={tmp_path / 'runs'}",
        "probe_tasks=2",
        "eval_group_size=3",
        "n_workers=1",
    )
    asked = ("probe=terminus-2@0.5", "budget.rollouts=5", "max_turns=1")
    printed = tbtui("probe", f"tasks_dir={tasks}", "--json", *settings, *asked)
    document = json.loads(printed.stdout)
    assert printed.returncode == (0 if document["goes"] else NOT_AS_IT_IS)
    assert document["record"] == "probe"
    assert document["rounds"] == 2
    assert "4 rollouts spent of 5 rollouts" in document["stopped"]
    (arm,) = document["arms"]
    assert (arm["agent"], arm["temperature"], arm["trials"]) == ("terminus-2", 0.5, 4)
    assert arm["signal_size"] == 2
    assert set(arm["pass_at"]) == {"1", "2"}
    assert document["spent"]["rollouts"] == 4
    assert document["why"] and document["command"]
    # Nothing else was asked for: what it runs next says nothing of the probe.
    assert not {"probe_tasks", "budget.rollouts", "eval_group_size"} & {
        word.partition("=")[0] for word in shlex.split(document["command"])
    }


@pytest.mark.slow
def test_nothing_goes_on_where_a_probe_is_killed(tasks: Path, tmp_path: Path) -> None:
    output, runs = tmp_path / "output.txt", tmp_path / "runs"
    arguments = ("probe", "--no-ui", f"tasks_dir={tasks}", f"logs_dir={runs}", "run_name=k")
    with started(*arguments, output=output) as process:
        own = psutil.Process(process.pid)
        wait_until(lambda: (runs / "k" / "run.db").exists())
        run = RunDirectory.open(runs / "k")
        wait_until(lambda: bool(events_of(run, TrialQueued)))
        family = [own, *own.children(recursive=True)]
        process.send_signal(signal.SIGKILL)
        process.wait()
        wait_until(lambda: not any(map(_runs, family)))
    again = tbtui(*arguments)
    assert again.returncode == 2
    assert "a run is already there" in again.stderr


def _runs(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.mark.slow
def test_a_run_that_solves_nothing_offers_a_probe(tasks: Path, tmp_path: Path) -> None:
    """With one turn and four tokens no task can be solved."""
    settings = (f"tasks_dir={tasks}", "max_turns=1", "max_tokens=4", "max_steps=1", "batch_size=1")
    ended = tbtui(
        *("run", "--no-ui", f"logs_dir={tmp_path / 'runs'}", "run_name=r", "group_size=2"),
        *settings,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    (offer,) = [
        note.text
        for note in events_of(RunDirectory.open(tmp_path / "runs" / "r"), Noted)
        if "tbtui probe" in note.text
    ]
    assert offer.startswith("none of 1 held-out trials solved its task")
    assert "max_steps" not in offer
    assert "max_tokens=4" in offer
    assert offer in ended.stdout
