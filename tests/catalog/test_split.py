"""Training never sees a held-out task, whatever way the split was chosen."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tbtui.catalog.load import SplitName, TaskInfo
from tbtui.catalog.split import Split, split_tasks
from tbtui.catalog.tasks import CatalogError


def task(name: str, dataset: str = "d", split: SplitName | None = None) -> TaskInfo:
    return TaskInfo(
        name=name,
        path=Path("/tasks") / dataset / name,
        dataset=dataset,
        instruction="",
        difficulty=None,
        category=None,
        kind=None,
        tags=(),
        split=split,
        agent_timeout_sec=1.0,
        verifier_timeout_sec=1.0,
        allows_network=False,
        has_solution=True,
        steps=(),
    )


def names(tasks: tuple[TaskInfo, ...]) -> list[str]:
    return [each.name for each in tasks]


splits: st.SearchStrategy[SplitName | None] = st.sampled_from([None, "train", "heldout"])
catalogs = st.lists(
    st.builds(task, st.text("abc", min_size=1), st.sampled_from("de"), splits),
    min_size=1,
    unique_by=lambda each: each.name,
)
seeds = st.integers(0, 2**32)


@given(catalogs, st.floats(0, 0.99), seeds, st.data())
def test_parts_are_disjoint_and_complete(
    tasks: list[TaskInfo], fraction: float, seed: int, data: st.DataObject
) -> None:
    listed = data.draw(st.lists(st.sampled_from([each.name for each in tasks]), unique=True))
    try:
        split = split_tasks(tasks, eval_split=fraction, seed=seed, eval_tasks=listed)
    except CatalogError as error:
        assert "none is left to train on" in str(error)
        return
    train, heldout, unused = map(names, (split.train, split.heldout, split.unused))
    assert sorted(train + heldout + unused) == sorted(each.name for each in tasks)
    assert not {each.name for each in tasks if each.split == "heldout"} & set(train)
    if listed:
        assert set(heldout) == set(listed)
    order = [each.name for each in tasks]
    assert train == sorted(train, key=order.index)


@given(st.sets(st.text("abcdef", min_size=1), min_size=2), st.floats(0.01, 0.99), seeds)
def test_a_chosen_split_is_reproducible_and_leaves_no_part_empty(
    chosen: set[str], fraction: float, seed: int
) -> None:
    tasks = [task(name) for name in sorted(chosen)]
    split = split_tasks(tasks, eval_split=fraction, seed=seed)
    again = split_tasks(list(reversed(tasks)), eval_split=fraction, seed=seed)
    assert split.train
    assert split.heldout
    assert set(split.heldout) == set(again.heldout)


@given(
    st.sets(st.integers(0, 10**6), min_size=40, max_size=60),
    st.sets(st.integers(0, 10**6), max_size=20),
    seeds,
)
def test_adding_tasks_moves_no_other(first: set[int], more: set[int], seed: int) -> None:
    def heldout(numbers: set[int]) -> set[str]:
        tasks = [task(f"t{number}") for number in sorted(numbers)]
        return set(names(split_tasks(tasks, eval_split=0.5, seed=seed).heldout))

    before, after = heldout(first), heldout(first | more)
    assert before == {name for name in after if int(name[1:]) in first}


def test_the_fraction_is_about_right_and_follows_the_seed() -> None:
    tasks = [task(f"task-{number}") for number in range(1000)]
    parts = [names(split_tasks(tasks, eval_split=0.25, seed=seed).heldout) for seed in (0, 1)]
    assert all(200 < len(part) < 300 for part in parts)
    assert parts[0] != parts[1]
    # The choice must be the same on every machine and in every version.
    assert parts[0][:4] == ["task-4", "task-6", "task-8", "task-11"]


def test_declarations_rule_their_data_set_only() -> None:
    tasks = [task("a", "x", "heldout"), task("b", "x"), *(task(f"n{i}", "y") for i in range(9))]
    split = split_tasks(tasks, eval_split=0.4, seed=3)
    assert "a" in names(split.heldout)
    assert "b" in names(split.train)
    assert any(name.startswith("n") for name in names(split.heldout))
    without = split_tasks(tasks, eval_split=0, seed=3)
    assert names(without.heldout) == ["a"]


def test_a_list_decides_but_declared_tasks_still_never_train() -> None:
    tasks = [task("a", split="heldout"), task("b"), task("c")]
    split = split_tasks(tasks, eval_split=0.2, seed=0, eval_tasks=["c"])
    assert (names(split.train), names(split.heldout), names(split.unused)) == (["b"], ["c"], ["a"])


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"eval_split": 1.0}, "eval_split is 1"),
        ({"eval_split": -0.1}, "eval_split is -0.1"),
        ({"eval_split": float("nan")}, "eval_split is nan"),
        ({"eval_split": 0.2, "eval_tasks": ["copy-fil"]}, "did you mean 'copy-file'"),
        ({"eval_split": 0.2, "eval_tasks": ["copy-file", "move"]}, "none is left to train on"),
    ],
)
def test_bad_input(arguments: dict[str, Any], reason: str) -> None:
    tasks = [task("copy-file"), task("move")]
    with pytest.raises(CatalogError, match=reason):
        split_tasks(tasks, seed=0, **arguments)


def test_a_split_can_not_be_made_inconsistent() -> None:
    both = task("a")
    with pytest.raises(CatalogError, match="would be trained on and held out"):
        Split(train=(both,), heldout=(both,))
    with pytest.raises(CatalogError, match="second copy"):
        Split(train=(both,), heldout=(), unused=(replace(both, name="b"),))
