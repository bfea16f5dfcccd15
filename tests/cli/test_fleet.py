"""`tbtui fleet`, with a stand-in for ssh that runs the command here; `sweep`; `tasks new`."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from tbtui.catalog.tasks import discover
from tbtui.commands.sweep import read_sweep
from tbtui.config import ConfigError
from tbtui.ctl.fleet import FleetError, all_rows, make_fleet
from tbtui.journal.events import StepFinished
from tbtui.journal.rundir import RunDirectory
from tbtui.ui.fleet import ordered, table_lines
from tbtui.view.runs import RunSummary, decode_row
from tests.cli.process import invoke, kill_all, started, tbtui
from tests.events import events_of
from tests.waiting import wait_until

SSH = """#!/bin/bash
# A stand-in: ssh [OPTIONS] -- HOST COMMAND, run on this machine.
while [ "$1" != -- ]; do shift; done
[ "$2" = down ] && { echo "ssh: connect to host down port 22: Connection refused" >&2; exit 255; }
eval "$3"
"""
ROW = {
    **dict.fromkeys(("host", "reason", "waiting_for", "alarm", "phase"), ""),
    **dict.fromkeys(("pid", "pass_rate", "started_at", "max_steps", "seconds", "cost_usd"), None),
    **{"run": "a", "directory": "/a", "status": "finished", "step": 3, "rollouts": 8},
    **{"curve": [0.1, 0.9], "gpus": [], "alarms": 0, "silent": False, "silent_sec": None},
}

ODD = [
    *("3", "{}", '{"run": "x"}', '{"status": null, "run": "x", "directory": "x"}'),
    *(
        json.dumps(ROW | {name: value})
        for name, value in (
            ("step", "three"),
            ("started_at", 1e300),
            ("seconds", 1e300),
            ("silent_sec", -1),
            ("curve", ["x"]),
            ("curve", [0.0] * 10_000),
            ("gpus", [{"utilisation": "much"}]),
            ("pid", [1]),
            ("alarms", {}),
            ("directory", "a\0b"),
        )
    ),
]
OTHERS = (
    "[" * 100_000,
    '{"x":' + "[" * 100_000,
    '{"runs": [{"pass_rate": NaN}]}',
    '{"runs": 3}',
    "",
    "\\xff",
    None,
)


@pytest.fixture
def ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bin").mkdir()
    for name, text in (
        ("ssh", SSH),
        ("tbtui", f'#!/bin/bash\nexec {sys.executable} -m tbtui "$@"\n'),
    ):
        (tmp_path / "bin" / name).write_text(text)
        (tmp_path / "bin" / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")


@pytest.mark.slow
@pytest.mark.usefixtures("ssh")
def test_other_machines_are_rows_and_one_that_is_down_says_why(tmp_path: Path) -> None:
    here = str(tmp_path / "runs")
    result = tbtui("fleet", "--json", "--logs-dir", here, "--host", "me@one:22", "--host", "down")
    assert result.returncode == 0, result.stderr
    rows = json.loads(result.stdout)["runs"]
    assert not any(row["host"] == "me@one:22" and row["status"] == "unreachable" for row in rows)
    (down,) = [row for row in rows if row["host"] == "down"]
    assert down["status"] == "unreachable"
    assert "Connection refused" in down["reason"]


@pytest.mark.usefixtures("ssh")
@pytest.mark.parametrize("answer", [*ODD, *OTHERS], ids=range(len(ODD) + len(OTHERS)))
async def test_a_host_that_answers_oddly_ends_nothing(tmp_path: Path, answer: str | None) -> None:
    """Each other host's rows are there, and the table can be drawn."""
    # What it says of silence may be odd, too, and nothing hangs on that.
    row = json.dumps(ROW | {"run": "good", "silent": True})
    text = answer if answer in OTHERS else f'{{"runs": [{answer}, {row}]}}'
    file = tmp_path / "answer"
    file.write_text(f'{{"runs": [{row}]}}{" " * (20 << 20)}' if text is None else text)
    (tmp_path / "bin/tbtui").write_text(f"#!/bin/sh\ncat {file}\n")
    rows = await all_rows(make_fleet([tmp_path], ["odd"], None, here=False))
    assert rows[0].status == "unreachable"
    assert [row.name for row in rows[1:]] == ([] if answer in OTHERS else ["good"])
    for width in (78, 150):
        assert len(table_lines(ordered(rows), width)) == 1 + len(rows)


@pytest.mark.usefixtures("ssh")
async def test_of_a_host_with_very_many_runs_a_thousand_are_shown(tmp_path: Path) -> None:
    (tmp_path / "answer").write_text(json.dumps({"runs": [ROW] * 1001}))
    (tmp_path / "bin/tbtui").write_text(f"#!/bin/sh\ncat {tmp_path / 'answer'}\n")
    assert len(await all_rows(make_fleet([tmp_path], ["busy"], None, here=False))) == 1000


