"""Tasks meet environments: what a run leaves out, says, and keeps for the next time."""

from __future__ import annotations

from pathlib import Path

import pytest

from tbtui.config import RunConfig
from tbtui.engines import task_fitness
from tbtui.engines.task_fitness import choose_for_tasks, examine, in_containers, offer
from tbtui.rollout.environments.base import EnvironmentUnavailable
from tbtui.rollout.environments.choose import (
    DOCKER_IMPORT_PATH,
    SANDBOX_IMPORT_PATH,
    EnvironmentChoice,
)
from tests.rollout.environments.test_suitability import BARE, FILLED, UVX, make

SANDBOX = EnvironmentChoice("sandbox", "asked for", None, SANDBOX_IMPORT_PATH)
DOCKER = EnvironmentChoice("docker", "asked for", None, DOCKER_IMPORT_PATH)


@pytest.fixture
def tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return [
        make(tmp_path / "good"),
        make(tmp_path / "uvx", test=UVX),
        make(tmp_path / "compose", compose=True),
        make(tmp_path / "packages", "FROM x\nRUN apt-get install -y r-base\n"),
    ]


def test_a_summary_in_one_sentence(tasks: list[Path]) -> None:
    fitness = examine(tasks, SANDBOX, BARE)
    summary = fitness.summary()
    assert summary is not None
    assert summary.startswith("2 of 4 tasks can't be built in the sandbox (1 of several containers")
    assert "the verifiers of 1 need a network" in summary
    assert fitness.reason(tasks[0]) is None
    assert "r-base" in str(fitness.reason(tasks[3]))
    assert examine(tasks[:1], SANDBOX, BARE).summary() is None


def test_containers_take_what_the_sandbox_cannot(tasks: list[Path]) -> None:
    assert in_containers(tasks, host=BARE).unfit == 0
    assert examine(tasks, DOCKER, BARE).unfit == 0
    assert "environment_type=docker takes 4 of them" in offer(examine(tasks, SANDBOX, BARE))


def test_what_was_found_is_kept_until_something_changes(
    tasks: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    examine(tasks, SANDBOX, BARE)
    looked: list[Path] = []

    def look(task: Path, *_: object) -> tuple[()]:
        looked.append(task)
        return ()

    monkeypatch.setattr(task_fitness, "sandbox_obstacles", look)
    assert examine(tasks, SANDBOX, BARE).unfit == 3
    assert not looked
    (tasks[1] / "tests" / "test.sh").write_text("#!/bin/bash\n")
    examine(tasks, SANDBOX, BARE)
    assert looked == [tasks[1]]
    examine(tasks, SANDBOX, FILLED)  # another host, or more packages
    assert looked == [tasks[1], *tasks]


def test_a_wheel_cache_that_cannot_be_read_is_one_line(tasks: list[Path], tmp_path: Path) -> None:
    manifest = tmp_path / "cache" / "tbtui" / "offline" / "manifest.json"
    manifest.parent.mkdir(parents=True)
    manifest.write_text('{"format": 1, "files": 7}')
    with pytest.raises(
        EnvironmentUnavailable, match=r"manifest\.json: .*: delete .* and fetch again"
    ):
        examine(tasks, SANDBOX)


def test_auto_takes_docker_where_it_serves_more(
    tasks: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def chosen(asked: str | None, _: object = None) -> EnvironmentChoice:
        return DOCKER if asked == "docker" else SANDBOX

    monkeypatch.setattr(task_fitness, "choose_environment", chosen)
    monkeypatch.setattr(task_fitness, "sandbox_host", lambda: BARE)
    auto = RunConfig(environment_type="auto")
    monkeypatch.setattr(task_fitness, "_docker_answers", lambda: True)
    choice, fitness = choose_for_tasks(auto, tasks)
    assert (choice.name, fitness.unfit) == ("docker", 0)
    assert choice.reason == "auto: the sandbox can't serve 3 of 4 tasks"
    assert choose_for_tasks(auto, tasks[:2])[0].name == "sandbox"
    assert choose_for_tasks(RunConfig(), tasks)[0].name == "sandbox"
    monkeypatch.setattr(task_fitness, "_docker_answers", lambda: False)
    assert choose_for_tasks(auto, tasks)[0].name == "sandbox"
