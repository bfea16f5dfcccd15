"""What becomes of a task's compose file; no engine is asked."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import psutil
import pytest

from tbtui.rollout.environments.build import UnbuildableError
from tbtui.rollout.environments.docker_cli import run_cli
from tbtui.rollout.environments.docker_compose import (
    ContainerLimits,
    Network,
    Project,
    ProjectFile,
    base_file,
    project_file,
    unfilled,
)
from tbtui.rollout.environments.docker_start import compose_text, image_error
from tests.waiting import until, wait_until


@pytest.mark.parametrize("early", [False, True])
async def test_a_client_that_is_ended_takes_along_what_it_has_started(
    tmp_path: Path, early: bool
) -> None:
    """As Docker's starts Compose, which may be before we have begun to read what it says."""
    note = tmp_path / "pid"
    script = f"sleep 600 & echo $! > {tmp_path}/new; mv {tmp_path}/new {note}; echo; wait"
    heard = asyncio.Event()

    async def hear(chunk: bytes, stream: object) -> None:
        heard.set()

    client = asyncio.create_task(run_cli(["sh", "-c", script], on_chunk=hear))
    if early:
        before = psutil.Process().children()
        while psutil.Process().children() == before:  # noqa: ASYNC110
            await asyncio.sleep(0)
        wait_until(note.exists)  # without giving way
    else:
        await heard.wait()
    compose = psutil.Process(int(note.read_text()))
    client.cancel()
    await asyncio.wait((client,))
    await until(lambda: not compose.is_running() or compose.status() == psutil.STATUS_ZOMBIE)


LIMITS: dict[str, Any] = {
    "processes": 512,
    "memory_mb": 2048,
    "memory_stated": False,
    "cpus": None,
    "storage_mb": 1024,
    "quota": False,
    "host_cpus": 4,
    "host_memory_mb": 16_384,
}


def made(
    services: dict[str, Any],
    *,
    network: Network = "public",
    top: dict[str, Any] | None = None,
    **limits: Any,
) -> ProjectFile:
    project = Project(
        "p", "tbtui-task:1", None, ContainerLimits(**{**LIMITS, **limits}), network, {"A": "a$b"}
    )
    return project_file(project, {"name": "p", "services": {"main": {}, **services}, **(top or {})})


def deploy(**limits: Any) -> dict[str, Any]:
    return {"deploy": {"resources": {"limits": limits}}}


@pytest.mark.parametrize(
    ("stated", "ours", "given", "lowered"),
    [
        ({}, {}, {}, []),
        ({}, {"cpus": 2}, {"cpus": 2}, []),
        # As Compose prints them: bytes as text.
        (deploy(cpus=1, memory="1073741824"), {}, {"mem_limit": "1024m", "cpus": 1}, []),
        (deploy(cpus="0.5", memory="4G"), {}, {"mem_limit": "4096m", "cpus": 0.5}, []),
        (
            *(deploy(memory="512M", pids=10), {"cpus": 2}),
            *({"mem_limit": "512m", "pids_limit": 10, "cpus": 2}, []),
        ),
        (
            *({"mem_limit": "1.5gb", "pids_limit": 7, "cpus": 1, "ulimits": {"nofile": 64}}, {}),
            *({"mem_limit": "1536m", "pids_limit": 7, "cpus": 1, "files": 64}, []),
        ),
        (deploy(memory="0"), {}, {}, []),
        (
            *(deploy(memory="4G"), {"memory_mb": 1024, "memory_stated": True}),
            *({"mem_limit": "1024m"}, ["memory in MiB lowered from 4096 to 1024"]),
        ),
        (
            *(deploy(memory="64G", cpus=8), {}, {"mem_limit": "16384m", "cpus": 4}),
            ["memory in MiB lowered from 65536 to 16384", "cpus lowered from 8 to 4"],
        ),
        (deploy(cpus=3), {"cpus": 2}, {"cpus": 2}, ["cpus lowered from 3 to 2"]),
        (
            *({"pids_limit": -1, "ulimits": {"nofile": {"soft": 1024, "hard": 65536}}}, {}, {}),
            [
                "processes lowered from unlimited to 512",
                "open files lowered from 65536 to 4096",
            ],
        ),
    ],
)
def test_a_tasks_limits_stand_within_ours_and_what_is_lowered_is_said(
    stated: dict[str, Any], ours: dict[str, Any], given: dict[str, Any], lowered: list[str]
) -> None:
    file = made({"main": stated}, **ours)
    main = file.document["services"]["main"]
    assert main["memswap_limit"] == main["mem_limit"]
    plain = {"mem_limit": "2048m", "pids_limit": 512, "cpus": None, "files": 4096}
    has = {name: main.get(name) for name in plain} | {"files": main["ulimits"]["nofile"]}
    assert has == plain | given
    said = [line.partition(" (")[0] for line in file.lowered]
    assert said == [f"main: {each}" for each in lowered]


