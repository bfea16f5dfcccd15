"""What becomes of a task's compose file; no engine is asked."""

from __future__ import annotations

from typing import Any

import pytest

from tbtui.rollout.environments.docker_compose import (
    ContainerLimits,
    Network,
    Project,
    ProjectFile,
    base_file,
    project_file,
    unfilled,
)

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


def limits_of(stated: dict[str, Any], **limits: Any) -> tuple[Any, ...]:
    """Memory, processes, cpus and open files of `main`, and what is said of them."""
    file = made({"main": stated}, **limits)
    main = file.document["services"]["main"]
    assert main["memswap_limit"] == main["mem_limit"]
    files = main["ulimits"]["nofile"]
    return (
        main["mem_limit"],
        main["pids_limit"],
        main.get("cpus"),
        files,
        [line.partition(" (")[0] for line in file.lowered],
    )


def deploy(**limits: Any) -> dict[str, Any]:
    return {"deploy": {"resources": {"limits": limits}}}


@pytest.mark.parametrize(
    ("stated", "ours", "given"),
    [
        ({}, {}, ("2048m", 512, None, 4096, [])),
        ({}, {"cpus": 2}, ("2048m", 512, 2, 4096, [])),
        # As Compose prints them: bytes as text.
        (deploy(cpus=1, memory="1073741824"), {}, ("1024m", 512, 1, 4096, [])),
        (deploy(cpus="0.5", memory="4G"), {}, ("4096m", 512, 0.5, 4096, [])),
        (deploy(memory="512M", pids=10), {"cpus": 2}, ("512m", 10, 2, 4096, [])),
        (
            {"mem_limit": "1.5gb", "pids_limit": 7, "cpus": 1, "ulimits": {"nofile": 64}},
            {},
            ("1536m", 7, 1, 64, []),
        ),
        (deploy(memory="0"), {}, ("2048m", 512, None, 4096, [])),
    ],
    ids=["silent", "silent, ours", "bytes", "text", "some", "the other way", "no limit"],
)
def test_a_tasks_limits_stand_within_ours(
    stated: dict[str, Any], ours: dict[str, Any], given: tuple[Any, ...]
) -> None:
    assert limits_of(stated, **ours) == given


@pytest.mark.parametrize(
    ("stated", "ours", "given"),
    [
        (
            deploy(memory="4G"),
            {"memory_mb": 1024, "memory_stated": True},
            ("1024m", 512, None, 4096, ["main: memory in MiB lowered from 4096 to 1024"]),
        ),
        (
            deploy(memory="64G", cpus=8),
            {},
            (
                *("16384m", 512, 4, 4096),
                [
                    "main: memory in MiB lowered from 65536 to 16384",
                    "main: cpus lowered from 8 to 4",
                ],
            ),
        ),
        (
            deploy(cpus=3),
            {"cpus": 2},
            ("2048m", 512, 2, 4096, ["main: cpus lowered from 3 to 2"]),
        ),
        (
            {"pids_limit": -1, "ulimits": {"nofile": {"soft": 1024, "hard": 65536}}},
            {},
            (
                *("2048m", 512, None, 4096),
                [
                    "main: processes lowered from unlimited to 512",
                    "main: open files lowered from 65536 to 4096",
                ],
            ),
        ),
    ],
    ids=["task.toml says less", "more than the host", "cpus", "processes and files"],
)
def test_what_is_lowered_is_said(
    stated: dict[str, Any], ours: dict[str, Any], given: tuple[Any, ...]
) -> None:
    assert limits_of(stated, **ours) == given


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
    stated = {
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
