"""What of a task an environment can't serve, from its files alone."""

from __future__ import annotations

import dataclasses
import tarfile
from pathlib import Path

import pytest

from tbtui.findings import UnusableKind
from tbtui.rollout.environments.suitability import (
    SandboxHost,
    unusable_in_containers,
    unusable_in_sandbox,
)
from tbtui.wheels.cache import Manifest, Resolved

PYTEST = ("pytest", "pytest-json-ctrf==0.3.5", "pytest==8.4.1")
BARE = SandboxHost(
    frozenset({"curl", "git"}), frozenset({"python3", "curl"}), Manifest(), 8_000, False
)
COMMON = frozenset({"sh", "cp", "mkdir", "git", "curl", "python3"})
# As `tasks prefetch` leaves it for the verifier below.
FILLED = SandboxHost(
    BARE.packages,
    BARE.commands | {"uv", "uvx"},
    Manifest(resolved=[Resolved(PYTEST, "3.13", ("pytest==8.4.1",))]),
    8_000,
    False,
)
# Terminal-Bench 2's usual verifier.
UVX = """#!/bin/bash
apt-get update
apt-get install -y curl
curl -LsSf https://astral.sh/uv/0.9.5/install.sh | sh
source $HOME/.local/bin/env
uvx -p 3.13 -w pytest==8.4.1 -w pytest-json-ctrf==0.3.5 pytest --ctrf /logs/verifier/ctrf.json \\
  /tests/test_outputs.py -rA
if [ $? -eq 0 ]; then echo 1; else echo 0; fi > /logs/verifier/reward.txt
"""
PLAIN = "#!/bin/bash\n[ -e /app/out ] && echo 1 > /logs/verifier/reward.txt\n"


def make(
    path: Path,
    dockerfile: str | None = "FROM ubuntu:24.04\nWORKDIR /app\n",
    *,
    test: str = PLAIN,
    environment: str = "",
    compose: bool = False,
) -> Path:
    for place in ("environment", "tests"):
        (path / place).mkdir(parents=True)
    (path / "task.toml").write_text(f'version = "1.0"\n[environment]\n{environment}\n')
    (path / "tests" / "test.sh").write_text(test)
    if dockerfile is not None:
        (path / "environment" / "Dockerfile").write_text(dockerfile)
    if compose:
        (path / "environment" / "docker-compose.yaml").write_text("services: {}\n")
    return path


def kinds(task: Path, host: SandboxHost = BARE) -> list[UnusableKind]:
    return [found.kind for found in unusable_in_sandbox(task, host)]


@pytest.mark.parametrize(
    ("steps", "kind", "text"),
    [
        (
            "RUN apt-get update && apt-get install -y curl r-base",
            "packages",
            ":2: apt-get install r-base",
        ),
        ("RUN pip install numpy==2.3.0", "fetching", ":2: pip install numpy==2.3.0"),
        ("RUN git clone https://github.com/a/b /app/b", "fetching", ":2: git clone"),
        ("RUN cd /app && wget -q https://example.org/x.tar.gz", "fetching", "wget"),
        ("RUN npm ci", "fetching", "npm ci"),
        ("COPY --from=ghcr.io/astral-sh/uv:latest /uv /bin/", "step", "COPY --from"),
        ("FROM debian:12", "step", "a second build stage"),
        ("ADD https://example.org/x /x", "step", "ADD of a URL"),
        ("RUN <<EOF\nfirst\n", "step", "here-document EOF has no end"),
        ("RNU true", "step", ":2: unknown instruction RNU"),
        ("COPY gone.txt /app/", "step", ":2: COPY of 'gone.txt', which environment/ does not hold"),
        ("ADD ignored.txt /app/", "step", "ADD of 'ignored.txt', which .dockerignore leaves out"),
        ("ADD packed /app/", "step", "ADD of 'packed' unpacks it, and this host has no xz"),
        (
            "RUN cd /app && go list ./...",
            "step",
            ":2: go list ./...: this host has no such program",
        ),
        ("COPY . /app\nRUN mvn package", "step", ":3: mvn package: this host has no such program"),
    ],
)
def test_what_the_sandbox_cannot_build(
    tmp_path: Path, steps: str, kind: UnusableKind, text: str
) -> None:
    task = make(tmp_path / "task", f"FROM ubuntu:24.04\n{steps}\n")
    (task / "environment" / ".dockerignore").write_text("ignored.txt\n")
    (task / "environment" / "ignored.txt").write_text("")
    with tarfile.open(task / "environment" / "packed", "w:xz") as archive:
        archive.add(task / "task.toml")
    [found] = unusable_in_sandbox(task, dataclasses.replace(BARE, programs=COMMON))
    assert found.kind == kind
    assert text in found.text


