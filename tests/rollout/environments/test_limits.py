"""Nothing a box does hurts the host. As an ordinary user no control group helps."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tbtui.rollout.environments.cgroups import (
    CgroupHost,
    find_cgroups,
    make_box_cgroup,
    remove_orphans,
)
from tbtui.rollout.environments.limits import MIB, RESERVED_PROCESSES, box_limits
from tests.rollout.environments.boxes import limits, running_box, sh

AsUser = Callable[[Callable[[], Awaitable[None]]], None]
HOG = "python3 -c 'x = bytearray({} << 20); print(len(x))'"
FORK_BOMB = "f() { f | f & }; f; sleep 0.3; true"


async def _memory() -> None:
    async with running_box(limit=limits(memory_mb=100)) as box:
        hog = await sh(box, HOG.format(400))
        assert hog.exit_code != 0
        assert not hog.stdout
        several = await sh(
            box,
            f"for i in 1 2 3 4 5 6; do {HOG.format(70)[:-1]}; "
            "import time; time.sleep(1.5); print(1)' & done; wait",
        )
        assert several.stdout.count("1\n") < 6
        assert (await sh(box, "echo fine")).stdout == "fine\n"


async def _processes() -> None:
    async with running_box(limit=limits(processes=60)) as box:
        bomb = await sh(box, FORK_BOMB)
        assert "Resource temporarily unavailable" in bomb.stderr or bomb.exit_code
        listed = await box.run(["/bin/ls", "/proc"], environment={}, cwd="/")
        assert len([name for name in listed.stdout.split() if name.isdigit()]) <= 60 + 2


async def _files() -> None:
    async with running_box(limit=limits(storage_mb=32)) as box:
        one = await sh(box, "head -c 50M /dev/zero > /app/big")
        assert one.exit_code != 0
        many = await sh(box, "for i in 1 2 3 4 5; do head -c 10M /dev/zero > /tmp/$i; done")
        assert "No space left on device" in many.stderr
        shm = await sh(box, "head -c 10M /dev/zero > /dev/shm/x")
        assert shm.exit_code != 0
        sparse = await sh(box, "truncate -s 1T /app/sparse")
        assert sparse.exit_code != 0
        await sh(box, "rm -f /app/big /tmp/*; echo back > /app/ok")
        assert (await sh(box, "cat /app/ok")).stdout == "back\n"


async def _cpu() -> None:
    async with running_box(limit=limits(cpu_seconds=1)) as box:
        spin = await sh(box, "while :; do :; done")
        assert spin.exit_code == 128 + 9


CHECKS = {"memory": _memory, "processes": _processes, "files": _files, "cpu": _cpu}


@pytest.mark.parametrize("name", sorted(CHECKS))
async def test_limit(name: str) -> None:
    await CHECKS[name]()


@pytest.mark.parametrize("name", ["memory", "processes", "files"])
def test_limit_as_ordinary_user(as_user: AsUser, name: str) -> None:
    as_user(CHECKS[name])


def test_sizes_are_cut_to_the_host() -> None:
    small = box_limits(memory_mb=4096, storage_mb=10_240, host_memory_bytes=2048 * MIB)
    assert small.memory_bytes == 1024 * MIB
    assert small.storage_bytes == 256 * MIB


def test_cores() -> None:
    two = box_limits(cpus=2)
    assert two.cpu_set(frozenset({0, 1, 2, 3}), 1) == [2, 3]
    assert two.cpu_set(frozenset({0, 1}), 1) == []
    assert box_limits().cpu_set(frozenset({0, 1}), 1) == []


def _fake_v2(root: Path, own: str) -> Path:
    (root / "user.slice" / "session").mkdir(parents=True)
    for group in (root, root / "user.slice"):
        (group / "cgroup.subtree_control").write_text("cpu memory pids")
        (group / "cgroup.procs").write_text("")
    (root / "cgroup.controllers").write_text("cpu memory pids")
    membership = root / "membership"
    membership.write_text(f"0::{own}\n")
    return membership


def test_cgroup_v2_is_a_sibling_with_all_limits(tmp_path: Path) -> None:
    membership = _fake_v2(tmp_path, "/user.slice/session")
    host = find_cgroups(tmp_path, membership)
    assert host.kind == "v2"
    group = make_box_cgroup(host, "b1", box_limits(memory_mb=100, storage_mb=100, cpus=1))
    assert group.held == {"memory", "pids", "cpu"}
    assert group.directories == (tmp_path / "user.slice" / "tbtui-b1",)
    written = {p.name: p.read_text() for p in group.directories[0].iterdir()}
    assert written == {
        "memory.max": str(200 * MIB),
        "pids.max": str(512 + RESERVED_PROCESSES),
        "cpu.max": "100000 100000",
    }


def test_cgroup_none(tmp_path: Path) -> None:
    membership = tmp_path / "membership"
    membership.write_text("0::/\n")
    assert find_cgroups(tmp_path, membership).kind == "none"


def test_orphaned_cgroups_are_removed(tmp_path: Path) -> None:
    host = CgroupHost("v2", {"memory": tmp_path, "pids": tmp_path})
    for name in (
        "tbtui-a-b-77-abc",
        "tbtui-a-88-abc",
        "tbtui-young-77-abc",
        "tbtui-x",
        "other-77-a",
    ):
        (tmp_path / name).mkdir()
        if "young" not in name:
            os.utime(tmp_path / name, (0, 0))
    assert remove_orphans(host, lambda pid, age: pid == 77 and age > 60) == 1
    assert not (tmp_path / "tbtui-a-b-77-abc").exists()
    assert len(list(tmp_path.iterdir())) == 4
    assert remove_orphans(host, lambda pid, age: pid == 77) == 1
    assert not (tmp_path / "tbtui-young-77-abc").exists()
