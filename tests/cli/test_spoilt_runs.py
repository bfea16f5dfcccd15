"""Runs with a row that is not what was written, as a person meets them on the console."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tbtui.cli import app
from tbtui.config import RunConfig, to_toml
from tbtui.journal.rundir import RunDirectory
from tests.events import entries_of, spoil, write_journal
from tests.view.story import one_step_run


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunDirectory:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    runs = [RunDirectory.create(tmp_path / "runs" / name) for name in ("sound", "spoilt")]
    for run in runs:
        run.config.write_text(to_toml(RunConfig(logs_dir=tmp_path / "runs")))
        write_journal(run, one_step_run())
    return runs[1]


def row_of(run: RunDirectory, kind: str) -> tuple[int, str]:
    """The last event of a kind: its number, and what its row is called."""
    seq = [entry.seq for entry in entries_of(run) if entry.event.kind == kind][-1]
    return seq, f"row {seq} ({kind})"


def spoil_last(run: RunDirectory, kind: str) -> str:
    """Half of the last event of a kind is left; what that row is called."""
    seq, row = row_of(run, kind)
    spoil(run, seq)
    return row


@pytest.mark.parametrize(
    ("kind", "command"),
    [
        ("step_finished", "run --no-ui --resume spoilt max_steps=3"),
        ("trial_queued", "run --resume spoilt --print-config"),
        ("group_scored", "whatif spoilt"),
        ("turn_sampled", "export spoilt t1"),
        ("trial_queued", "export spoilt t3"),
    ],
)
def test_what_needs_it_is_refused_in_one_line(run: RunDirectory, kind: str, command: str) -> None:
    row = spoil_last(run, kind)
    result = CliRunner().invoke(app, command.split())
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == (
        f"tbtui: {run.database}: {row} is corrupt; put a sound copy of run.db in its place\n"
    )


@pytest.mark.parametrize(
    "command",
    ["compare sound spoilt", "ctl trial list --ended --run spoilt", "ctl run show spoilt"],
)
def test_what_can_do_without_it_says_that_it_is_missing(run: RunDirectory, command: str) -> None:
    row = spoil_last(run, "turn_observed")
    result = CliRunner().invoke(app, command.split())
    assert result.exit_code == 0, result.output
    assert result.stdout
    assert result.stderr == f"tbtui: {row} of {run.database} is corrupt, and left out here\n"


def test_a_run_is_listed_with_what_is_wrong(run: RunDirectory) -> None:
    row = spoil_last(run, "run_started")
    listed = CliRunner().invoke(app, ["runs"])
    assert listed.exit_code == 0
    assert all(word in listed.stdout for word in ("sound", "finished", "spoilt", "unreadable"))
    line = f"{run.database}: {row} is corrupt; put a sound copy of run.db in its place"
    assert listed.stderr == f"tbtui: {line}\n"
    rows = json.loads(CliRunner().invoke(app, ["runs", "--json"]).stdout)
    assert {row["run"]: row["reason"] for row in rows}["spoilt"] == line


def test_the_other_trials_are_exported(run: RunDirectory, tmp_path: Path) -> None:
    rows = [row_of(run, "turn_sampled"), row_of(run, "trial_finished")]
    for seq, _ in rows:
        spoil(run, seq)
    result = CliRunner().invoke(app, ["export", "spoilt", "--format", "atif", "--out", "out"])
    assert result.exit_code == 2
    assert result.stderr.startswith("tbtui: wrote 2 trials to out; not 2 more: ")
    assert result.stderr.count("\n") == 1
    assert rows[0][1] in result.stderr  # the first one is told of
    assert len(list((tmp_path / "out").iterdir())) == 2
