"""The environment's own operations."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from harbor.environments.base import SandboxBuildFailedError
from harbor.models.task.config import NetworkMode, NetworkPolicy

from tbtui.rollout.environments.base import (
    ExecTimeoutError,
    SandboxError,
    SandboxLostError,
)
from tbtui.rollout.environments.docker import DockerEnvironment
from tbtui.rollout.environments.leftovers import projects_directory, reap_leftovers, remove_project
from tests.docker.conftest import Starter, docker, in_engine


async def said(environment: DockerEnvironment, command: str, **options: Any) -> str:
    result = await environment.exec(command, **options)
    assert result.return_code == 0, result
    return (result.stdout or "").strip()


async def test_exec(start: Starter) -> None:
    environment = await start(files={"Dockerfile": "FROM debian:bookworm-slim\nENV A=1\n"})
    result = await environment.exec("echo out; echo err >&2; exit 3")
    assert (result.stdout, result.stderr, result.return_code) == ("out\n", "err\n", 3)
    assert await said(environment, "echo $A$B", env={"B": "2 3"}) == "12 3"
    assert await said(environment, "pwd; id -u", cwd="/tmp", user="nobody") == "/tmp\n65534"

    # A daemon holds the pipe open; the command has ended all the same.
    await said(environment, "sleep 1000 & echo started")
    with pytest.raises(ExecTimeoutError):
        await environment.exec("sleep 2000 & sleep 3000", timeout_sec=1)
    processes = await said(environment, "cat /proc/[0-9]*/cmdline | tr '\\0' ' '")
    assert "sleep 1000" in processes
    assert "sleep 2000" not in processes
    assert "sleep 3000" not in processes


async def test_copies_both_ways(start: Starter, tmp_path: Path) -> None:
    environment = await start()
    source = tmp_path / "source"
    (source / "inner").mkdir(parents=True)
    (source / "inner" / "file").write_text("inner\n")
    (source / "run.sh").write_text("#!/bin/bash\necho ran\n")
    (source / "run.sh").chmod(0o700)
    await environment.upload_dir(source, "/new/place")
    await environment.upload_file(source / "run.sh", "/new/renamed")
    await environment.upload_file(source / "run.sh", "/new/place/inner")
    assert await said(environment, "/new/place/run.sh", user="root") == "ran"
    assert await said(environment, "cat /new/renamed; ls /new/place/inner; stat -c %u /new/renamed")
    assert await said(environment, "cat /new/place/inner/file", user="nobody") == "inner"

    target = tmp_path / "target"
    await environment.download_dir("/new/place", target)
    assert (target / "inner" / "file").read_text() == "inner\n"
    assert (target / "run.sh").stat().st_uid == os.geteuid()
    await environment.download_file("/new/renamed", tmp_path / "one")
    assert (tmp_path / "one").read_text() == "#!/bin/bash\necho ran\n"
    with pytest.raises(SandboxError):
        await environment.download_file("/nowhere", tmp_path / "two")
    with pytest.raises(SandboxError):
        await environment.download_file("/new/place", tmp_path / "two")
    assert not (tmp_path / "two").exists()


async def test_freeze_holds_every_process(start: Starter) -> None:
    environment = await start()
    await said(environment, "while :; do echo >> /tmp/ticks; done >/dev/null 2>&1 &")
    await environment.freeze()
    container = environment.running.container

    def ticks() -> int:
        return len(docker("cp", f"{container}:/tmp/ticks", "-"))

    before = ticks()
    asked = asyncio.create_task(environment.exec("true"))
    await asyncio.sleep(0.3)
    assert ticks() == before
    assert not asked.done(), "a command waits for the thaw"
    await environment.freeze()
    await environment.thaw()
    assert (await asked).return_code == 0
    await said(
        environment, "a=$(wc -c </tmp/ticks); until [ $(wc -c </tmp/ticks) -gt $a ]; do :; done"
    )
    await environment.freeze()  # a frozen one can be stopped


async def test_a_killed_container_is_lost_not_a_result(start: Starter) -> None:
    environment = await start()
    container = environment.running.container
    working = asyncio.create_task(environment.exec("sleep 1000"))
    while b"sleep 1000" not in docker("top", container):  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    docker("kill", container)
    with pytest.raises(SandboxLostError, match="exit code 137"):
        await working
    with pytest.raises(SandboxLostError):
        await environment.exec("true")
    with pytest.raises(SandboxError):
        await environment.download_file("/nowhere", environment.trial_paths.trial_dir / "x")


async def test_a_command_that_is_caught_by_the_containers_end_has_no_result(
    start: Starter,
) -> None:
    for delay in (0.0, 0.01, 0.02, 0.03, 0.05):
        environment = await start()
        working = asyncio.create_task(environment.exec("sleep 1000"))
        await asyncio.sleep(delay)
        await asyncio.to_thread(docker, "kill", environment.running.container)
        with pytest.raises(SandboxLostError):
            await working


async def test_what_a_command_says_does_not_make_it_lost(start: Starter) -> None:
    environment = await start()
    result = await environment.exec("echo Cannot connect to the Docker daemon >&2; exit 1")
    assert result.return_code == 1
    assert (await environment.exec("exit 137")).return_code == 137
    assert (await environment.exec("exit 126")).return_code == 126


async def test_the_image_is_built_once(start: Starter) -> None:
    dockerfile = "FROM debian:bookworm-slim\nRUN cat /proc/sys/kernel/random/uuid > /made\n"
    first, second = await asyncio.gather(
        *(start(files={"Dockerfile": dockerfile, "n": "same"}) for _ in range(2))
    )
    made = await said(first, "cat /made")
    assert made == await said(second, "cat /made")
    other = await start(files={"Dockerfile": dockerfile, "n": "other"})
    assert other.running.name != first.running.name


async def test_other_services(start: Starter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOST_SECRET", "hunter2")
    compose = """\
