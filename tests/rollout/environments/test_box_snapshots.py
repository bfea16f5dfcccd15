"""Snapshots of boxes: what comes back, what is copied, how they are thinned, and their end."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tbtui.rollout.environments.base import SandboxError
from tbtui.rollout.environments.box import Box, SavedBox
from tbtui.rollout.environments.ledger import state_directory
from tbtui.rollout.environments.leftovers import reap_leftovers
from tbtui.rollout.environments.plan import Restored, plan_box
from tbtui.rollout.environments.snapshots import (
    STATE_IMAGES,
    Snapshot,
    SnapshotStore,
    nearest,
    remove_images,
)
from tests.rollout.environments.boxes import limits, running_box

pytestmark = pytest.mark.uid

PLAN = plan_box(limits(), keeps_state=True)
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
    async with running_box(plan=PLAN) as box:
        await sh(box, CHANGES)
        first = await saved(box, store, 1)
        store.add(Snapshot(turn=1, packs=tuple(first.packs)))
        await sh(box, "echo two > /app/second")
        second = await saved(box, store, 2)
        had = await sh(box, LOOK)
    # Only what has changed is copied.
    assert second.written < 100 < first.written
    assert second.packs == {1, 2}
    packs = {number: store.pack(number) for number in second.packs}
    restored = replace(PLAN, restored=Restored(store.index(2), packs))
    async with running_box(plan=restored) as again:
        has = await sh(again, LOOK)
        more = await sh(again, "echo three > /usr/local/bin/other && cat /usr/local/bin/other")
    wanted = [line for line in had.splitlines() if not line.startswith(("./pipe", "pipe"))]
    assert has.splitlines() == wanted
    assert more == "three\n"


async def test_more_than_the_bound_is_no_snapshot(tmp_path: Path) -> None:
    store = SnapshotStore(tmp_path / "trial", 1 << 20)
    async with running_box(plan=PLAN) as box:
        await sh(box, "head -c 3M /dev/zero > /app/large; truncate -s 50M /app/sparse")
        with pytest.raises(SandboxError, match="no snapshot: more than snapshot_mb was written"):
            await saved(box, store, 1, 1 << 20)
        assert await sh(box, "echo well") == "well\n"


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


def _line(kind: str, name: str, target: str = "", mode: int = 0o755, xattrs: str = "-") -> str:
    owner = f"{os.getuid()} {os.getgid()}"
    hexed = [os.fsencode(text).hex() or "-" for text in (name, target)]
    return f"- {kind} {mode} {owner} 0 0 0 4 1 0 {' '.join(hexed)} {xattrs}"


@pytest.fixture
def outside() -> Iterator[Path]:
    """A directory that a box may write to if it can reach it, with a file."""
    # Not in /tmp, which a box that is being made hides by its own.
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        directory = Path(name)
        directory.chmod(0o777)  # as root, a box is another user's
        secret = directory / "secret"
        secret.write_text("secret")
        secret.chmod(0o600)
        yield directory


def _assert_untouched(outside: Path) -> None:
    (secret,) = outside.iterdir()
    assert secret.read_text() == "secret"
    assert (secret.stat().st_mode & 0o777, secret.stat().st_nlink) == (0o600, 1)


@pytest.mark.parametrize(
    "lines",
    [
        [("f", "../..{out}")],
        [("f", "{out}")],
        [("d", "../..{out}")],
        [("l", "../..{out}", "/etc")],
        [("l", "way", "{parent}"), ("f", "way/written")],
        [("l", "way", "{out}"), ("f", "way")],
        [("l", "way", "../../../../../../..{parent}"), ("d", "way/written")],
        [("h", "copy", "../..{secret}")],
        [("l", "way", "{secret}"), ("h", "way/x", "way")],
        [("x", "../..{secret}")],
        [("f", "\udce4", "", 1 << 70)],
        [("f", "file", "", 0o644, "nothing")],
    ],
)
async def test_what_a_strangers_snapshot_names_stays_in_its_box(
    tmp_path: Path, outside: Path, lines: list[tuple[str, ...]]
) -> None:
    """Modes, links and files of an index that somebody has written by hand."""
    places = {"out": outside / "written", "parent": outside, "secret": outside / "secret"}
    store = SnapshotStore(tmp_path / "trial", 1 << 20)
    store.directory.mkdir()
    texts = [
        _line(kind, *(t.format(**places) if isinstance(t, str) else t for t in rest))  # type: ignore[arg-type]
        for kind, *rest in lines
    ]
    store.index(1).write_bytes("\n".join([_line("d", ""), *texts, ""]).encode())
    store.pack(1).write_bytes(b"evil")
    plan = replace(PLAN, restored=Restored(store.index(1), {1: store.pack(1)}))
    with contextlib.suppress(SandboxError):
        async with running_box(plan=plan) as box:
            assert "secret" not in await sh(box, "cat /copy /way/x 2>&1")
    _assert_untouched(outside)


async def test_what_a_strangers_directory_names_is_no_program_to_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Names of engines and images that somebody has written by hand; only ours are removed."""
    ran = tmp_path / "ran"
    for engine in ("docker", "evil"):
        program = tmp_path / engine
        program.write_text(f'#!/bin/sh\necho "{engine} $*" >>{ran}\n')
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    store = SnapshotStore(tmp_path / "trial")
    store.directory.mkdir()
    rows = [
        {"engine": "docker", "name": f"{STATE_IMAGES}:one"},
        {"engine": str(tmp_path / "evil"), "name": f"{STATE_IMAGES}:two"},
        {"engine": "evil", "name": f"{STATE_IMAGES}:three"},
        {"engine": "docker", "name": "--force somebody/image"},
        {"engine": "docker", "name": f"{STATE_IMAGES}:four\nsomebody/image"},
    ]
    for turn, row in enumerate(rows):
        (store.directory / f"turn-{turn:05d}.image").write_text(json.dumps(row))
    await remove_images(store.directory)
    assert ran.read_text() == f"docker image rm {STATE_IMAGES}:one\n"
    for turn, fields in enumerate(({"container_image": "a/b"}, {"hostname": "${HOME}"})):
        (store.directory / f"turn-{turn:05d}.json").write_text(json.dumps({"turn": turn} | fields))
        assert store.read(turn) is None