def test_what_needs_a_person_comes_first() -> None:
    over = decode_row(json.dumps(ROW).encode())
    live = RunSummary(name="b", status="live", pid=7)
    silent = RunSummary(name="c", status="live", pid=8, silent_sec=200.0)
    rows = ordered([over, live, silent])
    assert [row.name for row in rows] == ["c", "b", "a"]
    for width in (78, 150):
        head, first, *_ = table_lines(rows, width)
        assert "silent 3m20s" in first
        assert len(head) == len(first) <= width
    # Where there is room a name is whole.
    long = RunSummary(name="a-name-that-needs-more-than-its-column", status="live", pid=7)
    assert table_lines([long], 150)[1].startswith(long.name)


@pytest.mark.parametrize("host", ["-oProxyCommand=x", "a b", "gpu1:port", ""])
def test_a_host_is_no_option(host: str) -> None:
    with pytest.raises(FleetError, match="is no host"):
        make_fleet([], [host], None, here=False)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('name = "a/b"\n[grid]\nloss_fn = ["ppo"]\n', "letters, digits"),
        ('name = "a"\n', r"give a \[grid\], or a list"),
        ('name = "a"\n[grid]\nseed = [1]\n', "for seeds there is seeds"),
        ('name = "a"\n[grid]\nnosuch = [1]\n', "unknown setting 'nosuch'"),
        ('name = "a"\nat_once = 0\n[grid]\nloss_fn = ["ppo"]\n', "at least 1"),
        ('name = "a"\nwhat = 0\n', "unknown field `what`"),
        ('name = "../x"\n[grid]\nmax_steps = [1]\n', "letters, digits"),
        ('name = "a"\n[grid]\nmax_steps = []\n', "a list of the .grid. is empty"),
        ('name = "a"\nseeds = [1, 1]\n[grid]\nmax_steps = [1]\n', "one is there twice"),
        ('name = "a"\n[grid]\n' + "".join(f"a{i} = [1, 2, 3]\n" for i in range(99)), "10,000 at"),
        ('name = "a"\n[grid]\n"run_name=../../x" = [1]\n', "given twice"),
    ],
)
def test_a_sweep_that_cant_be_is_one_line(tmp_path: Path, text: str, reason: str) -> None:
    (tmp_path / "s.toml").write_text(text)
    with pytest.raises(ConfigError, match=reason):
        read_sweep(tmp_path / "s.toml")


def test_a_sweep_is_the_grid_times_the_seeds(tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text(
        'name = "s"\nseeds = [3, 4]\n[settings]\nmax_steps = 2\n'
        '[grid]\nlearning_rate = [1e-4, 2e-4]\nloss_fn = ["ppo", "cispo"]\n'
    )
    runs = read_sweep(tmp_path / "s.toml").runs
    assert len(runs) == 8
    assert [run.directory.name for run in runs[:3]] == ["s-01-seed3", "s-01-seed4", "s-02-seed3"]
    assert runs[2].point == (("learning_rate", 1e-4), ("loss_fn", "cispo"))


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_sweep_that_was_killed_goes_on_and_repeats_nothing(tmp_path: Path) -> None:
    file = tmp_path / "s.toml"
    file.write_text(
        f'name = "s"\nseeds = [0, 1]\n[settings]\nlogs_dir = "{tmp_path}"\nmax_steps = 2\n'
        'tasks = ["copy-03"]\neval_tasks = ["copy-07"]\nbatch_size = 1\ngroup_size = 4\n'
        "eval_group_size = 4\neval_every = 2\n[grid]\nlearning_rate = [1e-4]\n"
    )
    runs = [RunDirectory(tmp_path / f"s-01-seed{seed}") for seed in (0, 1)]

    def steps(run: RunDirectory) -> list[int]:
        return [each.step for each in events_of(run, StepFinished)]

    with started("sweep", str(file), output=tmp_path / "out") as process:
        wait_until(lambda: runs[0].database.is_file() and steps(runs[0]))
        kill_all(process.pid)
    assert steps(runs[0]) == [1]
    assert not runs[1].database.is_file()
    result = tbtui("sweep", str(file), "--json")
    assert result.returncode == 0, result.stderr
    (point,) = json.loads(result.stdout)["points"]
    assert point["runs"] == {run.name: "finished" for run in runs}
    assert len(point["values"]) == 2
    assert [steps(run) for run in runs] == [[1, 2], [1, 2]]


def test_a_new_task_is_usable(tmp_path: Path) -> None:
    result = invoke("tasks", "new", "counting", "--into", str(tmp_path))
    assert result.exit_code == 0, result.stderr
    catalog = discover(tmp_path)
    assert catalog.defects == ()
    (task,) = catalog.tasks
    assert task.has_solution
    assert 'environment_mode = "separate"' in (task.path / "task.toml").read_text()
    again = invoke("tasks", "new", "counting", "--into", str(tmp_path))
    assert again.exit_code == 2
    assert "is there already" in again.stderr
