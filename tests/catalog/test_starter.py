"""The committed starter tasks, and their verifiers run for real on a private /app."""

from __future__ import annotations

import os
import subprocess
import tomllib
from collections import Counter
from pathlib import Path

import pytest

from tests.by_hand.starter.world import KINDS
from tests.by_hand.starter.write import starter_tasks, write_starter

STARTER = Path(__file__).parents[2] / "tasks" / "starter"
TASKS = sorted(path for path in STARTER.iterdir() if path.is_dir())


def tree_of(directory: Path) -> dict[str, tuple[int, bytes]]:
    """Relative path -> permission bits and contents."""
    return {
        str(path.relative_to(directory)): (path.stat().st_mode & 0o777, path.read_bytes())
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


class Box:
    """A task's /app and /logs under a directory of our own: its scripts with those paths."""

    def __init__(self, task: Path, root: Path) -> None:
        self.task, self.app, self.logs = task, root / "app", root / "logs"
        self.app.mkdir(parents=True)
        for line in (task / "environment" / "Dockerfile").read_text().splitlines():
            match line.split():
                case ["COPY", *flags, source, target]:
                    copied = root / target.lstrip("/")
                    copied.write_bytes((task / "environment" / source).read_bytes())
                    copied.chmod(0o755 if flags == ["--chmod=755"] else 0o644)

    def run(self, script: str) -> None:
        text = (self.task / script).read_text()
        text = text.replace("/logs/", f"{self.logs}/").replace("/app", str(self.app))
        subprocess.run(["bash", "-c", text], check=True, capture_output=True, timeout=30)

    def run_line(self, line: str) -> str:
        """What a line prints in /app, whatever its exit status."""
        return subprocess.run(
            ["bash", "-c", line], cwd=self.app, stdout=subprocess.PIPE, text=True, timeout=30
        ).stdout

    def reward(self) -> str:
        self.run("tests/test.sh")
        return (self.logs / "verifier" / "reward.txt").read_text().strip()


def task_of(kind: str) -> Path:
    return STARTER / f"{kind}-01"


def solved(kind: str, root: Path) -> Box:
    box = Box(task_of(kind), root)
    box.run("solution/solve.sh")
    return box


def test_regenerating_gives_the_committed_bytes(tmp_path: Path) -> None:
    write_starter(tmp_path)
    assert tree_of(tmp_path) == tree_of(STARTER)


def test_another_seed_gives_other_tasks_and_nothing_is_overwritten(tmp_path: Path) -> None:
    write_starter(tmp_path, seed=2)
    assert tree_of(tmp_path) != tree_of(STARTER)
    with pytest.raises(FileExistsError):
        write_starter(tmp_path, seed=2)


def test_the_set_is_balanced_and_its_splits_share_nothing() -> None:
    splits: Counter[tuple[str, str]] = Counter()
    instructions: dict[str, set[str]] = {"train": set(), "heldout": set()}
    for task in TASKS:
        metadata = tomllib.loads((task / "task.toml").read_text())["metadata"]
        assert task.name.startswith(metadata["kind"])
        splits[metadata["kind"], metadata["split"]] += 1
        instructions[metadata["split"]].add((task / "instruction.md").read_text())
    assert splits == {
        **{(kind, "train"): 6 for kind in KINDS},
        **{(kind, "heldout"): 3 for kind in KINDS},
    }
    assert len(instructions["train"]) == 48
    assert len(instructions["heldout"]) == 24
    assert not instructions["train"] & instructions["heldout"]
    assert len(list(starter_tasks())) == len(TASKS)


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_oracle_scores_one_and_nothing_scores_zero(task: Path, tmp_path: Path) -> None:
    box = Box(task, tmp_path)
    assert box.reward() == "0"
    box.run("solution/solve.sh")
    assert box.reward() == "1"


@pytest.mark.parametrize("kind", KINDS)
def test_something_extra_fails(kind: str, tmp_path: Path) -> None:
    box = solved(kind, tmp_path)
    (box.app / ".hidden").write_text("")
    assert box.reward() == "0"
    (box.app / ".hidden").unlink()
    assert box.reward() == "1"
    (box.app / "$(touch oops)]").mkdir()
    assert box.reward() == "0"
    assert not (box.app / "oops").exists()


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "mkdir"])
def test_contents_are_compared_up_to_one_newline(kind: str, tmp_path: Path) -> None:
    box = solved(kind, tmp_path)
    (path,) = [path for path in box.app.rglob("*") if path.is_file()][:1]
    right = path.read_bytes()
    for content, reward in (
        (right.rstrip(b"\n"), "1"),
        (right + b"\n", "0"),
        (right + b"\0", "0"),
        (b" " + right, "0"),
        (b"", "0"),
    ):
        path.write_bytes(content)
        assert box.reward() == reward, content
    path.write_bytes(right)
    elsewhere = tmp_path / "elsewhere"
    path.rename(elsewhere)
    path.symlink_to(elsewhere)
    assert box.reward() == "0"
    path.unlink()
    os.mkfifo(path)
    assert box.reward() == "0"


def test_one_file_cannot_pass_for_two(tmp_path: Path) -> None:
    box = solved("copy", tmp_path)
    first, second = sorted(path for path in box.app.iterdir())
    first.write_text(f"{first.read_text()}f {second.name}\n{second.read_text()}")
    second.unlink()
    assert box.reward() == "0"


def test_a_directory_that_is_gone_or_a_link_scores_zero(tmp_path: Path) -> None:
    box = solved("mkdir", tmp_path)
    elsewhere = tmp_path / "elsewhere"
    box.app.rename(elsewhere)
    assert box.reward() == "0"
    box.app.symlink_to(elsewhere)
    assert box.reward() == "0"