def test_a_limit_is_said_once() -> None:
    stated = {
        **deploy(cpus=1, memory="512M", pids=5),
        "mem_reservation": "1g",
        "storage_opt": {"size": "1t"},
        "logging": {"driver": "syslog", "options": {"syslog-address": "tcp://x"}},
    }
    stated["deploy"] |= {"replicas": 2, "restart_policy": {"condition": "any"}}
    main = made({"main": stated}).document["services"]["main"]
    assert main["deploy"] == {"replicas": 2}
    assert main["mem_reservation"] == "512m"
    assert "storage_opt" not in main
    assert main["logging"]["driver"] == "json-file"
    assert main["restart"] == "no"


def test_other_services_are_limited_too() -> None:
    other = {**deploy(memory="8G", cpus=16), "restart": "unless-stopped"}
    file = made({"db": other}, memory_mb=1024, memory_stated=True, cpus=1, quota=True)
    db = file.document["services"]["db"]
    assert (db["mem_limit"], db["pids_limit"], db["cpus"]) == ("8192m", 512, 4)
    assert db["restart"] == "on-failure"
    assert "storage_opt" not in db
    assert file.lowered == ("db: cpus lowered from 16 to 4 (all that the host has)",)


def test_two_trials_of_a_task_do_not_meet_on_the_host() -> None:
    web = {
        "container_name": "the-web",
        "ports": [{"target": 80, "published": "8080"}],
        "networks": {"inner": {"aliases": ["w"]}},
    }
    shared = {"container_name": "beside", "network_mode": "service:web"}
    top = {
        "networks": {"inner": {"name": "fixed", "driver": "bridge"}, "out": {"external": True}},
        "volumes": {"kept": {"name": "fixed"}, "plain": None, "out": {"external": True}},
    }
    document = made({"web": web, "beside": shared, "db": {"container_name": "d"}}, top=top).document
    services = document["services"]
    assert not {"container_name", "ports"} & services["web"].keys()
    assert services["web"]["networks"] == {"inner": {"aliases": ["w", "the-web"]}}
    assert services["db"]["networks"] == {"default": {"aliases": ["d"]}}
    assert "networks" not in services["beside"]
    assert document["networks"]["inner"] == {"driver": "bridge", "labels": {"tbtui.project": "p"}}
    assert document["networks"]["out"] == {"external": True}
    assert document["volumes"] == {"kept": {}, "plain": {}, "out": {"external": True}}


def test_main_has_the_trials_variables_and_mounts() -> None:
    mount = {"type": "bind", "source": "/a$b", "target": "/here"}
    project = Project(
        "p", "i", None, ContainerLimits(**LIMITS), "public", {"A": "a$b"}, (mount,), gpus=2
    )
    stated = {"environment": {"A": "x", "B": "$$c"}, "volumes": [{"type": "tmpfs", "target": "/t"}]}
    stated |= deploy(cpus=1)
    main = project_file(project, {"services": {"main": stated}}).document["services"]["main"]
    assert main["environment"] == {"A": "a$$b", "B": "$$c"}
    assert [each["target"] for each in main["volumes"]] == ["/t", "/here"]
    assert main["volumes"][1]["source"] == "/a$$b"
    assert main["deploy"]["resources"]["reservations"]["devices"][0]["count"] == 2


def test_a_task_without_a_compose_file() -> None:
    project = Project("p", "i", None, ContainerLimits(**LIMITS), "none")
    document = project_file(project, base_file(project)).document
    assert document["services"].keys() == {"main"}
    assert document["services"]["main"]["network_mode"] == "none"
    assert "networks" not in document


