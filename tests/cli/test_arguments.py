"""Bad input on the command line: one clear line, exit status 2, nothing made."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.process import invoke, tbtui


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, empty, of somebody without settings of their own."""
    for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME"):
        monkeypatch.setenv(name, str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["max_step=3"], "unknown setting 'max_step'; did you mean 'max_steps'?"),
        (["api_key=x"], "'api_key' is no setting of a run; keys of services come from .env"),
        (["n_concurrent=4"], "unknown setting 'n_concurrent'; did you mean 'n_parallel_envs'?"),
        (["zzz=3"], "unknown setting 'zzz'; `tbtui settings` has all of them"),
        (["max_steps=many"], "max_steps=many: should be a whole number of at least 0 (steps)"),
        (["eval_split=2"], "eval_split=2: should be a number of at least 0 and below 1"),
        (["loss_fn=mse"], "loss_fn=mse: should be importance_sampling, ppo, cispo, gspo or dro"),
        (["max_steps"], "'max_steps' is not a setting; write name=value"),
        (["nowhere.toml"], "nowhere.toml: No such file or directory"),
        (["max_steps.a=1"], "max_steps is not a table; write max_steps=VALUE"),
        (["on_alarm=halt"], "on_alarm is a table; write on_alarm.NAME=VALUE"),
        (["lora_rank=32"], "lora_rank: the embedded policy trains all its weights"),
        (["min_group=9"], "min_group=9: no group has more than group_size=8"),
        (["on_outcome.foo=mask"], "on_outcome.foo: no such outcome; there are solved, failed,"),
        (["max_steps=many", "--print-config"], "max_steps=many"),
        (["min_group=9", "--print-config"], "min_group=9"),
        (["seed=1", "seed=2"], "setting 'seed' is given twice"),
        (["tasks_dir=nowhere"], "tasks directory {cwd}/nowhere does not exist"),
        (["tasks_dir=."], "no tasks in {cwd}"),
        (["eval_tasks=copy-1"], "eval_tasks: no task 'copy-1'; did you mean 'copy-"),
        (["environment_type=a.b:"], "not of the form module:Class"),
        (["logs_dir=/dev/null/runs"], "can't make the run directory"),
        (["model_name=qwen3"], "the embedded policy has two models, starter and maze;"),
        (["checkpoint=nowhere"], "checkpoint nowhere"),
        (["model_name=qwen3", "--print-config"], "the embedded policy has two models"),
        (["run_name=a/b"], "run_name='a/b': should be one directory's name"),
        (["review=always", "review_rules=nowhere.toml"], "nowhere.toml: can't be read (No such"),
    ],
)
def test_bad_input_is_one_line_and_exit_status_2(
    here: Path, arguments: list[str], complaint: str
) -> None:
    result = invoke("run", "--no-ui", *arguments)
    assert (result.exit_code, result.stdout) == (2, ""), result.output
    assert result.stderr.startswith("tbtui: ")
    assert complaint.format(cwd=here) in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert not (here / "runs").exists()


def test_a_process_ends_with_that_line_and_status(tmp_path: Path) -> None:
    result = tbtui("run", "--no-ui", "max_step=3", cwd=tmp_path)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr == "tbtui: unknown setting 'max_step'; did you mean 'max_steps'?\n"
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("runn", "no such command 'runn'. Did you mean 'run', 'runs'?"),
        ("frobnicate", "no such command 'frobnicate'; tbtui has run, eval, "),
        ("--theme dark", "no such option: --theme"),
        ("run --nouii", "no such option: --nouii (Possible options: --no-ui)"),
        (
            "run theme=drak",
            "'theme' is no setting of a run; the key t in the app chooses the theme",
        ),
        ("replay", "missing argument 'RUN'; usage: tbtui replay [OPTIONS] {RUN} [TRIAL]"),
        ("replay nosuch", "nosuch: no such run, and none at all in "),
        ("compare a", "missing argument 'B'; usage: tbtui compare [OPTIONS] {A} {B}"),
        ("tasks lst", "no such command 'lst'. Did you mean 'list'?"),
        ("ctl pause", "no such command 'pause'; tbtui ctl has run, trial, "),
        ("settings lerning_rate", "unknown setting 'lerning_rate'; did you mean 'learning_rate'?"),
        ("guide reviw", "the guide has no page 'reviw'; did you mean 'review'?"),
        ("guide nowhere", "the guide has no page 'nowhere'; its pages: index, first-run, "),
        ("doctor modle", "write tbtui doctor, or tbtui doctor model NAME"),
    ],
)
def test_what_newcomers_mistype_is_one_line_with_a_way_on(
    here: Path, line: str, complaint: str
) -> None:
    result = invoke(*line.split())
    assert result.exit_code == 2, result.output
    assert result.stderr.startswith(f"tbtui: {complaint}"), result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert not (here / "runs").exists()


