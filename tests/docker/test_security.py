"""What a hostile trial tries, in a real container."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import psutil
import pytest
from harbor.environments.base import SandboxBuildFailedError

from tbtui.rollout.environments.base import SandboxError, SandboxLostError
from tbtui.rollout.environments.build import UnbuildableError
from tests.docker.conftest import Starter, docker
from tests.waiting import until


@pytest.mark.starves
async def test_a_fork_bomb_stays_in_its_container(start: Starter) -> None:
    environment = await start(processes=64)
    await environment.exec("bomb() { bomb | bomb & }; bomb >/dev/null 2>&1", timeout_sec=20)
    top = docker("top", environment.running.container, "-eo", "pid")
    assert len(top.splitlines()) <= 65  # a heading too


@pytest.mark.starves
async def test_a_full_disk_is_the_containers_own(start: Starter) -> None:
    environment = await start(storage_mb=64)
    one = await environment.exec("head -c 100M /dev/zero > /one")
    assert one.return_code != 0
    assert "File too large" in (one.stderr or "") or one.return_code == 153
    with pytest.raises(SandboxLostError, match="storage limit"):
        await environment.exec(
            "for i in $(seq 8); do head -c 32M /dev/zero > /part$i; done; sleep 60"
        )


@pytest.mark.starves
@pytest.mark.parametrize(
    "files",
    [
        {"Dockerfile": "FROM debian:bookworm-slim\nVOLUME /data\n"},
        {"docker-compose.yaml": "services: {main: {volumes: ['d1:/data']}}\nvolumes: {d1: {}}\n"},
    ],
    ids=["anonymous", "named"],
)
async def test_volumes_count_as_disk(start: Starter, files: dict[str, str]) -> None:
    environment = await start(storage_mb=64, files=files)
    with pytest.raises(SandboxLostError, match="more than its storage limit"):
        await environment.exec(
            "for i in $(seq 8); do head -c 32M /dev/zero > /data/part$i; done; sleep 60"
        )


@pytest.mark.parametrize(
    "files",
    [
        {"Dockerfile": "FROM debian:bookworm-slim\nHEALTHCHECK --interval=1ms CMD true\n"},
        {
            "docker-compose.yaml": "services: {main: {healthcheck: {test: [CMD, 'true'],"
            " interval: 1ms}}}\n"
        },
    ],
    ids=["image", "compose"],
)
async def test_health_checks_have_pauses(start: Starter, files: dict[str, str]) -> None:
    with pytest.raises(UnbuildableError, match="main: a health check every 1 ms, at most one a s"):
        await start(files=files)
    await start(files=files, trust_compose=True)


@pytest.mark.starves
@pytest.mark.timeout(400)
async def test_ten_gigabytes_of_output(start: Starter) -> None:
    environment = await start()
    before = psutil.Process().memory_info().rss
    result = await environment.exec("head -c 10G /dev/zero")
    assert result.return_code == 0
    assert len(result.stdout or "") < 16 << 20
    assert "bytes of output not kept" in (result.stdout or "")
    assert psutil.Process().memory_info().rss - before < 256 << 20
    # Nor through the first process's own output, which the engine keeps on the host's disk.
    written = await environment.exec("head -c 200M /dev/zero | tr '\\0' x > /proc/1/fd/1")
    assert written.return_code == 0
    form = "{{.LogPath}}"
    log = docker("inspect", "--format", form, environment.running.container).decode().strip()
    if os.geteuid() == 0:
        assert sum(p.stat().st_size for p in Path(log).parent.glob(f"{Path(log).name}*")) < 32 << 20


async def test_what_is_planted_for_the_download_stays_behind(
    start: Starter, tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("secret")
    environment = await start()
    await environment.exec(
        f"""cd /logs/verifier && echo 1 > real && ln real hard && ln -s {secret} link &&
        ln -s / root && mkfifo fifo && mkdir -p inner && ln -s {tmp_path} inner/up &&
        mknod null c 1 3; ln -s {secret} /logs/agent/trial.log"""
    )
    target = tmp_path / "verifier"
    target.mkdir()
    (target / "inner").symlink_to(tmp_path)  # as if an earlier download had been fooled
    with pytest.raises((SandboxError, OSError)):
        await environment.exec("touch /logs/verifier/inner/written")
        await environment.download_dir("/logs/verifier", target)
    assert not (tmp_path / "written").exists()
    (target / "inner").unlink()
    await environment.download_dir("/logs/verifier", target)
    got = {p.name for p in target.rglob("*")}
    assert got in ({"inner", "written", "real"}, {"inner", "written", "hard"})
    assert not any(p.is_symlink() for p in target.rglob("*"))

    await environment.exec(f"rm -r /logs/verifier; ln -s {secret} /logs/verifier")
    again = tmp_path / "again"
    with pytest.raises(SandboxError):
        await environment.download_dir("/logs/verifier", again)
    assert list(again.iterdir()) == []


@pytest.mark.parametrize("place", ["${HOST_AGENT_LOGS_PATH}", "."])
async def test_a_link_that_one_container_makes_is_no_way_out_for_the_next(
    start: Starter, place: str
) -> None:
    compose = f"""\
