"""Snapshots of boxes: what comes back, what is copied, how they are thinned, and their end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tbtui.rollout.environments.base import SandboxError
from tbtui.rollout.environments.box import Box, SavedBox
from tbtui.rollout.environments.box_start import start_box
from tbtui.rollout.environments.ledger import state_directory
from tbtui.rollout.environments.leftovers import reap_leftovers
from tbtui.rollout.environments.limits import box_limits
from tbtui.rollout.environments.plan import Restored, plan_box
from tbtui.rollout.environments.snapshots import Snapshot, SnapshotStore, nearest

LIMITS = box_limits(
    memory_mb=256, storage_mb=64, cpus=1, processes=128, cpu_seconds=60, download_mb=10
)
PLAN = plan_box(LIMITS, keeps_state=True)
CHANGES = """
cd /app && mkdir -p a/b && echo one > a/b/file && ln a/b/file linked && ln -s a/b pointer
chmod 640 a/b/file && printf x > 'a name
of two lines' && mkfifo pipe && rm /etc/fstab && echo new > /usr/local/bin/tool
rm -f /usr/bin/yes && chmod 755 /usr/local/bin/tool && touch -d @1000000000 a/b/file
"""
LOOK = """
cd /app && find . -printf '%p %y %m %U %l\\n' | sort
cat a/b/file linked && stat -c '%h %Y' linked
ls /etc/fstab /usr/bin/yes 2>&1; cat /usr/local/bin/tool; [ -p pipe ] && echo pipe
"""


async def sh(box: Box, script: str) -> str:
    result = await box.run(
        ["/bin/bash", "-c", script], environment={"PATH": "/usr/local/bin:/usr/bin:/bin"}
    )
    return result.stdout + result.stderr


async def saved(box: Box, store: SnapshotStore, turn: int, limit: int = 1 << 30) -> SavedBox:
    store.directory.mkdir(exist_ok=True)
    before = store.turns()[-1:]
    with store.index(turn).open("w+b") as index, store.pack(turn).open("w+b") as pack:
        previous = os.open(store.index(before[0]), os.O_RDONLY) if before else None
        try:
            return await box.save(index.fileno(), pack.fileno(), turn, limit, previous)
        finally:
            if previous is not None:
                os.close(previous)


async def test_what_a_box_has_written_comes_back_in_another(tmp_path: Path) -> None:
    store = SnapshotStore(tmp_path / "trial", 1 << 30)
    box = await start_box(PLAN, "saved")
    try:
        await sh(box, CHANGES)
        first = await saved(box, store, 1)
        store.add(Snapshot(turn=1, packs=tuple(first.packs)))
        await sh(box, "echo two > /app/second")
        second = await saved(box, store, 2)
        had = await sh(box, LOOK)
    finally:
        await box.stop()
    # Only what has changed is copied.
    assert second.written < 100 < first.written
    assert second.packs == {1, 2}
    packs = {number: store.pack(number) for number in second.packs}
    again = await start_box(replace(PLAN, restored=Restored(store.index(2), packs)), "restored")
    try:
        has = await sh(again, LOOK)
        more = await sh(again, "echo three > /usr/local/bin/other && cat /usr/local/bin/other")
    finally:
        await again.stop()
    wanted = [line for line in had.splitlines() if not line.startswith(("./pipe", "pipe"))]
    assert has.splitlines() == wanted
    assert more == "three\n"


async def test_more_than_the_bound_is_no_snapshot(tmp_path: Path) -> None:
    store = SnapshotStore(tmp_path / "trial", 1 << 20)
    box = await start_box(PLAN, "large")
    try:
        await sh(box, "head -c 3M /dev/zero > /app/large; truncate -s 50M /app/sparse")
        with pytest.raises(SandboxError, match="no snapshot: more than snapshot_mb was written"):
            await saved(box, store, 1, 1 << 20)
        assert await sh(box, "echo well") == "well\n"
    finally:
        await box.stop()


def test_the_oldest_go_first_and_packs_stay_while_they_are_needed(tmp_path: Path) -> None:
    store = SnapshotStore(tmp_path, 4000)
    for turn in range(1, 6):
        store.index(turn).touch()
        store.pack(turn).write_bytes(b"x" * 1000)
        # Each has the file that was written first.
        store.add(Snapshot(turn=turn, packs=tuple(sorted({1, turn}))))
    assert store.turns()[-1] == 5
    assert store.turns()[0] > 1
    assert store.pack(1).exists()
    assert not store.pack(2).exists()
    assert store.size() <= 4000


def test_a_fork_takes_the_nearest_snapshot_that_is_exact(tmp_path: Path) -> None:
    store = SnapshotStore(tmp_path, 1 << 20)
    store.add(Snapshot(turn=1))
    store.add(Snapshot(turn=3, programs=("python3 -m http.server",)))
    found = nearest([tmp_path / "none", tmp_path], 3)
    assert found is not None
    assert found.snapshot.turn == 1
    asked = nearest([tmp_path], 3, inexact=True)
    assert asked is not None
    assert asked.snapshot.turn == 3


def test_the_snapshots_of_a_killed_run_are_removed_at_the_next_start(tmp_path: Path) -> None:
    directory = tmp_path / "snapshots"
    (directory / "trial").mkdir(parents=True)
    hold = (
        "import asyncio, sys, time; from pathlib import Path\n"
        "from tbtui.rollout.environments.snapshots import held_snapshots\n"
        "async def hold():\n"
        "    async with held_snapshots(Path(sys.argv[1]), keep=False):\n"
        "        print('held', flush=True); time.sleep(60)\n"
        "asyncio.run(hold())\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", hold, str(directory)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    with process, process.stdout as said:
        assert said.readline() == "held\n"
        reap_leftovers(state_directory())
        assert directory.exists()  # its run lives
        process.send_signal(signal.SIGKILL)
    reap_leftovers(state_directory())
    assert not directory.exists()
