"""What a box can see and reach, as root's box, as an ordinary user's, and bubblewrap's."""

# ruff: noqa: ASYNC240
from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tbtui.rollout.environments.plan import Bind
from tests.rollout.environments.boxes import STARTERS, running_box, sh

pytestmark = pytest.mark.uid

AsUser = Callable[[Callable[[], Awaitable[None]]], None]
SECRET = "host-secret-4711"


@pytest.fixture(params=sorted(STARTERS))
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


async def _sees_nothing_of_the_host(backend: str) -> None:
    marker = Path("/tmp") / f"tbtui-marker-{os.getpid()}"
    marker.write_text(SECRET)
    try:
        async with running_box(backend) as box:
            result = await sh(box, f"cat {marker}; ls -A /tmp /home /root /mnt /run/user /srv /opt")
            assert SECRET not in result.stdout
            top = set((await sh(box, "ls -A /")).stdout.split())
            assert top <= {
                *("app", "bin", "dev", "etc", "home", "lib", "lib32", "lib64", "libx32", "logs"),
                *("mnt", "opt", "proc", "root", "run", "sbin", "solution", "srv", "sys", "tests"),
                *("tmp", "usr", "var"),
            }
            assert (await sh(box, "ls -A /home /opt /srv /mnt /var/lib")).stdout.split() == [
                *("/home:", "/mnt:", "/opt:", "/srv:", "/var/lib:")
            ]
            pids = (await sh(box, "for p in /proc/[0-9]*; do cat $p/comm; done")).stdout.split()
            assert len(pids) <= 4
            passwd = (await sh(box, "cat /etc/passwd")).stdout
            assert len(passwd.splitlines()) < 12
            interfaces = (await sh(box, "cat /proc/net/dev")).stdout.splitlines()[2:]
            assert [line.split(":")[0].strip() for line in interfaces] == ["lo"]
            assert (await sh(box, "hostname; id -u; pwd")).stdout.split() == ["box", "0", "/app"]
            assert "/" not in (await sh(box, "cat /proc/1/cmdline")).stdout
    finally:
        marker.unlink()


async def _cannot_get_out(backend: str) -> None:
    async with running_box(backend) as box:
        # All others are tried by `tests/attacks/test_reach.py`, in a trial.
        for attempt in (
            "mount -t tmpfs none /mnt",
            "unshare -Ur true",
            "echo 10000 > /proc/sys/user/max_user_namespaces",
            "cat /proc/1/environ",
            "chroot /proc/1/root true",
        ):
            result = await sh(box, attempt)
            assert result.exit_code != 0, attempt
        # Signals from inside do nothing to the box's first process.
        await sh(box, "kill -9 1; kill -STOP 1; kill -TERM 1")
        assert (await sh(box, "echo alive")).stdout == "alive\n"
        # All of the host's /usr is the same afterwards, whatever the box does to its own.
        target = Path("/usr/bin/env")
        before = target.stat()
        await sh(box, "rm -f /usr/bin/env; echo x > /usr/bin/env; rm -rf /usr/share/doc")
        assert target.stat() == before


def test_sees_nothing_of_the_host(by_anyone: AsUser, backend: str) -> None:
    by_anyone(lambda: _sees_nothing_of_the_host(backend))


def test_cannot_get_out(by_anyone: AsUser, backend: str) -> None:
    by_anyone(lambda: _cannot_get_out(backend))


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root's own files")
async def test_box_root_is_not_the_hosts_root(tmp_path: Path) -> None:
    private = tmp_path / "granted"
    private.mkdir()
    (private / "secret").write_text(SECRET)
    (private / "secret").chmod(0o600)
    async with running_box(grants=(Bind(str(private), "/granted"),)) as box:
        assert (await sh(box, "cat /granted/secret")).exit_code != 0
        status = Path(f"/proc/{box.init_pid}/status").read_text()
        uid = next(line for line in status.splitlines() if line.startswith("Uid:")).split()[1]
        assert int(uid) > 100_000