services:
  main:
    environment: {SEEN: "x${HOST_SECRET}", SAID: "${FROM_TASK}"}
    volumes: ["${HOST_AGENT_LOGS_PATH}:${ENV_AGENT_LOGS_PATH}", "kept:/kept"]
  other:
    build: {context: .}
    command: ["sleep", "infinity"]
volumes: {kept: {}}
"""
    environment = await start(
        files={"docker-compose.yaml": compose},
        task={"env": {"FROM_TASK": "given"}},
        default_network="none",
    )
    assert await said(environment, "echo $SEEN $SAID") == "x given"
    assert await said(environment, "getent hosts other | wc -l") == "1"
    await environment.service_exec("echo there > /tmp/file", service="other")
    target = environment.trial_paths.trial_dir / "from-other"
    await environment.service_download_file("/tmp/file", target, service="other")
    assert target.read_text() == "there\n"
    for limited in ("main", "other"):
        assert _inspect(environment, limited)["PidsLimit"] == 512
    # They reach each other and nobody else.
    assert (await environment.exec("timeout 2 bash -c '</dev/tcp/192.0.2.1/80'")).return_code != 0
    networks = f"label=com.docker.compose.project={environment.running.name}"
    listed = docker("network", "ls", "-q", "--filter", networks).decode().split()
    shown = docker("network", "inspect", *listed)
    assert [network["Internal"] for network in json.loads(shown)] == [True]


def _inspect(environment: DockerEnvironment, service: str) -> dict[str, object]:
    name = f"{environment.running.name}-{service}-1"
    limits: dict[str, object] = json.loads(docker("inspect", name))[0]["HostConfig"]
    return limits


async def test_limits_of_the_task_and_of_the_host(start: Starter) -> None:
    environment = await start(task={"cpus": 1000, "memory_mb": 96, "storage_mb": 32})
    limits = _inspect(environment, "main")
    assert limits["Memory"] == limits["MemorySwap"] == 96 << 20
    assert limits["NanoCpus"] == (os.cpu_count() or 1) * 10**9
    too_much = "python3 -c 'x = bytearray(200 << 20)'"
    assert (await environment.exec(too_much)).return_code == 137
    assert await said(environment, "ulimit -f; ulimit -n; ulimit -c") == "32768\n4096\n0"


async def test_network_changes_with_the_phase(start: Starter) -> None:
    environment = await start(task={"network_mode": "no-network"})
    assert await said(environment, "ls /sys/class/net") == "lo"
    await environment.set_network_policy(NetworkPolicy(network_mode=NetworkMode.PUBLIC))
    assert await said(environment, "ls /sys/class/net") == "eth0\nlo"
    await environment.set_network_policy(NetworkPolicy(network_mode=NetworkMode.NO_NETWORK))
    assert await said(environment, "ls /sys/class/net") == "lo"


async def test_the_network_is_the_tasks_to_say_and_can_be_off_by_default(start: Starter) -> None:
    silent = await start()
    assert await said(silent, "ls /sys/class/net") == "eth0\nlo"
    denied = await start(task={"network_mode": "no-network"})
    assert await said(denied, "ls /sys/class/net") == "lo"
    silent = await start(default_network="none")
    assert await said(silent, "ls /sys/class/net") == "lo"
    stated = await start(task={"network_mode": "public"}, default_network="none")
    assert await said(stated, "ls /sys/class/net") == "eth0\nlo"


MIGRATED = """\
services:
  main:
    build: {context: "${CONTEXT_DIR}"}
    image: ${MAIN_IMAGE_NAME}
    command: ["sh", "-c", "sleep infinity"]
    network_mode: ${NETWORK_MODE:-bridge}
    environment: ["TEST_DIR=${TEST_DIR}"]
    env_file: given.env
    deploy: {resources: {limits: {cpus: "${CPUS}", memory: "${MEMORY}"}}}
