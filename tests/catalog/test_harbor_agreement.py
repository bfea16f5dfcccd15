"""Our reading of task.toml against the installed Harbor's own, on good files and bad ones."""

from __future__ import annotations

import copy
import tomllib
import warnings
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from tbtui.catalog.load import TaskInfo
from tbtui.catalog.schema import TaskFile
from tbtui.catalog.tasks import discover
from tbtui.resources import tasks_dir
from tests.catalog.task_writer import WriteTask

BUNDLED = discover(tasks_dir())

COMPLETE: dict[str, Any] = {
    "schema_version": "1.4",
    "source": "here",
    "multi_step_reward_strategy": "mean",
    "task": {
        "name": "acme/task",
        "version": "1",
        "description": "d",
        "authors": [{"name": "A", "email": "a@example.com"}],
        "keywords": ["k"],
    },
    "metadata": {"difficulty": "easy", "tags": ["x"]},
    "agent": {
        "timeout_sec": 9.5,
        "user": "agent",
        "network_mode": "allowlist",
        "allowed_hosts": ["a.example"],
    },
    "verifier": {
        "timeout_sec": 60,
        "env": {"A": "b"},
        "user": 0,
        "environment_mode": "separate",
        "environment": {"cpus": 2},
        "network_mode": "no-network",
        "allowed_hosts": [],
        "collect": [{"command": "c", "service": "db", "timeout_sec": 3, "user": "u"}],
    },
    "environment": {
        "build_timeout_sec": 60,
        "docker_image": "debian",
        "os": "Linux",
        "cpus": 1,
        "memory_mb": 512,
        "memory": "512M",
        "storage_mb": 1024,
        "storage": "1G",
        "gpus": 0,
        "gpu_types": ["H100"],
        "tpu": {"type": "v6e", "topology": "2x4"},
        "mcp_servers": [
            {"name": "m", "transport": "http", "url": "http://m", "command": "c", "args": ["a"]}
        ],
        "env": {"A": "${B}"},
        "skills_dir": "/skills",
        "healthcheck": {
            "command": "true",
            "interval_sec": 1,
            "timeout_sec": 1,
            "start_period_sec": 0,
            "start_interval_sec": 1,
            "retries": 2,
        },
        "workdir": "/app",
        "network_mode": "allowlist",
        "allowed_hosts": ["*.example.com", "192.0.2.0/24"],
        "allow_internet": True,
    },
    "solution": {"env": {"A": "b"}},
    "steps": [
        {
            "name": "one",
            "agent": {"timeout_sec": 5},
            "verifier": {"timeout_sec": 5},
            "min_reward": {"reward": 0.5},
            "healthcheck": {"command": "true"},
            "artifacts": ["/logs/a"],
        },
        {"name": "two", "min_reward": 0.5},
    ],
    "artifacts": [
        "/app/out",
        {"source": "/x", "destination": "y/z", "exclude": ["*.o"], "service": "db"},
    ],
}

ODD_VALUES: list[Any] = [
    *(
        None,
        True,
        False,
        0,
        1,
        -1,
        2.5,
        1e400,
        "",
        " ",
        "x",
        "main",
        "linux",
        "WINDOWS",
        "1G",
        "5k",
    ),
    *("12", "a/b", "../x", "/x", "a\\b", "manifest.json", ".", "CON", "two", "Two"),
    *(
        "no-network",
        "public",
        "allowlist",
        "shared",
        "separate",
        "final",
        "stdio",
        "sse",
        "2x0",
        "2x2x1",
    ),
    *([], ["x"], [1], [""], ["http://a"], ["a:80"], ["10.0.0.0/8", "::1"], ["10.0.0.1/8"]),
    *(["*.10.0.0.1"], ["*"], ["a.*.b"], ["Ex_ample"], ["fe80::1%eth0"], ["a.example."]),
    *({}, {"a": "b"}, {"a": 1}, {"name": "n"}, {"source": "s"}, [{"name": "n"}], [{"source": "s"}]),
]


def accepted_by_us(document: dict[str, Any]) -> bool:
    try:
        TaskFile.model_validate(copy.deepcopy(document))
    except ValidationError:
        return False
    return True


