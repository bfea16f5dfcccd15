"""What a run is asked to be, and what is left of one that never begins."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import NoReturn

import pytest
from typer.testing import CliRunner

from tbtui.cli import app
from tbtui.config import ConfigError, parse_settings
from tbtui.engines.request import RunRequest, request_run
from tbtui.engines.resume import request_resume
from tbtui.journal.events import RunFinished
from tbtui.journal.rundir import RunDirectory
from tbtui.journal.writer import JournalWriter
from tbtui.launch import detached
from tests.events import events_of

pytestmark = pytest.mark.uid


@pytest.fixture(autouse=True)
def own_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("name", ["a/b", "../x", "..", ".", "a\x1b[2J", "a\nb"])
def test_a_runs_name_is_one_directorys(name: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^run_name=.*one directory's name") as refused:
        request_run(parse_settings([f"run_name={name}"]))
    assert str(refused.value).isprintable()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["a#1", "a?b=c", "lr=1e-4", "50%"])
def test_any_other_name_will_do(name: str) -> None:
    run = request_run(parse_settings([f"run_name={name}", "seed=7"])).directory
    JournalWriter(run).close()
    for given in (name, str(run.path)):
        assert request_resume(given, ["max_steps=2"]).config.seed == 7
        shown = CliRunner().invoke(app, ["run", "--resume", given, "--print-config"])
        assert shown.exit_code == 0, shown.output
        assert tomllib.loads(shown.stdout)["seed"] == 7
    assert [path.name for path in run.path.parent.iterdir()] == [name]


def test_what_is_kept_of_places_means_the_same_from_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine").mkdir()
    run = request_run(parse_settings(["tasks_dir=mine", "review_rules=r.toml"])).directory
    JournalWriter(run).close()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    config = request_resume(str(run.path), []).config
    assert (config.tasks_dir, config.review_rules) == (tmp_path / "mine", tmp_path / "r.toml")


def test_a_resumed_runs_settings_are_its_own_with_those_given(tmp_path: Path) -> None:
    run = request_run(parse_settings(["run_name=r", "seed=7"])).directory
    JournalWriter(run).close()
    ask = ["run", "--resume", "r", "--print-config"]
    assert tomllib.loads(CliRunner().invoke(app, [*ask, "max_steps=3"]).stdout)["max_steps"] == 3
    refused = CliRunner().invoke(app, [*ask, "seed=8"])
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert refused.stderr.startswith("tbtui: seed=8: r was begun with 7")
    explained = CliRunner().invoke(app, ["run", "--resume", "nosuch", "--explain"])
    assert (explained.exit_code, explained.stdout) == (2, "")


def test_without_a_terminal_a_refusal_is_one_line() -> None:
    result = CliRunner().invoke(app, ["run", "--resume", "nosuch"])
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)


def test_a_learning_rate_that_destroys_the_model_is_warned_of() -> None:
    result = CliRunner().invoke(app, ["run", "--print-config", "learning_rate=5"])
    assert result.exit_code == 0
    assert result.stderr.startswith("tbtui: learning_rate=5: AdamW moves every weight by about")
    assert CliRunner().invoke(app, ["run", "--print-config", "learning_rate=0.01"]).stderr == (
        "tbtui: learning_rate=0.01: from 0.0004 on the embedded policy has been seen to collapse;"
        " 2e-4 learns well\n"
    )


@pytest.mark.slow
def test_a_closed_pipe_ends_no_run(tmp_path: Path) -> None:
    command = f"{sys.executable} -m tbtui run --no-ui max_steps=1 batch_size=1 group_size=2"
    small = f"{command} eval_tasks=mkdir-07 run_name=r"
    done = subprocess.run(
        ["/bin/bash", "-c", f"set -o pipefail; {small} | head -2"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 2
    first, last = done.stderr.splitlines()
    assert first.startswith("tbtui: nobody reads lines; the run goes on: tbtui attach ")
    assert last.startswith("finished: 1 step, ")
    (end,) = events_of(RunDirectory(tmp_path / "runs" / "r"), RunFinished)
    assert end.status == "finished"


def test_a_detached_run_that_ends_before_it_has_begun_and_says_nothing(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    request = RunRequest(parse_settings([]), RunDirectory.create(tmp_path / "r"))

    def start() -> NoReturn:
        os._exit(3)

    assert detached(request, start, as_json=False) == 3
    assert capfd.readouterr().err == "tbtui: the run ended with status 3 and said nothing\n"
    assert not request.directory.path.exists()