"""


async def test_a_migrated_tasks_limits(start: Starter, caplog: pytest.LogCaptureFixture) -> None:
    files = {"docker-compose.yaml": MIGRATED, "given.env": "GIVEN=yes\n"}
    stated = await start(files=files, task={"cpus": 1, "memory_mb": 96})
    limits = _inspect(stated, "main")
    assert (limits["Memory"], limits["PidsLimit"], limits["NanoCpus"]) == (96 << 20, 512, 10**9)
    assert not stated.running.notes
    assert await said(stated, "echo $TEST_DIR $GIVEN; ls /sys/class/net") == "/tests yes\neth0\nlo"
    # The image is named by the content of its directory, and is there by now.
    built = docker("inspect", "--format", "{{.Image}}", stated.running.container)
    silent = await start(files=files, memory_mb=64)
    limits = _inspect(silent, "main")
    assert (limits["Memory"], limits["NanoCpus"]) == (64 << 20, (os.cpu_count() or 1) * 10**9)
    assert docker("inspect", "--format", "{{.Image}}", silent.running.container) == built
    (note,) = silent.running.notes
    assert "${CPUS} and ${MEMORY}" in note
    assert "harbor task migrate --memory-mb --cpus" in note
    assert note in [record.message for record in caplog.records]


async def test_services_of_two_trials_at_once(start: Starter) -> None:
    compose = """\
services:
  main: {depends_on: {web: {condition: service_healthy}}}
  web:
    build: {context: ., dockerfile: Web}
    container_name: the-web
    command: ["sh", "-c", "python3 -c 'print(1)' && touch /tmp/up && sleep infinity"]
    ports: ["127.0.0.1:18431:80"]
    restart: unless-stopped
    healthcheck: {test: ["CMD", "test", "-f", "/tmp/up"], interval: 1s, retries: 30}
    deploy: {resources: {limits: {memory: 64M, cpus: "1000"}}}
    networks: [inner]
networks: {inner: {name: the-network}}
"""
    compose = compose.replace("main: {", "main: {networks: [inner], ")
    files = {"docker-compose.yaml": compose, "Web": "FROM debian:bookworm-slim\nENV A=built\n"}
    # An image in the place of `main`'s build has nothing to do with the other services' builds.
    task = {"docker_image": "debian:bookworm-slim"}
    both = await asyncio.gather(*(start(files=files, task=task) for _ in range(2)))
    for environment in both:
        assert await said(environment, "getent hosts the-web web | wc -l") == "2"
        shown = await environment.service_exec("echo $A", service="web")
        assert (shown.stdout or "").strip() == "built"
        limits = _inspect(environment, "web")
        assert (limits["Memory"], limits["PidsLimit"]) == (64 << 20, 512)
        assert not limits["PortBindings"]
        (note,) = environment.running.notes
        assert note.startswith("web: cpus lowered from 1000 to ")


async def test_what_a_task_builds_takes_no_others_name(start: Starter) -> None:
    def base() -> bytes:
        return docker("image", "inspect", "--format", "{{.Id}}", "debian:bookworm-slim")

    compose = """\
services:
  main: {}
  other:
    build: {context: ., dockerfile: Other}
    image: debian:bookworm-slim
    command: ["sleep", "infinity"]
  third: {image: "debian:bookworm-slim", command: ["sleep", "infinity"]}
