"""`tbtui export` of metrics, and `tbtui runs note` and `rename`."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tbtui.journal.rundir import RunDirectory, RunLock
from tests.cli.process import invoke
from tests.ui.synthetic import write_run


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(tmp_path_factory.mktemp("recorded") / "demo", 60.0).run.path


@pytest.fixture
def run(recorded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunDirectory:
    shutil.copytree(recorded, tmp_path / "logs" / "demo")
    monkeypatch.chdir(tmp_path / "logs")
    return RunDirectory(tmp_path / "logs" / "demo")


def test_metrics_are_exported_as_values_and_as_a_picture(run: RunDirectory) -> None:
    where = run.path.parent
    values = invoke(
        *("export", str(run.path), "--format", "csv", "--metric", "eval/pass_rate", "--out", "-")
    )
    assert values.exit_code == 0
    assert values.stdout.startswith("run,metric,step,value,low,high\ndemo,eval/pass_rate,0,")
    picture = invoke("export", str(run.path), "--format", "svg", "--smoothing", "0.6")
    assert picture.exit_code == 0
    name = picture.stdout.removeprefix("wrote ").strip()
    assert (where / name).read_text().startswith("<svg")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--format", "csv", "--metric", "eval/pas_rate"), "did you mean 'eval/pass_rate'?"),
        (("--metric", "eval/pass_rate"), "need --format svg or csv"),
        (("--format", "csv", "--out", "x.svg"), "ends in .csv"),
        (("copy-03/2", "--format", "svg"), "leave copy-03/2 out"),
    ],
)
def test_what_can_not_be_exported_is_said_in_a_line(
    run: RunDirectory, arguments: tuple[str, ...], said: str
) -> None:
    done = invoke("export", str(run.path), *arguments)
    assert done.exit_code == 2
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_run_is_noted_on_and_renamed(run: RunDirectory) -> None:
    assert invoke("runs", "note", str(run.path), "too", "slow").exit_code == 0
    with RunLock(run):
        live = invoke("runs", "rename", str(run.path), "other")
    assert live.exit_code == 2
    assert "live" in live.stderr
    assert invoke("runs", "rename", str(run.path), "other").stdout == "demo is other now\n"
    assert invoke("runs", "note", str(run.path)).stdout.endswith(" too slow\n")
