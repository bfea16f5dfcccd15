"""Boxes without a network: python where the image has it, packages from the wheel cache."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import signal
import socket
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from harbor.environments.base import SandboxBuildFailedError

from tbtui.rollout.environments import userland as userland_module
from tbtui.rollout.environments.box import Box
from tbtui.rollout.environments.build import base_python, build_image
from tbtui.rollout.environments.userland import BasePython, Userland, reaches_index, userland
from tbtui.wheels.cache import cache_root, open_cache
from tbtui.wheels.interpreters import box_python
from tbtui.wheels.requests import PackageRequests, Request
from tests.catalog.task_writer import Files, write_task
from tests.rollout.environments.boxes import limits, running_box, sh
from tests.rollout.environments.ordinary_user import UID
from tests.rollout.harbor_trial import reward_of, run_trial
from tests.wheels.index import fill, make_index, use_index

pytestmark = pytest.mark.uid

AsUser = Callable[[Callable[[], Awaitable[None]]], None]
OURS = f"{sys.version_info.major}.{sys.version_info.minor}"
LOG = logging.getLogger("test")
BACKENDS = ["namespaces", *(["bubblewrap"] if shutil.which("bwrap") else [])]
ROOMY = limits(storage_mb=512, memory_mb=512)
# The shape of nearly every verifier of Terminal-Bench 2, with `checker` in pytest's place.
VERIFIER = f"""\
#!/bin/bash
apt-get update
apt-get install -y tmux
curl -LsSf https://astral.sh/uv/0.9.5/install.sh | sh
source $HOME/.local/bin/env
if [ "$PWD" = "/" ]; then exit 1; fi
uvx -p {OURS} -w checker==1.0 -w helper==3.0 checker /tests/test_outputs.py
if [ $? -eq 0 ]; then echo 1; else echo 0; fi > /logs/verifier/reward.txt
"""
TEST = "import helper\nassert helper.VALUE == 3\nassert open('/app/done').read() == 'yes\\n'\n"


@pytest.fixture(scope="session")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache with this interpreter, uv, pip and `checker`; what XDG_CACHE_HOME is to be."""
    if sys.base_prefix.startswith("/usr"):
        pytest.skip("boxes see this interpreter already")
    directory = tmp_path_factory.mktemp("filled")
    with pytest.MonkeyPatch.context() as patch:
        use_index(make_index(directory / "index"), patch, directory / "cache")
        wanted = ("checker==1.0", "helper==3.0")
        asked = PackageRequests({Request(wanted, OURS, exact=True), Request(wanted)})
        executable = str(Path(sys.base_prefix) / "bin" / f"python{OURS}")
        result = asyncio.run(fill(cache_root(), asked, executable)).result
    assert result.problems == []
    return directory / "cache"


