"""`tbtui export` of metrics, and `tbtui runs note` and `rename`, as processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tbtui.journal.rundir import RunDirectory, RunLock
from tests.cli.process import tbtui
from tests.ui.synthetic import write_run

pytestmark = pytest.mark.slow


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    return write_run(tmp_path / "logs" / "demo", 60.0).run


def test_metrics_are_exported_as_values_and_as_a_picture(run: RunDirectory) -> None:
    where = run.path.parent
    values = tbtui(
        *("export", str(run.path), "--format", "csv", "--metric", "eval/pass_rate", "--out", "-")
    )
    assert values.returncode == 0
    assert values.stdout.startswith("run,metric,step,value,low,high\ndemo,eval/pass_rate,0,")
    picture = tbtui("export", str(run.path), "--format", "svg", "--smoothing", "0.6", cwd=where)
    assert picture.returncode == 0
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
    done = tbtui("export", str(run.path), *arguments)
    assert done.returncode == 2
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_run_is_noted_on_and_renamed(run: RunDirectory) -> None:
    assert tbtui("runs", "note", str(run.path), "too", "slow").returncode == 0
    with RunLock(run):
        live = tbtui("runs", "rename", str(run.path), "other")
    assert live.returncode == 2
    assert "live" in live.stderr
    assert tbtui("runs", "rename", str(run.path), "other").stdout == "demo is other now\n"
    assert tbtui("runs", "note", str(run.path)).stdout.endswith(" too slow\n")