@pytest.mark.parametrize(
    ("line", "usage"), [("tasks", "tbtui tasks [OPTIONS] COMMAND"), ("", "tbtui [OPTIONS] COMMAND")]
)
def test_without_a_verb_the_help_is_shown(here: Path, line: str, usage: str) -> None:
    shown = invoke(*line.split()).output
    assert usage in shown
    assert "Commands:" in shown


@pytest.mark.linux
def test_a_run_that_nobody_reads_leaves_its_name_free(tmp_path: Path) -> None:
    nobody, output = os.pipe()
    os.close(nobody)
    with os.fdopen(output, "w") as unread:
        command = [sys.executable, "-m", "tbtui", "run", "--no-ui", "run_name=r"]
        ended = subprocess.run(command, cwd=tmp_path, stdout=unread, timeout=60, check=False)
    assert ended.returncode == 1
    assert not (tmp_path / "runs").exists()


@pytest.mark.linux
def test_what_the_policy_refuses_leaves_nothing(tmp_path: Path) -> None:
    result = tbtui("run", "--no-ui", "context_limit=99999", cwd=tmp_path)
    assert result.returncode == 2
    last = result.stderr.splitlines()[-1]
    assert last.endswith("context_limit=99999: starter has 1024 tokens")
    assert not (tmp_path / "runs").exists()


def test_a_directory_of_broken_tasks_is_named(here: Path) -> None:
    task = here / "tasks" / "broken"
    task.mkdir(parents=True)
    (task / "task.toml").write_text("[metadata\n")
    result = invoke("run", "--no-ui", "tasks_dir=tasks")
    assert result.exit_code == 2
    assert "no usable task" in result.stderr
    assert "task.toml" in result.stderr
    check = invoke("tasks", "check", "tasks")
    assert check.exit_code == 1
    assert "error broken/task.toml" in check.stdout


def test_the_effective_settings_are_printed(here: Path) -> None:
    result = invoke("run", "--print-config", "max_steps=3")
    assert result.exit_code == 0
    assert "max_steps = 3  # " in result.stdout
    assert "# checkpoint =  # " in result.stdout


def test_a_warning_about_settings_is_printed_beside_them(here: Path) -> None:
    result = invoke("run", "--print-config", "dro_beta=0.1")
    assert result.exit_code == 0
    assert (
        result.stderr == "tbtui: dro_beta: not used by loss_fn=importance_sampling, only by dro\n"
    )


def test_a_file_of_settings_is_named_in_complaints(here: Path) -> None:
    (here / "my.toml").write_text("max_steps = 3\nlearning_rat = 1\n")
    result = invoke("run", "my.toml")
    assert result.exit_code == 2
    assert result.stderr == (
        "tbtui: my.toml: unknown setting 'learning_rat'; did you mean 'learning_rate'?\n"
    )


def test_help_and_the_table_have_every_setting(here: Path) -> None:
    from tbtui.config import settings

    shown = invoke("run", "--help").stdout
    table = invoke("settings").stdout
    for name in settings():
        assert f"\n  {name}=" in shown
        assert f"\n| `{name}` |" in table


def test_the_version_is_printed(here: Path) -> None:
    assert invoke("--version").stdout.startswith("tbtui 0.")


@pytest.mark.uid
def test_the_doctor_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("WANDB_API_KEY=k\n")
    result = tbtui("doctor", cwd=tmp_path)
    assert result.returncode in (0, 1)
    assert "✓ WANDB_API_KEY" in result.stdout
    assert "✓ Harbor" in result.stdout
    assert ("Ready: tbtui run" in result.stdout) == (result.returncode == 0)