@pytest.fixture
def cache(filled: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """This user's cache, for one test."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(filled))
    return filled


def _additions(base: BasePython | None = None, backend: str = "namespaces") -> Userland:
    return userland(base or BasePython(), open_cache(), layered=backend == "namespaces")


async def _run(box: Box, additions: Userland, command: str, user: str | None = None) -> str:
    result = await box.run(
        ["/bin/bash", "-c", command],
        environment=additions.environment,
        cwd="/app",
        user=user,
        timeout_sec=60,
    )
    assert result.exit_code == 0, result
    return result.stdout


def _task(directory: Path) -> Path:
    files: Files = {
        "environment/Dockerfile": "FROM ubuntu:24.04\nWORKDIR /app\n",
        "solution/solve.sh": "#!/bin/bash\necho yes > /app/done\n",
        "tests/test.sh": VERIFIER,
        "tests/test_outputs.py": TEST,
    }
    toml = 'version = "1.0"\n[environment]\nmemory_mb = 512\nstorage_mb = 512\n'
    return write_task(directory, "task", toml, files)


async def _rewards(directory: Path, **kwargs: Any) -> list[float | None]:
    """Rewards of the solution and of an agent that does nothing."""
    task, rewards = _task(directory), []
    for agent in ("oracle", "nop"):
        result = await run_trial(task, agent, directory / "trials", **kwargs)
        rewards.append(reward_of(result))
    return rewards


@pytest.mark.slow
@pytest.mark.parametrize("backend", BACKENDS)
async def test_the_common_verifier_judges_without_a_network(
    cache: Path, tmp_path: Path, backend: str
) -> None:
    assert await _rewards(tmp_path, backend=backend) == [1.0, 0.0]


@pytest.mark.slow
def test_as_an_ordinary_user(
    filled: Path, as_user: AsUser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = tmp_path / "home" / ".cache"
    shutil.copytree(filled, theirs, symlinks=True)
    for path in (theirs, *theirs.rglob("*")):
        os.chown(path, UID, UID, follow_symlinks=False)

    async def body() -> None:
        assert await _rewards(Path.home()) == [1.0, 0.0]
        additions = _additions(BasePython(True, OURS))
        async with running_box(limit=ROOMY, userland=additions) as box:
            assert await _run(box, additions, "pip install -q checker && checker /dev/null")

    as_user(body)


@pytest.mark.slow
@pytest.mark.parametrize("backend", BACKENDS)
async def test_the_images_own_python(cache: Path, backend: str) -> None:
    additions = _additions(BasePython(True, OURS), backend)
    assert additions.note is None
    async with running_box(backend, limit=ROOMY, userland=additions) as box:
        said = await _run(
            box, additions, "for p in python python3 'pip list'; do $p -V; done; pip -V"
        )
        versions = [line for line in said.splitlines() if line.startswith("Python ")]
        assert versions == [f"Python {sys.version.split()[0]}"] * 2
        await _run(box, additions, "pip install -q checker==1.0 && python -c 'import helper'")
        assert await _run(box, additions, "bash -lc 'checker /dev/null'") == "checked\n"
        if backend == "namespaces":
            where = await _run(box, additions, "command -v python checker; pip -V")
            assert where.splitlines()[:2] == ["/usr/local/bin/python", "/usr/local/bin/checker"]
            assert f"/usr/local/lib/python{OURS}/site-packages" in where
            await _run(box, additions, "pip install -q --force-reinstall pip && pip -V")


@pytest.mark.slow
async def test_a_dockerfile_installs_from_the_cache(cache: Path, tmp_path: Path) -> None:
    dockerfile = tmp_path / "Dockerfile"
    dockerfile.write_text(
        f"FROM python:{OURS}-slim\nCOPY --from=ghcr.io/astral-sh/uv:0.8.14 /uv /uvx /bin/\n"
        "RUN uv --version && pip install checker==1.0\nENV PATH=/opt/x/bin:$PATH\n"
        "RUN ls / && checker /dev/null > /said\n"
    )
    base = base_python(dockerfile)
    assert base == BasePython(True, OURS)
    additions = _additions(base)
    async with running_box(limit=ROOMY, userland=additions) as box:
        built = await build_image(
            box, dockerfile, base=additions.environment, timeout_sec=60, log=LOG
        )
        assert await _run(box, additions, "cat /said") == "checked\n"
    assert built.environment["PATH"] == f"/opt/x/bin:{additions.environment['PATH']}"


@pytest.mark.parametrize("backend", BACKENDS)
async def test_without_a_cache_an_image_with_python_has_the_hosts(backend: str) -> None:
    additions = userland(BasePython(True, "3.4"), None, layered=backend == "namespaces")
    assert additions.note is not None
    assert additions.note.startswith("the image has Python 3.4, this box 3.")
    async with running_box(backend, userland=additions) as box:
        assert box_python() is not None
        said = await _run(box, additions, "python -V; python3 -V")
        assert said.splitlines()[0] == said.splitlines()[1]
    assert "UV_OFFLINE" not in additions.environment


async def test_uvs_own_image_needs_the_cache(tmp_path: Path) -> None:
    dockerfile = tmp_path / "Dockerfile"
    dockerfile.write_text("FROM x\nCOPY --from=ghcr.io/astral-sh/uv:0.8.14 /uv /uvx /bin/\n")
    additions = userland()
    async with running_box(userland=additions) as box:
        with pytest.raises(
            SandboxBuildFailedError, match=rf":2: .*tbtui tasks prefetch {tmp_path.parent}"
        ):
            await build_image(box, dockerfile, base=additions.environment, timeout_sec=60, log=LOG)


@pytest.mark.slow
async def test_what_was_not_fetched_names_the_command_that_does(tmp_path: Path) -> None:
    dockerfile = tmp_path / "Dockerfile"
    dockerfile.write_text("FROM python:3\nRUN pip install --retries 0 no-such-package-xyz\n")
    additions = userland(BasePython(True))
    async with running_box(userland=additions) as box:
        with pytest.raises(
            SandboxBuildFailedError, match=f"tbtui tasks prefetch {tmp_path.parent}"
        ):
            await build_image(box, dockerfile, base=additions.environment, timeout_sec=60, log=LOG)


@pytest.mark.slow
@pytest.mark.parametrize("backend", BACKENDS)
async def test_the_agent_cannot_change_what_the_verifier_runs(cache: Path, backend: str) -> None:
    additions = _additions(backend=backend)
    attacks = [
        "echo x > /.offline/bin/uvx",
        "rm -f /.offline/wheels/*",
        "mv /.offline /moved",
        "mount -o remount,rw /.offline",
        "umount -l /.offline",
        "mount -t tmpfs none /.offline",
        "chmod 777 /.offline/bin",
        "ln -sf /bin/false /.offline/bin/uvx",
        f"echo x > /.offline/python/cpython-{sys.version.split()[0]}-linux-x86_64-gnu/bin/python3",
    ]
    async with running_box(backend, limit=ROOMY, userland=additions) as box:
        await _run(box, additions, "mkdir -p ~/.local/bin /usr/local/bin || true")
        await sh(box, "for d in ~/.local/bin /usr/local/bin; do ln -s /bin/false $d/uvx; done")
        for attack in attacks:
            assert (await sh(box, attack)).exit_code != 0, attack
        tool = f"uvx -q -p {OURS} checker@1.0 /dev/null"
        # What one run keeps, the next could be given; so none keeps anything.
        await _run(box, additions, f"{tool}; ! ls ~/.cache/uv 2>/dev/null")
        judged = f"source $HOME/.local/bin/env; command -v uvx; {tool}"
        assert await _run(box, additions, judged) == "/.offline/bin/uvx\nchecked\n"
    assert open_cache() is not None


async def test_own_programs_are_on_path_in_every_shell() -> None:
    additions = userland()
    say = "mkdir -p ~/.local/bin; printf '#!/bin/sh\\necho here' > ~/.local/bin/mine"
    async with running_box(userland=additions) as box:
        # An ordinary user's box has no account but its own.
        users = ((None, "/root"), ("www-data", "/var/www"))[: 2 if os.geteuid() == 0 else 1]
        for user, home in users:
            if user:
                await _run(box, additions, f"mkdir -p {home}; chown {user} {home}")
            variables = Userland({k: v for k, v in additions.environment.items() if k != "HOME"})
            as_them = additions if user is None else variables
            await _run(box, as_them, f"{say}; chmod +x ~/.local/bin/mine", user)
            for shell in ("bash -c", "bash -lc", "sh -c", "bash -ic"):
                assert await _run(box, as_them, f"{shell} mine", user) == "here\n"


async def test_apt_get_accepts_what_the_host_has() -> None:
    additions = userland()
    accepted = [
        "apt-get update -qq && apt-get install -y --no-install-recommends tmux bash=5.2*",
        "DEBIAN_FRONTEND=noninteractive apt -o Dpkg::Use-Pty=0 install -yqq tmux",
        "apt-get clean; apt-get autoremove -y",
    ]
    async with running_box(userland=additions) as box:
        for command in accepted:
            await _run(box, additions, f"set -e; {command}")
        result = await box.run(
            ["/bin/bash", "-c", "apt-get install -y tmux no-such-xyz"],
            environment=additions.environment,
        )
    assert result.exit_code == 100
    assert "E: Unable to locate package no-such-xyz" in result.stderr
    assert "tmux" not in result.stderr


@pytest.mark.slow
async def test_no_setting_of_the_hosts_pip_or_uv_enters(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "UV_INDEX", "UV_DEFAULT_INDEX"):
        monkeypatch.setenv(name, "https://me:hunter2@packages.example/simple")
    additions = _additions(BasePython(True, OURS))
    async with running_box(limit=ROOMY, userland=additions) as box:
        said = await _run(box, additions, "env; pip config list; grep -r hunter2 /etc ~ || true")
    assert "hunter2" not in said
    assert "packages.example" not in said


@pytest.mark.slow
@pytest.mark.parametrize(
    ("stated", "internet", "network"),
    [
        ("", True, False),
        ('network_mode = "public"', True, True),
        ('network_mode = "public"', False, False),
    ],
)
async def test_the_cache_is_for_boxes_without_a_network_or_on_hosts_without_one(
    cache: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    stated: str,
    internet: bool,
    network: bool,
) -> None:
    monkeypatch.setattr("tbtui.rollout.environments.sandbox.reaches_index", lambda: internet)
    task = _task(tmp_path)
    with (task / "task.toml").open("a") as file:
        file.write(f"{stated}\n")
    # The network would be asked by the common verifier, for as long as it does not answer.
    (task / "tests" / "test.sh").write_text(
        "#!/bin/bash\nenv; echo 1 > /logs/verifier/reward.txt\n"
    )
    trials = tmp_path / "trials"
    await run_trial(task, "nop", trials)
    variables = (trials / "trial-nop" / "verifier" / "test-stdout.txt").read_text()
    assert ("UV_OFFLINE=1" in variables) is not network
    # An image whose name says nothing of Python may have one that is its own.
    assert "PIP_BREAK_SYSTEM_PACKAGES=1" in variables


def test_whether_there_is_an_index_is_found_by_asking_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        monkeypatch.setattr(userland_module, "_INDEX", server.getsockname())
        assert reaches_index()
    monkeypatch.setattr(userland_module, "_INDEX", ("name.invalid", 443))
    assert not reaches_index()


@pytest.mark.slow
async def test_a_damaged_cache_is_no_verdict(
    filled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(filled, tmp_path / "mine", symlinks=True)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "mine"))
    wheel = next((cache_root() / "shown" / "wheels").glob("checker-*"))
    wheel.write_bytes(b"other")
    result = await run_trial(_task(tmp_path), "oracle", tmp_path / "trials")
    assert result.verifier_result is None
    assert result.exception_info is not None
    assert "not the file that was fetched" in result.exception_info.exception_message


async def test_signals_reach_programs_whatever_started_us() -> None:
    """A shell ignores ctrl-c for what it starts with `&`, and hands that down."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        async with running_box() as box:
            result = await sh(box, "grep SigIgn /proc/self/status")
    finally:
        signal.signal(signal.SIGINT, before)
    ignored = int(result.stdout.split()[1], 16)
    assert not ignored & sum(1 << (number - 1) for number in (1, 2, 3, 13, 15))
