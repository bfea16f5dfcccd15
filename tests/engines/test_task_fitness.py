"""Tasks meet environments: what a run leaves out, says, and keeps for the next time."""

from __future__ import annotations

from pathlib import Path

import pytest

from tbtui.config import RunConfig
from tbtui.config.sources import KEYS
from tbtui.engines import task_fitness
from tbtui.engines.task_fitness import choose_for_tasks, examine, in_containers, offer
from tbtui.rollout.environments.base import EnvironmentUnavailable
from tbtui.rollout.environments.choose import (
    DOCKER_IMPORT_PATH,
    SANDBOX_IMPORT_PATH,
    EnvironmentChoice,
)
from tbtui.rollout.environments.host_variables import is_credential
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
        make(tmp_path / "packages", "FROM debian\nRUN apt-get install -y r-base\n"),
    ]


def test_a_summary_in_one_sentence(tasks: list[Path]) -> None:
    fitness = examine(tasks, SANDBOX, BARE)
    summary = fitness.summary()
    assert summary is not None
    assert summary.startswith("2 of 4 tasks can't be built in the sandbox (1 of several containers")
    assert "the verifiers of 1 need a network" in summary
    assert tasks[0] not in fitness.unusable
    assert "r-base" in fitness.unusable[tasks[3]][0].text
    assert examine(tasks[:1], SANDBOX, BARE).summary() is None


def test_containers_take_what_the_sandbox_cannot(tasks: list[Path]) -> None:
    assert not in_containers(tasks, host=BARE).unusable
    assert not examine(tasks, DOCKER, BARE).unusable
    assert "environment_type=docker takes 4 of them" in offer(examine(tasks, SANDBOX, BARE))


def test_what_was_found_is_kept_until_something_changes(
    tasks: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    examine(tasks, SANDBOX, BARE)
    looked: list[Path] = []

    def look(task: Path, *_: object) -> tuple[()]:
        looked.append(task)
        return ()

    monkeypatch.setattr(task_fitness, "unusable_in_sandbox", look)
    assert len(examine(tasks, SANDBOX, BARE).unusable) == 3
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
    assert (choice.name, fitness.unusable) == ("docker", {})
    assert choice.reason == "auto: the sandbox can't serve 3 of 4 tasks"
    assert choose_for_tasks(auto, tasks[:2])[0].name == "sandbox"
    assert choose_for_tasks(RunConfig(), tasks)[0].name == "sandbox"
    monkeypatch.setattr(task_fitness, "_docker_answers", lambda: False)
    assert choose_for_tasks(auto, tasks)[0].name == "sandbox"


@pytest.mark.parametrize(
    ("table", "only_solved"),
    [
        ("[environment.env]", False),
        ("[verifier.env]", False),
        ("[verifier.environment.env]", False),
        ('[[steps]]\nname = "one"\n[steps.verifier.env]', False),
        ("[agent.env]", False),
        ("[solution.env]", True),
    ],
)
def test_variables_of_the_host_that_are_not_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table: str, only_solved: bool
) -> None:
    """In every environment, at any time: what is kept of a task's files is compared anew."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    task = make(tmp_path / "task")
    values = 'A = "${NO_SUCH_KEY}"\nB = "${NO_SUCH_OTHER:-default}"\nC = "a ${LITERAL} b"\n'
    with (task / "task.toml").open("a") as file:
        file.write(f"{table}\n{values}")
    cloud = EnvironmentChoice("modal", "asked for", "modal", None)
    for choice in (SANDBOX, SANDBOX, DOCKER, cloud):
        fitness = examine([task], choice, BARE)
        section = table.rpartition("[")[2].rstrip("]")
        assert fitness.unusable[task][0].text == (
            f"task.toml: [{section}] needs NO_SUCH_KEY, which is not set: export NO_SUCH_KEY"
        )
        assert str(fitness.summary()).startswith("1 of 1 task needs variables that are not set")
        assert fitness.taken() == (
            "1 of 1 task takes variables of this machine: NO_SUCH_KEY, NO_SUCH_OTHER"
        )
        assert (not examine([task], choice, BARE, solution=False).unusable) is only_solved
        assert (examine([task], choice, BARE, solution=False).taken() is None) is only_solved
    for choice in (SANDBOX, DOCKER, cloud):
        monkeypatch.setenv("NO_SUCH_KEY", "")
        assert not examine([task], choice, BARE).unusable
        monkeypatch.setenv("NO_SUCH_KEY", "sk-secret")
        fitness = examine([task], choice, BARE)
        assert fitness.unusable[task][0].text == (
            f"task.toml: [{section}] takes NO_SUCH_KEY, a credential of yours:"
            " task_credentials=NO_SUCH_KEY gives it to tasks"
        )
        assert "1 of 1 task needs credentials of yours" in str(fitness.summary())
        assert "sk-secret" not in f"{fitness.summary()}{fitness.taken()}"
        assert not examine([task], choice, BARE, allowed=["NO_SUCH_KEY"]).unusable


@pytest.mark.parametrize(
    ("table", "name", "value", "is_kept_back"),
    [
        ('[environment.env]\nA = "${%s:-none}"', "TINKER_API_KEY", "tml-x", True),
        ('[environment.env]\nA = "${%s}"', "DATABASE", "pg://me:pw@host/x", True),
        (
            '[[environment.mcp_servers]]\nname = "x"\nurl = "http://x"\n'
            'headers = {Authorization = "Bearer ${%s}"}',
            "GITHUB_TOKEN",
            "x",
            True,
        ),
        ('[environment.env]\nA = "${%s}"', "MAX_TOKENS", "9", False),
        ('[environment.env]\nA = "a ${%s} b"', "WANDB_API_KEY", "x", False),
    ],
)
def test_a_task_is_not_given_a_key_of_the_host(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    table: str,
    name: str,
    value: str,
    is_kept_back: bool,
) -> None:
    task = make(tmp_path / "task")
    with (task / "task.toml").open("a") as file:
        file.write(table % name)
    monkeypatch.setenv(name, value)
    fitness = examine([task], DOCKER, BARE)
    assert [each[0].kind for each in fitness.unusable.values()] == ["credentials"] * is_kept_back
    if is_kept_back:  # no environment gives it to the task
        assert offer(examine([task], SANDBOX, BARE)) == ""
    chosen = choose_for_tasks(
        RunConfig(environment_type="sandbox", task_credentials=(name,)), [task]
    )
    assert not any(each.kind == "credentials" for each in chosen[1].unusable.get(task, ()))


def test_every_key_of_a_service_is_a_credential() -> None:
    accounts = {each for each in KEYS if each.endswith(("_ID", "_USERNAME"))}
    assert [each for each in KEYS - accounts if not is_credential(each, "x")] == []
