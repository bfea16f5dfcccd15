"""How the maze tasks and the embedded policy's checkpoint for them are made.

`python -m tests.by_hand.maze tasks DIRECTORY` writes the committed set of 24 + 12 tasks, the same
bytes each time; `python -m tests.by_hand.maze model DIRECTORY` makes policy.npz, in some minutes on
two cores.

A maze takes nine turns: one to look around, one for each of six rooms, one to see that the maze is
over and one to confirm it. Each room has three doors. One of the rooms has the golden door, and the
trial is lost where another is taken there; what is chosen in the other rooms changes nothing. The
policy starts from the weights for the starter tasks and learns to walk through mazes by doors drawn
at random. One trial in three would so be solved; some go astray, and about one in five is.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from tbtui.policies.local.checkpoint_file import Checkpoint, read_checkpoint, write_checkpoint
from tbtui.policies.local.model import Parameters
from tbtui.policies.local.renderer import (
    CONFIRM_HEADING,
    CONFIRM_QUESTION,
    PROMPT,
    STATE_HEADING,
    harbor_directory,
    preamble_of,
    read_template,
)
from tbtui.policies.local.tokenizer import SHIPPED, TOKENIZER, LocalTokenizer
from tests.by_hand.starter.__main__ import report
from tests.by_hand.starter.demonstrations import CONFIRM, READY, WORKED, Turn, answer
from tests.by_hand.starter.warm_start import Phase, imitate
from tests.by_hand.starter.world import WORDS
from tests.by_hand.starter.write import Split

SEED = 1
ROOMS = 6
DOORS = 3
TRAIN = 24
HELDOUT = 12
DOOR = "golden"
OUT = "You are out of the maze."
PHASES = (
    (Phase("way", 400, 2e-3, {}, with_terminal=False), range(2, ROOMS + 1)),
    (Phase("whole", 150, 1e-3, {}, with_terminal=False), range(ROOMS, ROOMS + 1)),
)
"""How long each phase is, and how many rooms its mazes have."""
ASTRAY = 0.1
"""Share of rooms in which a door is tried that isn't there."""

GO = """\
#!/bin/bash
# Without a word: what doors this room has. With the name of one: through it, for good.
[[ $0 == */* ]] && { cd "${0%/*}" || exit 1; }
mapfile -t rooms < rooms
path=()
[[ -e path ]] && mapfile -t path < path
doors=${rooms[${#path[@]}]}
if [[ $1 && " $doors " == *" $1 "* ]]; then
  echo "$1" >> path
  doors=${rooms[${#path[@]} + 1]}
elif [[ $1 ]]; then
  echo "There is no door named $1 here."
fi
[[ $doors ]] && echo "doors: $doors" || echo "You are out of the maze."
"""

_TASK_TOML = """\
schema_version = "1.4"

[metadata]
difficulty = "easy"
category = "games"
split = "{split}"
tags = ["maze", "credit-assignment"]

[agent]
timeout_sec = 60.0

[verifier]
timeout_sec = 20.0

[environment]
build_timeout_sec = 300.0
workdir = "/app"
"""

_DOCKERFILE = """\
FROM debian:bookworm-slim
WORKDIR /app
COPY rooms /app/rooms
COPY --chmod=755 go /app/go
"""

_TEST_SH = """\
#!/bin/bash
# Passes when /app/path has one door of each room, and the one that was asked for among them.
asked={door}
rooms=(
{rooms})
reward=/logs/verifier/reward.txt
[[ -d /logs/verifier ]] || mkdir -p /logs/verifier
echo 0 > "$reward"
fail() {{ echo "FAIL: $1"; exit 0; }}
[[ -f /app/path && ! -L /app/path && -r /app/path ]] || fail "no path was taken"
mapfile -t path < /app/path
[[ ${{#path[@]}} == "${{#rooms[@]}}" ]] || fail "${{#path[@]}} of ${{#rooms[@]}} rooms were left"
found=
for room in "${{!rooms[@]}}"; do
  door=${{path[room]}}
  [[ $door && $door != *" "* && " ${{rooms[room]}} " == *" $door "* ]] ||
    fail "room $((room + 1)) has no door ${{door@Q}}"
  [[ $door == "$asked" ]] && found=1
done
[[ $found ]] || fail "the door $asked was passed by"
echo 1 > "$reward"
"""


INSTRUCTION = (
    "In /app is a maze. ./go lists the doors of the room that you are in, ./go NAME goes through"
    f" one, and it closes behind you. Find the way out, and on your way go through the {DOOR} door"
)


@dataclass(frozen=True, slots=True)
class Maze:
    """The doors of each room."""

    rooms: tuple[tuple[str, ...], ...]

    @property
    def decisive(self) -> int:
        """Index of the room that has the golden door."""
        return next(i for i, doors in enumerate(self.rooms) if DOOR in doors)


