"""The committed mazes, walked for real on a private /app, and the conversations made of them."""

from __future__ import annotations

import random
import tomllib
from collections import Counter
from pathlib import Path

import pytest

from tbtui.journal.events import EvalFinished, TrialFinished
from tbtui.journal.rundir import RunDirectory
from tbtui.policies.local.renderer import PROMPT
from tbtui.resources import tasks_dir
from tests.by_hand.maze import DOOR, OUT, Maze, demonstration, maze_tasks, write_mazes
from tests.catalog.test_starter import Box, tree_of
from tests.cli.process import tbtui
from tests.events import events_of

MAZES = {name: maze for name, _, maze in maze_tasks()}


def box_of(name: str, root: Path) -> Box:
    return Box(tasks_dir() / "maze" / name, root)


def walk(box: Box, *doors: str) -> list[str]:
    """What `./go` says to each."""
    return [box.run_line(f"./go {door}".strip()) for door in doors]


def route(maze: Maze, *, solves: bool) -> list[str]:
    """A door of each room, which isn't the first one where another will do."""
    others = [[door for door in doors if door != DOOR] for doors in maze.rooms]
    doors = [each[-1] for each in others]
    if solves:
        doors[maze.decisive] = DOOR
    return doors


def test_regenerating_gives_the_committed_bytes(tmp_path: Path) -> None:
    assert write_mazes(tmp_path) == 36
    assert tree_of(tmp_path) == tree_of(tasks_dir() / "maze")
    with pytest.raises(FileExistsError):
        write_mazes(tmp_path)


def test_every_room_is_as_often_the_decisive_one_in_both_splits() -> None:
    rooms: Counter[tuple[str, int]] = Counter()
    for name, split, maze in maze_tasks():
        metadata = tomllib.loads((tasks_dir() / "maze" / name / "task.toml").read_text())
        assert metadata["metadata"]["split"] == split
        rooms[split, maze.decisive] += 1
    assert rooms == {(s, room): n for s, n in (("train", 4), ("heldout", 2)) for room in range(6)}


@pytest.mark.parametrize("name", MAZES)
def test_the_golden_door_alone_decides(name: str, tmp_path: Path) -> None:
    maze = MAZES[name]
    box = box_of(name, tmp_path)
    assert box.reward() == "0"
    box.run("solution/solve.sh")
    assert box.reward() == "1"
    taken = route(maze, solves=True)
    for doors, reward in ((taken, "1"), (route(maze, solves=False), "0"), (taken[:-1], "0")):
        (box.app / "path").unlink()
        walk(box, *doors)
        assert box.reward() == reward


def test_what_go_says(tmp_path: Path) -> None:
    maze = MAZES["maze-01"]
    box = box_of("maze-01", tmp_path)
    shown = [f"doors: {' '.join(doors)}\n" for doors in maze.rooms]
    assert box.run_line("bash go") == shown[0]
    assert walk(box, "", "", maze.rooms[1][0], f"{maze.rooms[0][0]} ") == [
        shown[0],
        shown[0],
        f"There is no door named {maze.rooms[1][0]} here.\n{shown[0]}",
        shown[1],
    ]
    assert walk(box, *route(maze, solves=True)[1:]) == [*shown[2:], f"{OUT}\n"]
    assert walk(box, "", "apple", "'*'") == [
        f"{OUT}\n",
        f"There is no door named apple here.\n{OUT}\n",
        f"There is no door named * here.\n{OUT}\n",
    ]


@pytest.mark.parametrize(
    "path", ["{all}", "{all}\n{door}", "*\n*\n*\n*\n*\n*", "{door}\n{door}\n{door}"]
)
def test_a_path_that_nobody_can_have_taken_scores_zero(path: str, tmp_path: Path) -> None:
    maze = MAZES["maze-02"]
    box = box_of("maze-02", tmp_path)
    every = "\n".join(" ".join(doors) for doors in maze.rooms)
    (box.app / "path").write_text(path.format(all=every, door=DOOR) + "\n")
    assert box.reward() == "0"


def test_demonstrations_show_what_the_script_prints(tmp_path: Path) -> None:
    """The policy is warmed up on a terminal that is only written down."""
    rng = random.Random(0)
    astray = solved = 0
    for name, maze in MAZES.items():
        box = box_of(name, tmp_path / name)
        turns = demonstration(rng, maze, "")
        for turn in turns[1:-1]:
            line = turn.observation.splitlines()[0].removeprefix(f"{PROMPT} ")
            assert turn.observation == f"{PROMPT} {line}\n{box.run_line(line)}{PROMPT}"
        assert len([turn for turn in turns if turn.imitate]) == 9
        astray += len(turns) - 9
        solved += int(box.reward())
    assert astray
    assert 5 < solved < 20  # one in three


@pytest.mark.slow
def test_its_model_walks_the_whole_maze_and_takes_any_door(tmp_path: Path) -> None:
    result = tbtui(
        *("run", "--no-ui", "model_name=maze", "max_steps=0", "eval_group_size=4"),
        *(f"logs_dir={tmp_path}", "run_name=maze"),
    )
    assert result.returncode == 0, result.stderr
    run = RunDirectory(tmp_path / "maze")
    trials = events_of(run, TrialFinished)
    assert len(trials) == 48
    assert sum(trial.turns >= 9 for trial in trials) > 40, sorted(trial.turns for trial in trials)
    (evaluation,) = events_of(run, EvalFinished)
    assert evaluation.pass_rate is not None
    assert 0.15 <= evaluation.pass_rate <= 0.5
