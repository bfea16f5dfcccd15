"""What a session of tests leaves that is killed in the middle: nothing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tbtui.rollout.environments.cgroups import find_cgroups
from tbtui.rollout.environments.ledger import started as alive
from tests.waiting import wait_until

ROOT = Path(__file__).parents[1]
INNER = """
import asyncio, json, os, subprocess, sys
from pathlib import Path
from tbtui.journal.events import TurnSampled
from tbtui.journal.rundir import RunDirectory
from tests import session
from tests.events import events_of
from tests.rollout.environments.boxes import processes_of, running_box, sh
from tests.waiting import until

async def test_that_does_not_end(tmp_path):
    state = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state")}
    endless = ["tasks=copy-03", "eval_tasks=copy-07", "max_steps=100000", "run_name=r"]
    detach = [sys.executable, "-m", "tbtui", "run", "--detach", *endless]
    subprocess.run(detach, env=state, cwd=tmp_path, check=True)
    run = RunDirectory(tmp_path / "runs" / "r")
    await until(lambda: events_of(run, TurnSampled))
    subprocess.run(["tmux", "-S", tmp_path / "tmux", "new-session", "-d", "sleep 9999"], check=True)
    async with running_box() as box:
        await sh(box, "setsid sleep 9999 & sleep 9999 &")
        mark = Path(os.environ[session.MARK])
        started = [os.getpid(), *processes_of(box), *session.marked(mark)]
        told = Path(os.environ["TOLD"])
        told.with_suffix(".partial").write_text(json.dumps([str(mark), started]))
        told.with_suffix(".partial").rename(told)
        await asyncio.sleep(9999)
"""


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 1])
def test_nothing_outlives_a_killed_session(tmp_path: Path, workers: int) -> None:
    inner, told = tmp_path / "test_inner.py", tmp_path / "told"
    inner.write_text(INNER)
    options = ["-c", "pyproject.toml", "-p", "tests.conftest", "-p", "no:cacheprovider"]
    with (tmp_path / "output").open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "pytest", *options, f"-n{workers}", inner],
            cwd=ROOT,
            env={**os.environ, "TOLD": str(told)},
            stdout=output,
            stderr=output,
        )
    try:
        wait_until(lambda: told.exists() or process.poll() is not None)
        assert process.poll() is None, (tmp_path / "output").read_text()
        directory, started = json.loads(told.read_text())
        assert len(started) > 8  # the run and its workers, a server of tmux, a box
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    wait_until(lambda: not Path(directory).exists())
    assert [pid for pid in started if alive(pid) is not None] == []
    groups = [g.name for parent in find_cgroups().parents.values() for g in parent.glob("tbtui-*")]
    assert [name for name in groups if int(name.split("-")[-2]) in started] == []