@pytest.mark.parametrize(
    "steps",
    [
        "RUN apt-get update && apt-get install -y --no-install-recommends curl git=1:2.3",
        "RUN pip install numpy==2.3.0 || true",
        "RUN curl http://localhost:8000/ready",
        "RUN git init /app && git -C /app commit --allow-empty -m x",
        "RUN npm run build",
        "RUN echo 'pip install numpy' >> notes.txt",
        "COPY . /app/",
        "COPY tool /usr/local/bin/\nRUN tool --init",
        "ENV PATH=/app/tools:$PATH\nRUN tool --init",
        "RUN make install && tool --init",
        "RUN tool() { :; }; tool",
        "RUN if command -v tool; then tool; fi",
        "RUN tool || mkdir -p /app/x",
        "RUN ./tool && cd /app && [ -d /app ] && echo done",
        "ONBUILD RUN tool",
    ],
)
def test_what_may_work(tmp_path: Path, steps: str) -> None:
    task = make(tmp_path / "task", f"FROM ubuntu:24.04\n{steps}\n")
    (task / "environment" / "tool").write_text("")
    host = dataclasses.replace(BARE, programs=COMMON | {"make", "npm"})
    assert not kinds(task, host)


@pytest.mark.parametrize(
    ("image", "lacks"),
    [
        ("golang:1.24", "golang:1.24 brings go, which this host lacks"),
        ("docker.io/library/rust", "brings cargo"),
        ("node:22-slim AS base", "node:22-slim brings node"),
        ("registry.example.com/team/base:1", "holds files of its own"),
        ("--platform=linux/amd64 ghcr.io/someone/app@sha256:00", "holds files of its own"),
        ("localhost:5000/debian", "holds files of its own"),
        ("my-base", "holds files of its own"),
        ("python:3.13-slim", None),
        ("mirror.gcr.io/library/ubuntu:24.04", None),
        ("ghcr.io/laude-institute/t-bench/ubuntu-24-04:20250624", None),
        ("${UNKNOWN}", None),
    ],
)
def test_base_images(tmp_path: Path, image: str, lacks: str | None) -> None:
    task = make(tmp_path / "task", f"ARG TAG=1\nFROM {image}\nWORKDIR /app\n")
    found = unusable_in_sandbox(task, dataclasses.replace(BARE, programs=COMMON))
    if lacks is None:
        assert not found
    else:
        [why] = found
        assert why.kind == "image"
        assert lacks in why.text
    assert not kinds(task, dataclasses.replace(BARE, programs=COMMON | {"go"})) or "go" not in image


def test_on_a_host_without_a_network_a_task_may_not_have_one_either(tmp_path: Path) -> None:
    task = make(
        tmp_path / "task",
        "FROM python:3.13\nRUN pip install numpy\n",
        test=UVX,
        environment='network_mode = "public"',
    )
    offline = dataclasses.replace(FILLED, internet=False)
    assert kinds(task, offline) == ["fetching"]
    numpy = Resolved(("numpy",), "3.13", ("numpy==2.3.0",))
    manifest = Manifest(resolved=[*FILLED.manifest.resolved, numpy])
    assert not kinds(task, dataclasses.replace(offline, manifest=manifest))


def test_a_network_that_the_task_asks_for_serves_its_steps_and_its_verifier(tmp_path: Path) -> None:
    for number, key in enumerate(('network_mode = "public"', "allow_internet = true")):
        task = make(
            tmp_path / str(number),
            "FROM python:3.13\nRUN pip install numpy\n",
            test=UVX,
            environment=key,
        )
        assert not kinds(task)


def test_the_image_of_uv_is_the_box_s_own(tmp_path: Path) -> None:
    task = make(tmp_path / "uv", "FROM debian\nCOPY --from=ghcr.io/astral-sh/uv:latest /uv /bin/\n")
    assert kinds(task) == ["step"]
    assert not kinds(task, FILLED)


def test_verifiers_and_the_wheel_cache(tmp_path: Path) -> None:
    task = make(tmp_path / "uvx", test=UVX)
    [found] = unusable_in_sandbox(task, BARE)
    assert found.kind == "verifier"
    assert found.text.startswith("tests/test.sh: curl -LsSf https://astral.sh/uv")
    assert not kinds(task, FILLED)
    other = make(tmp_path / "other", test=UVX.replace("8.4.1", "9.0.0"))
    assert kinds(other, FILLED) == ["verifier"]
    bare = make(tmp_path / "bare", test="#!/bin/bash\npytest /tests/test_outputs.py\n")
    assert kinds(bare) == ["verifier"]
    brought = make(
        tmp_path / "brought",
        "FROM python:3.13\nCOPY requirements.txt .\nRUN ./install\n",
        test="#!/bin/bash\npytest /tests/test_outputs.py\n",
    )
    (brought / "environment" / "requirements.txt").write_text("pytest==8.4.1\n")
    assert not kinds(brought)


def test_what_else_makes_a_task_unusable(tmp_path: Path) -> None:
    assert kinds(make(tmp_path / "a", compose=True)) == ["compose"]
    assert kinds(make(tmp_path / "b", None, environment='docker_image = "x:1"')) == ["image"]
    big = make(tmp_path / "c", environment="memory_mb = 64000\ngpus = 1")
    assert set(kinds(big)) == {"gpu", "memory"}
    assert {o.kind for o in unusable_in_containers(big, BARE)} == {"gpu", "memory"}
    assert kinds(make(tmp_path / "d", environment='os = "windows"')) == ["windows"]
    assert not unusable_in_containers(make(tmp_path / "e", compose=True), BARE)


def test_broken_files_are_the_loaders_business(tmp_path: Path) -> None:
    task = make(tmp_path / "task")
    (task / "task.toml").write_text("[[[")
    (task / "environment" / "Dockerfile").write_bytes(b"FROM debian\nRUN \xff\xfe\n")
    assert not kinds(task)