services:
  main:
    command: ["sh", "-c", "ln -s / /shared/out || mkdir /tmp/refused; touch /tmp/up; sleep inf"]
    volumes: ["{place}:/shared"]
    healthcheck: {{test: ["CMD", "test", "-f", "/tmp/up"], interval: 1s, retries: 30}}
  later:
    image: debian:bookworm-slim
    command: ["sleep", "infinity"]
    volumes: ["{place}/out:/out"]
    depends_on: {{main: {{condition: service_healthy}}}}
"""
    files = {"docker-compose.yaml": compose}
    if place != ".":
        with pytest.raises(SandboxBuildFailedError, match=r"later: mounts .*/logs/agent/out"):
            await start(files=files)
        return
    environment = await start(files=files)
    assert (await environment.exec("test -d /tmp/refused")).return_code == 0
    seen = await environment.service_exec("ls /out", service="later")
    assert (seen.stdout or "") == ""


async def test_what_can_not_be_emptied_is_not_verified(start: Starter) -> None:
    environment = await start()
    await environment.exec("mkdir -p /tests; touch /tests/conftest.py; ln -s x /logs/verifier/x")
    await environment.empty_dirs(["/logs/verifier", "/tests"])
    left = await environment.exec("find /logs/verifier /tests -mindepth 1")
    assert (left.return_code, left.stdout) == (0, "")

    await environment.exec(
        """echo '{"reward": 1}' > /logs/verifier/reward.json; ln -s nowhere /tests/conftest.py
        for p in find rm mkdir bash sh; do rm -f /usr/bin/$p.new
        printf '#!/bin/perl\n' > /usr/bin/$p.new; chmod +x /usr/bin/$p.new; done
        for p in find rm mkdir sh bash; do mv /usr/bin/$p.new /usr/bin/$p; done"""
    )
    for directory, left_in_it in (("/logs/verifier", "reward.json"), ("/tests", "conftest.py")):
        with pytest.raises(SandboxError, match=f"{directory} can't be emptied of .*{left_in_it}"):
            await environment.empty_dirs([directory])


async def test_a_download_is_bounded(start: Starter, tmp_path: Path) -> None:
    environment = await start()
    await environment.exec("truncate -s 8G /logs/verifier/sparse")
    with pytest.raises(SandboxError, match="download refused"):
        await environment.download_dir("/logs/verifier", tmp_path / "sparse")


async def test_a_daemon_does_not_outlive_its_trial(start: Starter) -> None:
    environment = await start()
    await environment.exec("setsid nohup sleep 86399 >/dev/null 2>&1 & disown")

    def daemons() -> list[psutil.Process]:
        running = psutil.process_iter(["cmdline"])
        return [each for each in running if (each.info["cmdline"] or [])[:2] == ["sleep", "86399"]]

    if os.geteuid() == 0:  # others don't see a container's processes everywhere
        await until(daemons)
    started = daemons()
    await environment.stop(delete=True)
    _, alive = await asyncio.to_thread(psutil.wait_procs, started, timeout=5)
    assert not alive


async def test_nothing_of_the_host_is_visible(
    start: Starter, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def clients() -> list[list[str]]:
        lines = [p.info["cmdline"] for p in psutil.process_iter(["cmdline"]) if p.info["cmdline"]]
        return [line for line in lines if line[-1] == "sleep 2"]

    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-host")
    environment = await start(task={"network_mode": "no-network"})
    seen = (await environment.exec("env; cat /proc/1/environ /proc/self/environ")).stdout or ""
    assert "sk-of-the-host" not in seen
    mounts = (await environment.exec("cat /proc/self/mountinfo")).stdout or ""
    assert str(tmp_path) not in mounts
    assert "docker.sock" not in mounts
    listed = await environment.exec(
        "ls /sys/class/net /root /home /var/run/docker.sock /dev/vda /dev/sda 2>/dev/null"
    )
    assert (listed.stdout or "").split() == ["/home:", "/root:", "/sys/class/net:", "lo"]
    hosts = {str(p.pid) for p in psutil.process_iter()}
    inside = await environment.exec("ls -d /proc/[0-9]* | wc -l")
    assert int(inside.stdout or 0) < min(10, len(hosts))
    # Neither by a command line that other users of the host can read.
    holding = asyncio.create_task(environment.exec("sleep 2", env={"GIVEN": "for-the-task"}))
    await until(lambda: bool(clients()))
    assert not any("for-the-task" in word for line in clients() for word in line)
    await holding


async def test_the_hosts_disk_is_not_what_fills_the_terminal_log(start: Starter) -> None:
    environment = await start()
    await environment.exec("head -c 200M /dev/zero >> /logs/agent/terminal.pane")
    await environment.download_dir("/logs/agent", environment.trial_paths.agent_dir)
    pane = environment.trial_paths.agent_dir / "terminal.pane"
    assert pane.stat().st_size <= 64 << 20
    # Whoever ends the log's reader ends the log, and nothing else.
    await environment.exec(
        "for p in /proc/[0-9]*; do grep -qs tail $p/comm && kill ${p#/proc/}; done"
    )
    assert (await environment.exec("true")).return_code == 0


async def test_the_teardown_does_not_wait_for_the_containers_consent(start: Starter) -> None:
    environment = await start()
    await environment.exec("trap '' TERM INT; (trap '' TERM; sleep 1000) >/dev/null 2>&1 &")
    async with asyncio.timeout(5):
        await environment.stop(delete=True)