async def _nothing_below_a_grant_is_writable(backend: str) -> None:
    if not os.path.ismount("/dev/shm"):
        pytest.skip("nothing is mounted below /dev here")
    async with running_box(backend, grants=(Bind("/dev", "/granted"),)) as box:
        name = f"tbtui-test-{os.getpid()}"
        written = await sh(box, f"echo x > /granted/shm/{name}")
        assert written.exit_code != 0
        assert "Read-only file system" in written.stderr
        assert not Path("/dev/shm", name).exists()
        mounts = [line.split() for line in (await sh(box, "cat /proc/mounts")).stdout.splitlines()]
        granted = {place: options.split(",") for _, place, _, options, *_ in mounts}
        granted = {p: o for p, o in granted.items() if p.split("/")[1] == "granted"}
        assert "/granted/shm" in granted
        assert all({"ro", "nosuid", "nodev"} <= set(options) for options in granted.values())


def test_nothing_below_a_grant_is_writable(by_anyone: AsUser, backend: str) -> None:
    by_anyone(lambda: _nothing_below_a_grant_is_writable(backend))


OLD_KERNEL = """
import os, sys
from tbtui.rollout.environments import box_init
uid, gid = os.geteuid(), os.getegid()
os.unshare(os.CLONE_NEWUSER | os.CLONE_NEWNS)
for name, text in ("setgroups", "deny"), ("uid_map", f"0 {uid} 1"), ("gid_map", f"0 {gid} 1"):
    with open(f"/proc/self/{name}", "w") as file:
        file.write(text)
box_init._mount("none", "/", None, box_init.MS_REC | box_init.MS_PRIVATE)
box_init._set_read_only = lambda target: False
box_init._bind("/dev", sys.argv[1], read_only=True)
try:
    open(f"{sys.argv[1]}/shm/tbtui-test-old-kernel", "w")
except OSError as error:
    print(error.strerror)
"""


@pytest.mark.skipif(not os.path.ismount("/dev/shm"), reason="nothing is mounted below /dev here")
def test_nothing_below_a_grant_is_writable_on_an_old_kernel(tmp_path: Path) -> None:
    place = tmp_path / "with blanks and \\"
    place.mkdir()
    command = [sys.executable, "-c", OLD_KERNEL, str(place)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout == "Read-only file system\n", done.stderr


async def test_grants_are_read_only_unless_asked(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    (tmp_path / "data").write_text("d")
    async with running_box(grants=(Bind(str(tmp_path), "/data"),)) as box:
        assert (await sh(box, "cat /data/data")).stdout == "d"
        assert (await sh(box, "echo x > /data/new")).exit_code != 0


async def test_network_of_the_host_when_allowed() -> None:
    server = await asyncio.start_server(lambda r, w: w.close(), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with running_box(network=True) as box, server:
        assert (await sh(box, f"exec 3<>/dev/tcp/127.0.0.1/{port}")).exit_code == 0


async def test_userland_can_be_added_to() -> None:
    async with running_box() as box:
        script = (
            "cd /usr/local/bin && printf '#!/bin/sh\\necho mine\\n' > mine && chmod +x mine && mine"
            " && mkdir /etc/service /opt/x /var/lib/y && rm /usr/bin/yes && ! command -v yes"
        )
        result = await sh(box, script)
        assert (result.exit_code, result.stdout) == (0, "mine\n")


@pytest.mark.skipif(os.geteuid() != 0, reason="one user only in an ordinary user's box")
async def test_users() -> None:
    async with running_box() as box:
        result = await sh(
            box, "id -un; echo $HOME; touch /tmp/f; stat -c %U /tmp/f", user="www-data"
        )
        assert result.stdout.split() == ["www-data", "/root", "www-data"]
        assert (await sh(box, "id -u; id -g", user="1000:1001")).stdout.split() == ["1000", "1001"]
        assert (await sh(box, "cat /root/x", user="nobody")).exit_code != 0
        missing = await sh(box, "true", user="nosuch")
        assert missing.exit_code == 126
        assert "no user 'nosuch'" in missing.stderr
        assert (await sh(box, "useradd -m agent && id agent")).exit_code == 0


def test_another_user_is_refused_where_there_is_one(as_user: AsUser) -> None:
    async def body() -> None:
        async with running_box() as box:
            result = await sh(box, "true", user="nobody")
            assert result.exit_code == 126
            assert "can't become user nobody" in result.stderr

    as_user(body)
