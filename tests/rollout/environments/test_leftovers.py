"""What remains of a box when its owner ends, however it ends."""

# ruff: noqa: ASYNC220
from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from tbtui.rollout.environments.ledger import Ledger, state_directory
from tbtui.rollout.environments.leftovers import reap_leftovers
from tests.rollout.environments.boxes import family, running_box

pytestmark = pytest.mark.uid

_OWNER = """
import asyncio, os, signal, sys, threading
# A shell's background job is born deaf to ctrl-c.
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.path.insert(0, {tests!r})
from tests.rollout.environments.boxes import running_box, sh

async def main():
    async with running_box() as box:
        await sh(box, "setsid sleep 1000 & sleep 1000 &")
        print(box.init_pid, flush=True)
        await sh(box, "sleep 1000", timeout_sec=None)

{run}
"""
_IN_MAIN_THREAD = "asyncio.run(main())"
_IN_A_THREAD = "threading.Thread(target=lambda: asyncio.run(main())).start()"


@contextmanager
def _owner(run: str) -> Iterator[tuple[subprocess.Popen[str], list[psutil.Process]]]:
    """A process that runs a box with daemons in it, and the box's processes."""
    code = _OWNER.format(tests=str(Path(__file__).parents[3]), run=run)
    owner = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert owner.stdout is not None
        processes = family(int(owner.stdout.readline()))
        assert len(processes) >= 3
        yield owner, processes
    finally:
        owner.kill()
        owner.communicate()


def _all_gone(processes: list[psutil.Process]) -> bool:
    _, alive = psutil.wait_procs(processes, timeout=20)
    return not alive


@pytest.mark.parametrize("run", [_IN_MAIN_THREAD, _IN_A_THREAD])
def test_owner_killed(run: str) -> None:
    with _owner(run) as (owner, processes):
        owner.kill()
        assert _all_gone(processes)
    # Its entry, and its control groups if it had any, are the next start's to remove.
    (entry,) = state_directory().glob("*.json")
    groups = [Path(group) for group in json.loads(entry.read_text())["cgroups"]]
    report = reap_leftovers()
    assert report.boxes == 1
    assert not [group for group in groups if group.exists()]


def test_owner_interrupted() -> None:
    with _owner(_IN_MAIN_THREAD) as (owner, processes):
        owner.send_signal(signal.SIGINT)
        assert owner.stderr is not None
        assert "KeyboardInterrupt" in owner.stderr.read()
        assert _all_gone(processes)
    assert not list(state_directory().glob("*.json"))


def test_reaper_kills_what_outlived_its_owner() -> None:
    """A process that did not notice, such as one stopped by a debugger."""
    survivor = subprocess.Popen(["sleep", "1000"])
    ledger = Ledger()
    ledger.record("dead", [survivor.pid], [])
    path = ledger.directory / "dead.json"
    entry = json.loads(path.read_text())
    entry["owner"]["started"] -= 1  # the owner's number now belongs to another process: us
    path.write_text(json.dumps(entry))
    report = reap_leftovers()
    assert (report.boxes, report.processes_killed) == (1, 1)
    assert survivor.wait(10) == -signal.SIGKILL


async def test_reaper_spares_the_living_and_the_foreign() -> None:
    bystander = subprocess.Popen(["sleep", "1000"])
    try:
        async with running_box() as box:
            ledger = Ledger()
            for name, change in (
                ("other-host", {"host": "elsewhere"}),
                ("other-container", {"pid_namespace": "pid:[1]"}),
            ):
                ledger.record(name, [bystander.pid], [])
                path = ledger.directory / f"{name}.json"
                entry = json.loads(path.read_text()) | change
                entry["owner"]["started"] -= 1
                path.write_text(json.dumps(entry))
            assert reap_leftovers().boxes == 0
            assert bystander.poll() is None
            assert box.lost is None
            for name in ("other-host", "other-container"):
                ledger.forget(name)
    finally:
        bystander.kill()
        bystander.wait()


async def test_reaper_takes_what_was_never_written_down_of_those_known_to_be_dead() -> None:
    """And may be called where an event loop runs."""
    ledger = Ledger()
    killed = subprocess.Popen(["true"])
    killed.wait()
    mine, theirs = (ledger.directory / f".box.json.{pid}" for pid in (os.getpid(), killed.pid))
    for path in (mine, theirs):
        path.write_text("{")
    reap_leftovers()
    assert theirs.exists()  # it may belong to another container's process
    os.utime(mine, (0, 0))
    reap_leftovers(ended={killed.pid})
    assert (mine.exists(), theirs.exists()) == (True, False)
    theirs.write_text("{")
    os.utime(theirs, (0, 0))
    reap_leftovers()
    assert not theirs.exists()
    mine.unlink()


def test_reaper_forgets_earlier_boots_and_broken_entries() -> None:
    ledger = Ledger()
    ledger.record("old", [os.getpid()], [])
    path = ledger.directory / "old.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"boot": "earlier"}))
    (ledger.directory / "broken.json").write_text("{")
    report = reap_leftovers()
    assert (report.boxes, report.processes_killed) == (1, 0)
    (ledger.directory / "broken.json").unlink()


def test_state_directory_of_another_user_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    (tmp_path / "tbtui").mkdir()
    (tmp_path / "tbtui" / "boxes").symlink_to(tmp_path)
    with pytest.raises(PermissionError):
        state_directory()