def accepted_by_harbor(document: dict[str, Any]) -> bool:
    from harbor.models.task.config import TaskConfig

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            TaskConfig.model_validate(copy.deepcopy(document))
        except ValidationError:
            return False
    return True


def paths(value: Any, prefix: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """Where every value inside `value` lies."""
    children: list[tuple[str | int, Any]] = []
    if isinstance(value, dict):
        children = list(value.items())
    elif isinstance(value, list):
        children = list(enumerate(value))
    below = [path for key, child in children for path in paths(child, (*prefix, key))]
    return [prefix, *below] if prefix else below


def replaced(path: tuple[str | int, ...], value: Any) -> dict[str, Any]:
    """COMPLETE with the value at `path` replaced, or removed for None (TOML has no null)."""
    document = copy.deepcopy(COMPLETE)
    parent: Any = document
    for key in path[:-1]:
        parent = parent[key]
    if value is None:
        del parent[path[-1]]
    else:
        parent[path[-1]] = value
    return document


def test_both_accept_the_complete_file() -> None:
    assert accepted_by_us(COMPLETE)
    assert accepted_by_harbor(COMPLETE)


@pytest.mark.parametrize("path", paths(COMPLETE), ids=lambda path: ".".join(map(str, path)))
def test_agreement_on_every_key_with_odd_values(path: tuple[str | int, ...]) -> None:
    for value in ODD_VALUES:
        document = replaced(path, value)
        assert accepted_by_us(document) == accepted_by_harbor(document), value


@settings(max_examples=200)
@given(
    st.lists(st.tuples(st.sampled_from(paths(COMPLETE)), st.sampled_from(ODD_VALUES)), max_size=4)
)
def test_agreement_on_several_odd_values_at_once(
    changes: list[tuple[tuple[str | int, ...], Any]],
) -> None:
    document = copy.deepcopy(COMPLETE)
    for path, value in changes:
        parent: Any = document
        for key in path[:-1]:
            known = isinstance(parent, dict) and key in parent
            listed = isinstance(parent, list) and isinstance(key, int) and key < len(parent)
            parent = parent[key] if known or listed else {}
        if isinstance(parent, dict) and value is not None:
            parent[path[-1]] = value
    assert accepted_by_us(document) == accepted_by_harbor(document)


@pytest.mark.parametrize("legacy", [{"version": "1.0"}, {"version": 1}, {"version": "a", "x": 1}])
def test_legacy_version(legacy: dict[str, Any]) -> None:
    assert accepted_by_us(legacy) == accepted_by_harbor(legacy)


def test_the_bundled_tasks_have_no_defects() -> None:
    assert BUNDLED.defects == ()


@pytest.mark.parametrize("task", BUNDLED.tasks, ids=lambda task: task.name)
def test_harbor_reads_the_bundled_tasks_as_we_do(task: TaskInfo) -> None:
    from harbor.models.task.config import NetworkMode
    from harbor.models.task.task import Task

    theirs = Task(task.path)
    assert theirs.instruction == task.instruction
    assert theirs.config.agent.timeout_sec == task.agent_timeout_sec
    assert theirs.config.verifier.timeout_sec == task.verifier_timeout_sec
    offline = theirs.config.environment.network_mode == NetworkMode.NO_NETWORK
    assert offline != task.allows_network
    assert tomllib.loads((task.path / "task.toml").read_text())["schema_version"] == "1.4"


async def test_harbor_finds_the_same_tasks(write_task: WriteTask, tmp_path: Path) -> None:
    from harbor.models.job.config import DatasetConfig

    write_task("good")
    write_task("bad-toml", toml="[agent\n")
    write_task("bad-value", toml="[agent]\ntimeout_sec = 'x'\n")
    write_task("no-instruction", files={"instruction.md": None})
    write_task("no-test", files={"tests/test.sh": None})
    write_task("image-verifier", toml='[verifier.environment]\ndocker_image = "v"\n')
    write_task(
        "own-tests",
        toml='[verifier]\nenvironment_mode = "separate"\n',
        files={"tests/test.sh": None, "tests/Dockerfile": "FROM debian\n"},
    )
    found = await DatasetConfig(path=tmp_path).get_task_configs()
    assert [task.path for task in discover(tmp_path).tasks] == [config.path for config in found]
