"""`tbtui eval`: what it refuses at once, and a real run whose checkpoints it evaluates."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from tbtui.commands.evaluate import evaluate
from tbtui.engines.grpo.checkpoint_state import best, latest
from tbtui.journal.events import CheckpointSaved, EvalFinished, RunStarted, StepStarted
from tbtui.journal.rundir import RunDirectory
from tbtui.journal.writer import JournalWriter
from tbtui.resources import tasks_dir
from tests.cli.process import tbtui
from tests.events import events_of


@pytest.fixture
def empty_run(tmp_path: Path) -> RunDirectory:
    """A run that was killed before its first checkpoint."""
    run = RunDirectory.create(tmp_path / "runs" / "short")
    JournalWriter(run).close()
    return run


@pytest.mark.parametrize(
    ("arguments", "use_latest", "reason"),
    [
        (["nosuch"], False, "nosuch: no such run, here or in"),
        (["shrot"], False, "did you mean 'short'?"),
        (["short"], False, "short has no checkpoint"),
        (["short"], True, "short has no checkpoint"),
        (["RUNS/lr=1e-4"], False, "lr=1e-4 has no checkpoint"),
        (["lr=1e-4"], False, "lr=1e-4 has no checkpoint"),
        (["lr=1e-3"], False, "unknown setting 'lr'; did you mean 'learning_rate'?"),
        (["HERE"], False, "is no checkpoint: trainer.json is missing"),
        (["HERE"], True, "run.db is missing"),
        ([], True, "--latest is of a run"),
        (["short", "checkpoint=x"], False, "short says what to evaluate already"),
        (["max_steps=3"], False, "max_steps: an evaluation takes no training steps"),
        (["eval_group_siz=3"], False, "did you mean 'eval_group_size'?"),
        (["eval_tasks=copy-99"], False, "eval_tasks: no task 'copy-99'"),
        (["tasks_dir=ONE"], False, "no task is held out"),
        (["tasks_dir=NONE"], False, "does not exist"),
        (["checkpoint=NONE"], False, "NONE"),
    ],
)
def test_bad_input_is_refused_in_one_line(
    arguments: list[str],
    use_latest: bool,
    reason: str,
    tmp_path: Path,
    empty_run: RunDirectory,
    capsys: pytest.CaptureFixture[str],
) -> None:
    shutil.copytree(tasks_dir() / "starter" / "copy-01", tmp_path / "one" / "copy-01")
    logs_dir = empty_run.path.parent
    shutil.copytree(empty_run.path, logs_dir / "lr=1e-4")
    places = {"HERE": tmp_path / "one", "ONE": tmp_path / "one", "NONE": tmp_path / "NONE"}
    places["RUNS"] = logs_dir
    given = [
        re.sub(r"HERE|ONE$|NONE|RUNS", lambda m: str(places[m[0]]), text) for text in arguments
    ]
    settings = [*given, f"logs_dir={logs_dir}"]
    assert evaluate(settings, use_latest=use_latest, view="lines") == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert reason in told.err
    assert told.err.startswith("tbtui: ")
    assert told.err.count("\n") == 1
    assert sorted(path.name for path in logs_dir.iterdir()) == ["lr=1e-4", "short"]


@pytest.mark.slow
def test_a_runs_checkpoints_are_evaluated(tmp_path: Path) -> None:
    tasks = tmp_path / "tasks"
    for name in ("mkdir-01", "remove-01", "mkdir-07", "mkdir-08"):
        shutil.copytree(tasks_dir() / "starter" / name, tasks / name)
    logs = tmp_path / "runs"
    trained = tbtui(
        *("run", "--no-ui", f"tasks_dir={tasks}", f"logs_dir={logs}", "run_name=r"),
        *("max_steps=1", "batch_size=1", "group_size=2", "max_turns=2", "seed=4"),
    )
    assert trained.returncode == 0, trained.stdout + trained.stderr
    run = RunDirectory.open(logs / "r")
    last, best_one = latest(run), best(run)
    assert last is not None
    assert best_one is not None
    assert last.state.step == 1

    # By its name, with the run's own settings but for those that are given.
    shown = tbtui(
        *("eval", "r", "--latest", "--no-ui"),
        *(f"logs_dir={logs}", "run_name=e", "eval_group_size=3"),
    )
    assert shown.returncode == 0, shown.stdout + shown.stderr
    assert "step 1 of r, its latest checkpoint, at temperature 1" in shown.stdout
    assert re.search(r"^  mkdir-07 +\d/3 +\d\.\d\d +\d\.\d\d-\d\.\d\d", shown.stdout, re.M)
    table = shown.stdout[shown.stdout.index("step 1 of r") :]
    assert max(map(len, table.splitlines())) <= 80
    assert re.match(
        r"pass@1 \d\.\d\d \(\d\.\d\d-\d\.\d\d\) of 6 trials at 2 tasks", table.splitlines()[-1]
    )
    evaluation = RunDirectory.open(logs / "e")
    (started,) = events_of(evaluation, RunStarted)
    assert started.settings["checkpoint"] == str(last.path)
    assert (started.settings["max_turns"], started.settings["seed"]) == (2, 4)
    assert not events_of(evaluation, StepStarted) + events_of(evaluation, CheckpointSaved)
    (finished,) = events_of(evaluation, EvalFinished)
    assert set(finished.pass_at) == {1, 2, 3}

    # By its directory; as JSON there is nothing but events.
    printed = tbtui("eval", str(best_one.path), "--json", "run_name=f")
    assert printed.returncode == 0, printed.stdout + printed.stderr
    kinds = [json.loads(line)["kind"] for line in printed.stdout.splitlines()]
    assert kinds[-1] == "run_finished"
    assert kinds.count("eval_finished") == 1
    assert (logs / "f").is_dir()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        pytest.param(
            (
                "eval_tasks=copy-01,copy-02",
                "agent=tests.agents.ours:Installed",
                "agent_kwargs.install=echo no luck >&2; exit 3",
            ),
            "no luck; its set-up had no network, which agent_setup_network=true gives it",
            id="agent",
        ),
        pytest.param(("eval_tasks=built",), "RUN exit 3", id="task"),
    ],
)
def test_an_evaluation_with_nothing_scored_has_failed(
    settings: tuple[str, ...], reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is to blame for it, and is named."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    for name in ("copy-01", "copy-02"):
        shutil.copytree(tasks_dir() / "starter" / name, tmp_path / "tasks" / name)
    built = shutil.copytree(tmp_path / "tasks" / "copy-01", tmp_path / "tasks" / "built")
    with (built / "environment" / "Dockerfile").open("a") as file:
        file.write("RUN exit 3\n")
    done = tbtui(
        *("eval", "--no-ui", f"tasks_dir={tmp_path / 'tasks'}", f"logs_dir={tmp_path / 'runs'}"),
        "n_workers=1",
        *settings,
        timeout=280,  # agents are installed, again and again
    )
    said = done.stdout + done.stderr
    assert done.returncode == 1, said
    assert reason in said.splitlines()[-1]
    assert ("tried again" in said) == ("built" in settings[0])


@pytest.mark.slow
def test_tasks_that_lack_a_variable_of_the_host_are_named_by_every_command_and_not_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    tasks, tables = tmp_path / "tasks", ("verifier.env", "environment.env", "")
    for number, table in enumerate(tables):
        task = tasks / f"mkdir-0{number + 1}"
        shutil.copytree(tasks_dir() / "starter" / "mkdir-01", task)
        with (task / "task.toml").open("a") as file:
            file.write(f'[{table}]\nK = "${{NO_SUCH_KEY}}"\n' if table else "")
    reason = "needs NO_SUCH_KEY, which is not set: export NO_SUCH_KEY"
    checked = json.loads(tbtui("tasks", "check", str(tasks), "--json").stdout)
    assert {
        name: [each["text"] for each in found] for name, found in checked["obstacles"].items()
    } == {f"mkdir-0{n + 1}": [f"task.toml: [{tables[n]}] {reason}"] for n in (0, 1)}
    explained = tbtui("run", "--explain", f"tasks_dir={tasks}", "eval_split=0")
    assert "2 of 3 tasks need variables that are not set here" in explained.stdout
    assert f"mkdir-01: task.toml: [verifier.env] {reason}" in explained.stdout
    shown = tbtui(
        *("eval", "agent=oracle", f"tasks_dir={tasks}", "eval_tasks=*", "--no-ui"),
        f"logs_dir={tmp_path / 'runs'}",
    )
    assert shown.returncode == 0, shown.stdout + shown.stderr
    assert "2 of 3 tasks need variables that are not set here" in shown.stdout
    assert shown.stdout.splitlines()[-1].endswith("of 1 trial at 1 task")