"""
    before = base()
    files = {"docker-compose.yaml": compose, "Other": "FROM debian:bookworm-slim\nENV A=planted\n"}
    environment = await start(files=files)
    assert base() == before
    for service in ("other", "third"):
        said = await environment.service_exec("echo $A", service=service)
        assert (said.stdout or "").strip() == "planted"
    await environment.stop(delete=True)
    assert base() == before


async def test_a_tasks_variables_reach_the_container_and_not_the_client(
    start: Starter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    monkeypatch.setenv("DOCKER_PASSWORD", "of-the-host")
    compose = "services: {main: {environment: {P: 'x$DOCKER_PASSWORD$M', DOCKER_PASSWORD: null}}}\n"
    files = {"docker-compose.yaml": compose, ".env": "M=y\nLD_PRELOAD=./of-the-task.so\n"}
    task = {"env": {"DOCKER_HOST": "tcp://127.0.0.1:1", "LD_PRELOAD": "/no/such.so"}}
    environment = await start(files=files, task=task)
    assert await said(environment, "echo $P$DOCKER_PASSWORD") == "xy"
    # Nor do the programs that a client starts, such as a credential helper, get what `.env` says.
    clients = await environment.running.compose(["config", "--environment"])
    assert "M=y" not in clients.stdout.split()
    assert await said(environment, "echo $DOCKER_HOST") == "tcp://127.0.0.1:1"
    given = {"DOCKER_HOST": "tcp://127.0.0.1:2", "OTHER": "two\nlines"}
    assert await said(environment, 'echo $DOCKER_HOST; echo "$OTHER"', env=given) == (
        "tcp://127.0.0.1:2\ntwo\nlines"
    )


@pytest.mark.parametrize(
    ("wish", "top", "named"),
    [
        # All others are data of `tests/rollout/environments/test_docker_host_access.py`.
        ("volumes: ['../../..:/host']", "", "main: mounts /"),
        # Refused unread: this one has no end.
        ("env_file: ../../pipe", "", "env_file: ../../pipe"),
        ("volumes: ['data:/host']", "volumes: {data: {external: true}}", "volume data: external"),
    ],
)
async def test_a_compose_file_that_reaches_the_host_is_refused(
    start: Starter, wish: str, top: str, named: str, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "pipe")
    files = {"docker-compose.yaml": f"services: {{main: {{{wish}}}}}\n{top}\n"}
    with pytest.raises(SandboxBuildFailedError, match="trust_compose") as refused:
        await start(files=files)
    assert named in str(refused.value)


OWNER = """\
import asyncio, sys
from pathlib import Path
from harbor.models.task.config import EnvironmentConfig
from harbor.models.trial.paths import TrialPaths
from tbtui.rollout.environments.docker import DockerEnvironment

async def main(where):
    directory = where / "environment"
    directory.mkdir()
    (directory / "Dockerfile").write_text("FROM debian:bookworm-slim\\n")
    (directory / "docker-compose.yaml").write_text(
        "services: {main: {volumes: ['kept:/kept']}}\\nvolumes: {kept: {}}\\n")
    environment = DockerEnvironment(environment_dir=directory, environment_name="x",
        session_id="left__env", trial_paths=TrialPaths(where / "trial"),
        task_env_config=EnvironmentConfig(network_mode="public"))
    await environment.start(False)
    print("started", flush=True)
    await asyncio.sleep(1000)

asyncio.run(main(Path(sys.argv[1])))
"""


def start_owner(where: Path) -> subprocess.Popen[str]:
    """A process of its own that has started a container, a network and a volume."""
    where.mkdir()
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(where)], stdout=subprocess.PIPE, text=True
    )
    assert owner.stdout is not None
    assert owner.stdout.readline() == "started\n"
    return owner


async def test_leftovers_of_a_killed_owner_are_reaped(start: Starter, tmp_path: Path) -> None:
    def of_owner() -> set[str]:
        return {name for name in in_engine() if "left__env" in name}

    ours = await start()
    with start_owner(tmp_path / "owner") as owner:
        reap_leftovers()
        left = of_owner()
        owner.kill()
    assert len(left) == 3, "container, network and volume of a live owner"
    assert of_owner() == left
    reap_leftovers()
    assert not of_owner()
    assert len(list(projects_directory().glob("*.json"))) == 1
    assert (await ours.exec("true")).return_code == 0, "another's container is not touched"


async def test_an_image_that_lost_its_name_is_no_obstacle(tmp_path: Path) -> None:
    project = "tbtui-test-renamed"
    for content in ("one", "two"):  # the second takes the name of the first
        (tmp_path / "Dockerfile").write_text(
            f"FROM debian:bookworm-slim\nLABEL com.docker.compose.project={project}\n"
            f"RUN echo {content} > /{content}\n"
        )
        docker("build", "-q", "-t", "tbtui-test-renamed:1", str(tmp_path))
    assert await remove_project(["docker"], project) == 1
    assert not docker("image", "ls", "-q", "tbtui-test-renamed").strip()


async def test_a_start_that_is_cancelled_leaves_nothing(start: Starter) -> None:
    starting = asyncio.create_task(start(files={"x": "cancelled"}))
    # Asked without giving way: it can't have got any further when it is cancelled.
    while not in_engine():  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert not in_engine()
