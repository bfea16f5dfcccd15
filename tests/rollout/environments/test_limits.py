"""Nothing a box does hurts the host. As an ordinary user no control group helps."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tbtui.rollout.environments import box_start, cgroups
from tbtui.rollout.environments.box import Box
from tbtui.rollout.environments.cgroups import (
    CgroupHost,
    autogroups,
    find_cgroups,
    make_box_cgroup,
    remove_orphans,
)
from tbtui.rollout.environments.limits import MIB, RESERVED_PROCESSES, BoxReport, box_limits
from tests.rollout.environments.boxes import STARTERS, limits, processes_of, running_box, sh
from tests.waiting import until

pytestmark = pytest.mark.uid

AsUser = Callable[[Callable[[], Awaitable[None]]], None]
HOG = "python3 -c 'x = bytearray({} << 20); print(len(x))'"
FORK_FOR_EVER = (
    "python3 -c 'import os\nwhile True:\n try:\n  if os.fork() == 0: os.setsid()\n"
    " except OSError: pass'"
)
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
        spin = await sh(box, "while :; do :; done", timeout_sec=100)
        assert spin.exit_code == 128 + 9


CHECKS = {"memory": _memory, "processes": _processes, "files": _files, "cpu": _cpu}


@pytest.mark.slow
@pytest.mark.starves
@pytest.mark.parametrize("name", sorted(CHECKS))
def test_limit(by_anyone: AsUser, name: str) -> None:
    by_anyone(CHECKS[name])


async def _until(box: Box, condition: Callable[[BoxReport], bool]) -> BoxReport:
    async with asyncio.timeout(100):
        while not condition(report := await box.report()):  # noqa: ASYNC110
            await asyncio.sleep(0.1)
    return report


async def _bombs_are_ended() -> None:
    async with running_box(limit=limits(memory_mb=1024, processes=80)) as box:
        bomb = await sh(box, f"{FORK_FOR_EVER} & wait", timeout_sec=100)
        assert bomb.exit_code == 128 + 9
        report = await _until(box, lambda report: not report.at_limit)
        assert report.bombs >= 1
        assert report.used_up
        assert (await sh(box, "echo fine")).stdout == "fine\n"


@pytest.mark.slow
@pytest.mark.starves
def test_bombs_are_ended(by_anyone: AsUser) -> None:
    by_anyone(_bombs_are_ended)


def _oom_score(box: Box) -> int:
    return int(Path(f"/proc/{box.init_pid}/oom_score_adj").read_text())


async def _goes_after_its_commands() -> None:
    async with running_box() as box:
        lower = "echo 0 > /proc/self/oom_score_adj; cat /proc/self/oom_score_adj"
        tried = await sh(box, lower)
        assert "Read-only file system" in tried.stderr
        assert int(tried.stdout) > _oom_score(box) > 0


def test_the_first_process_goes_after_its_commands(by_anyone: AsUser) -> None:
    by_anyone(_goes_after_its_commands)


@pytest.mark.slow
@pytest.mark.starves
@pytest.mark.skipif("memory" not in find_cgroups().parents, reason="no control groups")
async def test_the_kernel_ends_commands_and_not_the_box() -> None:
    async with running_box(limit=limits(memory_mb=24, storage_mb=64, processes=400)) as box:
        await sh(box, f"{FORK_FOR_EVER} &")
        await _until(box, lambda report: report.memory_kills > 10)
        assert box.lost is None


@pytest.mark.slow
@pytest.mark.starves
@pytest.mark.parametrize("backend", sorted(STARTERS))
async def test_the_verifier_has_room_where_the_agent_has_left_none(backend: str) -> None:
    fill = "i=0; while : > /tmp/$i; do i=$((i + 1)); done 2> /dev/null"
    disk = "head -c 100M /dev/zero > /app/1; head -c 100M /dev/zero > /app/2"
    async with running_box(backend, limit=limits(storage_mb=16)) as box:
        await sh(box, disk if backend == "bubblewrap" else fill, timeout_sec=100)
        assert (await box.report()).disk_full
        assert (await sh(box, "echo 1 > /tmp/reward")).exit_code != 0
        await box.make_room()
        assert (await sh(box, "echo 1 > /var/tmp/reward; cat /var/tmp/reward")).stdout == "1\n"


async def _runs_at_a_low_priority() -> None:
    os.nice(15)
    async with running_box() as box:
        assert int((await sh(box, "nice")).stdout) >= 15


def test_a_box_of_a_run_with_a_low_priority(as_user: AsUser) -> None:
    as_user(_runs_at_a_low_priority)


@pytest.mark.skipif("cpu" not in find_cgroups().parents, reason="no control groups")
async def test_every_box_has_a_share_of_the_cpu() -> None:
    async with running_box() as box:
        host = find_cgroups()
        (group,) = host.parents["cpu"].glob(f"tbtui-{box.name}")
        name = "cpu.weight" if host.kind == "v2" else "cpu.shares"
        default = 100 if host.kind == "v2" else 1024
        assert int((group / name).read_text()) == default
        assert str(box.init_pid) in (group / "cgroup.procs").read_text().split()


@pytest.mark.slow
@pytest.mark.starves
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core")
async def test_a_box_that_crowds_the_cpu_has_one_core_where_no_group_weighs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(box_start, "find_cgroups", lambda: CgroupHost("none", {}))
    cores = len(os.sched_getaffinity(0))
    async with running_box(limit=limits(processes=5 * cores + 40)) as box:
        await sh(box, f"for i in $(seq {5 * cores}); do setsid sh -c 'while :; do :; done' & done")
        await _until(box, lambda report: report.runnable > 4 * cores)
        busy = processes_of(box)[-1]
        await until(lambda: len(os.sched_getaffinity(busy)) == 1)
        stalled = (await box.report()).stalled_sec
        await asyncio.sleep(2)
        # What it waits for is its own doing.
        assert (await box.report()).stalled_sec == stalled
        if autogroups():
            weight = Path(f"/proc/{busy}/autogroup")
            await _until(box, lambda _: int(weight.read_text().split()[2]) > 5)
            for pid in set(processes_of(box)) - {box.init_pid, busy}:
                os.kill(pid, signal.SIGKILL)
            await _until(box, lambda _: int(weight.read_text().split()[2]) == 0)
        await sh(box, "kill -9 -1")
        await _until(box, lambda report: report.runnable < cores)
        assert int((await sh(box, "nproc")).stdout) == cores


def test_fewer_processes_where_no_group_confines_them(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for names in ((), ("pids",), ("cpu", "pids")):
        host = CgroupHost("v1", dict.fromkeys(names, Path("/")))
        monkeypatch.setattr(cgroups, "find_cgroups", lambda host=host: host)
        found.append(cgroups.default_processes())
    assert 100 < found[0] == found[1] < found[2]


def test_sizes_are_cut_to_the_host() -> None:
    small = box_limits(memory_mb=4096, storage_mb=10_240, host_memory_bytes=2048 * MIB)
    assert small.memory_bytes == 1024 * MIB
    assert small.storage_bytes == 256 * MIB


def test_cores() -> None:
    two = box_limits(cpus=2)
    assert two.cpu_set(frozenset({0, 1, 2, 3}), 1) == [2, 3]
    assert two.cpu_set(frozenset({0, 1}), 1) == []
    assert box_limits().cpu_set(frozenset({0, 1}), 1) == []
    assert box_limits(cpus=0.5).cpu_set(frozenset({0, 1}), 1) == [1]


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
    group = make_box_cgroup(host, "b1", box_limits(memory_mb=100, storage_mb=100, cpus=0.5))
    assert group.held == {"memory", "pids", "cpu"}
    assert group.directories == (tmp_path / "user.slice" / "tbtui-b1",)
    written = {p.name: p.read_text() for p in group.directories[0].iterdir()}
    assert written == {
        "memory.max": str(200 * MIB),
        "pids.max": str(512 + RESERVED_PROCESSES),
        "cpu.max": "50000 100000",
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