def test_what_a_task_builds_takes_no_others_name() -> None:
    stated: dict[str, dict[str, Any]] = {
        "main": {"image": "tbtui-task:1", "build": {"context": "/t"}},
        "web": {"image": "debian:bookworm-slim", "build": {"context": "/t/web"}},
        "worker": {"image": "debian:bookworm-slim"},
        "db": {"image": "postgres:16"},
        "plain": {"build": {"context": "/t/plain"}},
    }
    file = made(stated)
    named = {name: service.get("image") for name, service in file.document["services"].items()}
    assert named == {
        **{"main": "tbtui-task:1", "web": "p-web", "worker": "p-web", "db": "postgres:16"},
        "plain": None,
    }
    # A given image takes the place of what `main` would be built of, and of nothing else.
    assert file.built.keys() == {"web", "plain"}
    # Nor that of the image which task.toml names, and others start from, too.
    stated["web"]["image"] = "tbtui-task:1"
    assert made(stated).document["services"]["web"]["image"] == "p-web"


def test_nothing_is_left_to_be_looked_up_in_the_hosts_variables() -> None:
    build = {"context": "/t", "args": {"KEY": None, "B": "1"}}
    web = made({"web": {"environment": {"KEY": None, "C": "2"}, "build": build}}).document
    assert web["services"]["web"]["environment"] == {"C": "2"}
    assert web["services"]["web"]["build"]["args"] == {"B": "1"}


def test_no_trial_changes_the_tasks_own_files_or_other_files_of_the_host() -> None:
    mounts = [{"type": "bind", "source": source, "target": source} for source in ("/t", "/logs")]
    limits = ContainerLimits(**LIMITS)

    def mounted(shared: dict[str, str] | None) -> tuple[list[Any], tuple[str, ...]]:
        project = Project("p", "i", None, limits, "public", shared=shared)
        file = project_file(project, {"services": {"main": {"volumes": mounts}}})
        assert file.document.get("volumes", {}).keys() == set((shared or {}).values())
        return file.document["services"]["main"]["volumes"], file.lowered

    assert mounted({"/logs": "kept"}) == (
        [{**mounts[0], "read_only": True}, {**mounts[1], "type": "volume", "source": "kept"}],
        ("main: /t is mounted for reading only",),
    )
    assert mounted(None) == (mounts, ())


@pytest.mark.parametrize(("network", "mode"), [("none", "none"), ("public", "bridge")])
def test_no_network_is_none_for_a_service_beside_the_projects_own(
    network: Network, mode: str | None
) -> None:
    file = made({"other": {"network_mode": "bridge"}}, network=network)
    assert file.document["services"]["other"].get("network_mode") == mode
    internal = {name: net.get("internal") for name, net in file.document["networks"].items()}
    assert internal == {"default": True if network == "none" else None}


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        ("cpus: ${CPUS}\nmemory: ${MEMORY}\n", ["MEMORY", "CPUS"]),
        ("memory: $MEMORY\n", ["MEMORY"]),
        ("cpus: ${CPUS:-2}\nmemory: ${MEMORY-4096M}\n", []),
        ("a: ${MEMORY:-1}\nb: ${MEMORY}\n", []),
        ("command: echo $$MEMORY $${CPUS} $MEMORY_OF ${CPUS_OF} CPUS\n", []),
        ("memory: ${MEMORY:?say how much}\n", []),
    ],
)
def test_variables_that_nothing_fills(text: str, asked: list[str]) -> None:
    assert unfilled(text, ["MEMORY", "CPUS"]) == asked


@pytest.mark.parametrize(
    ("said", "lasts"),
    [
        ("no image a/b:1: Error response from daemon: pull access denied for a/b", True),
        ("no image b: manifest for b:nope not found: manifest unknown: manifest unknown", True),
        ("no image c: unauthorized: authentication required", True),
        ("no image d: reading manifest: requested access to the resource is denied", True),
        ("the image can't be built: docker.io/library/none:latest: not found", True),
        ('the image can\'t be built: failed to calculate checksum of ref a: "/x": not found', True),
        (
            "the image can't be built: dockerfile parse error on line 2: unknown instruction: X",
            True,
        ),
        ('the image can\'t be built: process "/bin/sh -c x" did not complete: exit code: 1', False),
        (
            'no image e: Get "https://e.invalid/v2/": dial tcp: lookup e.invalid: no such host',
            False,
        ),
        ("no image f: toomanyrequests: You have reached your pull rate limit", False),
    ],
)
def test_an_image_that_can_never_be_had(said: str, lasts: bool) -> None:
    assert isinstance(image_error(said), UnbuildableError) is lasts


def test_a_compose_file_that_does_not_end_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "long").write_text("#" * (1 << 20) + "\n")
    for place in ("pipe", "long"):
        with pytest.raises(UnbuildableError, match=f"{place} is no file of at most 1 MiB"):
            compose_text(tmp_path / place)
