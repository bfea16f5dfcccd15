"""The plugin's taskset, loaded as verifiers loads it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("verifiers", reason="verifiers is not installed: the extra `prime-rl` has it")

from verifiers.v1.utils.loaders import (
    default_harness_id,
    environment_class,
    load_taskset,
    taskset_config_type,
)

from tbtui.catalog.tasks import CatalogError
from tbtui.engines.prime_rl.plugin.harness import HarborEnvironment
from tests.tasks import make_task

pytestmark = pytest.mark.extras

ID = "tbtui-harbor"


@pytest.fixture
def tasks_dir(tmp_path: Path) -> Path:
    for name, split in (("a", "train"), ("b", "train"), ("c", "heldout")):
        make_task(tmp_path / name, f"Do {name}.", split=split)
    return tmp_path


def names(tasks_dir: Path, **settings: Any) -> list[str | None]:
    config = taskset_config_type(ID).model_validate({"id": ID, "tasks_dir": tasks_dir, **settings})
    return [task.data.name for task in load_taskset(config)]


def test_naming_the_taskset_brings_environment_and_harness_along() -> None:
    assert environment_class(ID) is HarborEnvironment
    assert default_harness_id(ID) == ID


@pytest.mark.parametrize(
    ("settings", "left"),
    [
        ({}, ["a", "b", "c"]),
        ({"split": "train"}, ["a", "b"]),
        ({"split": "heldout"}, ["c"]),
        ({"tasks": ["c", "a"]}, ["a", "c"]),
        ({"split": "train", "exclude": ["a"]}, ["b"]),
    ],
)
def test_filters(tasks_dir: Path, settings: dict[str, Any], left: list[str]) -> None:
    assert names(tasks_dir, **settings) == left


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"tasks": ["aa"]}, "no task 'aa' in"),
        ({"exclude": ["d"]}, "exclude: no task 'd' in"),
        ({"split": "heldout", "exclude": ["c"]}, "no task of .* is left"),
    ],
)
def test_nothing_to_load_is_one_clear_line(
    tasks_dir: Path, settings: dict[str, Any], reason: str
) -> None:
    with pytest.raises(CatalogError, match=reason):
        names(tasks_dir, **settings)


def test_a_task_says_what_its_trial_needs(tasks_dir: Path) -> None:
    config = taskset_config_type(ID).model_validate({"id": ID, "tasks_dir": tasks_dir})
    task = next(iter(load_taskset(config)))
    assert task.data.prompt == "Do a.\n"
    assert Path(task.data.task_dir) == tasks_dir / "a"
    assert (task.data.agent_timeout_sec, task.data.split, task.key) == (60.0, "train", "a")
