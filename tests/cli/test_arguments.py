"""Bad input on the command line: one clear line, exit status 2, nothing made."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tbtui.config import GROUPS, RunConfig, parse_settings, setting_rows, to_toml


def tbtui(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tbtui", *arguments],
        capture_output=True,
        text=True,
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        timeout=60,
    )


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["max_step=3"], "unknown setting 'max_step'; did you mean 'max_steps'?"),
        (["zzz=3"], "unknown setting 'zzz'; see `tbtui run --help`"),
        (["max_steps=many"], "max_steps=many: should be a valid integer"),
        (["eval_split=2"], "eval_split=2: should be less than 1"),
        (["loss_fn=mse"], "loss_fn=mse: should be 'importance_sampling', 'ppo' or 'cispo'"),
        (["max_steps"], "'max_steps' is not a setting; write name=value"),
        (["seed=1", "seed=2"], "setting 'seed' is given twice"),
        (["tasks_dir=nowhere"], "tasks directory {cwd}/nowhere does not exist"),
        (["tasks_dir=."], "no tasks in {cwd}"),
        (["eval_tasks=copy-1"], "eval_tasks: no task 'copy-1'; did you mean 'copy-"),
        (["environment_type=a.b:"], "not of the form module:Class"),
        (["logs_dir=/dev/null/runs"], "can't make the run directory"),
        (["model_name=Qwen/Qwen3-8B"], "the embedded policy has one model, 'starter'"),
        (["checkpoint=nowhere"], "checkpoint nowhere"),
    ],
)
def test_bad_input_is_one_line_and_exit_status_2(
    tmp_path: Path, arguments: list[str], complaint: str
) -> None:
    result = tbtui("run", "--no-ui", *arguments, cwd=tmp_path)
    assert result.returncode == 2, result.stderr
    assert result.stderr.startswith("tbtui: ")
    assert complaint.format(cwd=tmp_path) in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert not (tmp_path / "runs").exists()


def test_a_directory_of_broken_tasks_is_named(tmp_path: Path) -> None:
    task = tmp_path / "tasks" / "broken"
    task.mkdir(parents=True)
    (task / "task.toml").write_text("[metadata\n")
    result = tbtui("run", "--no-ui", "tasks_dir=tasks", cwd=tmp_path)
    assert result.returncode == 2
    assert "no usable task" in result.stderr
    assert "task.toml" in result.stderr
    check = tbtui("tasks", "check", "tasks", cwd=tmp_path)
    assert check.returncode == 1
    assert "error broken/task.toml" in check.stdout


def test_the_effective_settings_are_printed(tmp_path: Path) -> None:
    result = tbtui("run", "--print-config", "max_steps=3", cwd=tmp_path)
    assert result.returncode == 0
    assert "max_steps = 3  # " in result.stdout
    assert "# checkpoint =  # " in result.stdout


def test_the_printed_settings_are_toml() -> None:
    import tomllib

    config = parse_settings(["eval_tasks=a,b", "max_steps=3", "run_name=x"])
    values = tomllib.loads(to_toml(config))
    assert (values["eval_tasks"], values["max_steps"]) == (["a", "b"], 3)
    assert RunConfig(**values) == config


def test_every_setting_is_under_one_heading_and_explained() -> None:
    listed = [name for names in GROUPS.values() for name in names]
    assert sorted(listed) == sorted(RunConfig.model_fields)
    assert all(meaning for _, rows in setting_rows() for _, meaning in rows)


def test_without_a_command_the_help_is_shown(tmp_path: Path) -> None:
    result = tbtui(cwd=tmp_path)
    assert "Commands:" in result.stdout + result.stderr


def test_the_version_is_printed(tmp_path: Path) -> None:
    assert tbtui("--version", cwd=tmp_path).stdout.startswith("tbtui 0.")


def test_the_bundled_tasks_are_listed(tmp_path: Path) -> None:
    result = tbtui("tasks", "list", cwd=tmp_path)
    assert result.returncode == 0
    assert "copy-01" in result.stdout
    assert "to train on" in result.stdout


def test_the_doctor_says_what_to_do(tmp_path: Path) -> None:
    result = tbtui("doctor", cwd=tmp_path)
    assert result.returncode in (0, 1)
    assert "tmux" in result.stdout
    assert ("Ready: tbtui run" in result.stdout) == (result.returncode == 0)