def draw_maze(rng: random.Random, rooms: int = ROOMS) -> Maze:
    """No name is on two doors."""
    others = [word for word in WORDS if word != DOOR]
    names = [DOOR, *rng.sample(others, rooms * DOORS - 1)]
    rng.shuffle(names)
    return Maze(tuple(tuple(names[i * DOORS : (i + 1) * DOORS]) for i in range(rooms)))


def maze_tasks(seed: int = SEED) -> Iterator[tuple[str, Split, Maze]]:
    """The committed set. Each room is the decisive one in as many tasks as any other."""
    rng = random.Random(f"maze/{seed}")
    for number in range(TRAIN + HELDOUT):
        while (maze := draw_maze(rng)).decisive != number % ROOMS:
            pass
        yield f"maze-{number + 1:02d}", "train" if number < TRAIN else "heldout", maze


def write_mazes(directory: Path, seed: int = SEED) -> int:
    """Write the whole set into `directory`; returns how many tasks there are.

    Raises `FileExistsError` when one of them is already there: nothing is overwritten.
    """
    count = 0
    for name, split, maze in maze_tasks(seed):
        (directory / name).mkdir(parents=True)
        lines = [" ".join(doors) for doors in maze.rooms]
        steps = [DOOR if DOOR in doors else doors[0] for doors in maze.rooms]
        texts = {
            "task.toml": _TASK_TOML.format(split=split),
            "instruction.md": f"{INSTRUCTION}\n",
            "environment/Dockerfile": _DOCKERFILE,
            "environment/go": GO,
            "environment/rooms": "".join(f"{line}\n" for line in lines),
            "solution/solve.sh": "#!/bin/bash\ncd /app || exit 1\n"
            + "".join(f"./go {step}\n" for step in steps),
            "tests/test.sh": _TEST_SH.format(
                door=DOOR, rooms="".join(f"  '{line}'\n" for line in lines)
            ),
        }
        for path, text in texts.items():
            target = directory / name / path
            target.parent.mkdir(exist_ok=True)
            target.write_text(text, encoding="utf-8")
            target.chmod(0o755 if text.startswith("#!") else 0o644)
        count += 1
    return count


def demonstration(rng: random.Random, maze: Maze, preamble: str) -> list[Turn]:
    """A conversation through the whole maze, by doors that are drawn at random.

    Now and then a door is tried that isn't there, which is shown and not imitated.
    """
    turns: list[Turn] = []
    seen = preamble + INSTRUCTION + STATE_HEADING + PROMPT

    def say(line: str, shown: str, *, imitate: bool = True) -> None:
        nonlocal seen
        turns.append(Turn(seen, answer(READY, "", [line], False), imitate))
        seen = f"{PROMPT} {line}\n{shown}\n{PROMPT}"

    listed = [*(f"doors: {' '.join(doors)}" for doors in maze.rooms), OUT]
    say("./go", listed[0])
    for room, doors in enumerate(maze.rooms):
        if rng.random() < ASTRAY:
            stranger = rng.choice([word for word in WORDS if word not in doors])
            shown = f"There is no door named {stranger} here.\n{listed[room]}"
            say(f"./go {stranger}", shown, imitate=False)
        say(f"./go {rng.choice(doors)}", listed[room + 1])
    turns.append(Turn(seen, answer(WORKED, CONFIRM, [], True)))
    seen = CONFIRM_HEADING + PROMPT + CONFIRM_QUESTION
    turns.append(Turn(seen, answer(WORKED, CONFIRM, [], True)))
    return turns


def warm_start(directory: Path, seed: int, report: Callable[[str], None]) -> None:
    """Write policy.npz into `directory`. Mazes are drawn anew; the held-out ones never come up."""
    preamble = preamble_of(read_template(harbor_directory()))
    tokenizer = LocalTokenizer(TOKENIZER)
    start = read_checkpoint(SHIPPED)
    parameters = Parameters(start.config, start.weights)
    held_out = {maze for _, split, maze in maze_tasks() if split == "heldout"}

    def demonstrate(rng: random.Random, rooms: range) -> list[Turn]:
        while (maze := draw_maze(rng, rng.choice(rooms))) in held_out:
            pass
        return demonstration(rng, maze, preamble)

    for number, (phase, rooms) in enumerate(PHASES):
        draw = partial(demonstrate, random.Random(seed + number), rooms)
        imitate(parameters, tokenizer, draw, phase, report, threads=2)
    write_checkpoint(
        directory,
        Checkpoint(start.config, tokenizer.digest, 0, parameters.flat, None, None, 0),
        dtype=np.float16,
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.by_hand.maze")
    parser.add_argument("what", choices=("tasks", "model"))
    parser.add_argument("directory", type=Path, help="a new or empty one")
    arguments = parser.parse_args()
    if arguments.what == "tasks":
        report(f"{write_mazes(arguments.directory)} tasks in {arguments.directory}")
    else:
        warm_start(arguments.directory, 0, report)


if __name__ == "__main__":
    main()
