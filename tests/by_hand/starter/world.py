"""The starter world: eight kinds of small file tasks, drawn at random from a few word lists."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass

# fmt: off
STEMS = (
    "hello", "notes", "data", "report", "alpha", "beta", "gamma", "delta", "config", "log", "out",
    "result", "list", "index", "main", "readme", "todo", "plan", "score", "names", "items", "table",
    "draft", "final", "input", "backup", "summary", "record", "story", "recipe",
)
EXTENSIONS = ("txt", "md", "log", "json", "csv", "py")
WORDS = (
    "apple", "river", "stone", "green", "quick", "lazy", "happy", "tiger", "ocean", "cloud",
    "seven", "silver", "golden", "winter", "summer", "bright", "silent", "paper", "window",
    "garden", "copper", "lemon", "orange", "purple", "rocket", "planet", "forest", "desert",
    "island", "castle",
)
DIRECTORIES = (
    "src", "build", "docs", "tests", "assets", "temp", "archive", "public", "private", "shared",
    *STEMS,
)
# fmt: on


@dataclass(frozen=True, slots=True)
class StarterTask:
    """One task: what is asked, what is there before, and what must be there afterwards.

    Paths are relative to /app. `files` are the regular files at the start; `goal` is the whole
    tree at the end, with None for a directory. `commands` is the shortest solution, run in /app.
    """

    kind: str
    instruction: str
    files: Mapping[str, str]
    commands: tuple[str, ...]
    goal: Mapping[str, str | None]


def file_name(rng: random.Random, *taken: str) -> str:
    """A random file name that is none of `taken`."""
    while True:
        name = f"{rng.choice(STEMS)}.{rng.choice(EXTENSIONS)}"
        if name not in taken:
            return name


def _create(rng: random.Random) -> StarterTask:
    name, first, second = file_name(rng), rng.choice(WORDS), rng.choice(WORDS)
    return StarterTask(
        kind="create",
        instruction=f"Create a file named {name} in /app with the content: {first} {second}",
        files={},
        commands=(f"echo {first} {second} > {name}",),
        goal={name: f"{first} {second}\n"},
    )


def _mkdir(rng: random.Random) -> StarterTask:
    name = rng.choice(DIRECTORIES)
    return StarterTask(
        kind="mkdir",
        instruction=f"Create a directory named {name} inside /app.",
        files={},
        commands=(f"mkdir {name}",),
        goal={name: None},
    )


def _copy(rng: random.Random) -> StarterTask:
    source = file_name(rng)
    target, content = file_name(rng, source), f"{rng.choice(WORDS)}\n"
    return StarterTask(
        kind="copy",
        instruction=f"Copy the file /app/{source} to /app/{target}",
        files={source: content},
        commands=(f"cp {source} {target}",),
        goal={source: content, target: content},
    )


def _move(rng: random.Random) -> StarterTask:
    source = file_name(rng)
    target, content = file_name(rng, source), f"{rng.choice(WORDS)}\n"
    return StarterTask(
        kind="move",
        instruction=f"Rename the file /app/{source} to /app/{target}",
        files={source: content},
        commands=(f"mv {source} {target}",),
        goal={target: content},
    )


def _count(rng: random.Random) -> StarterTask:
    source = file_name(rng)
    target, lines = file_name(rng, source), rng.randint(2, 9)
    content = "".join(f"{rng.choice(WORDS)}\n" for _ in range(lines))
    return StarterTask(
        kind="count",
        instruction=f"Count the lines of /app/{source} and write the number to /app/{target}",
        files={source: content},
        commands=(f"wc -l < {source} > {target}",),
        goal={source: content, target: f"{lines}\n"},
    )


def _remove(rng: random.Random) -> StarterTask:
    doomed = file_name(rng)
    kept = file_name(rng, doomed)
    content = f"{rng.choice(WORDS)}\n"
    return StarterTask(
        kind="remove",
        instruction=f"Delete the file /app/{doomed} but keep everything else.",
        files={doomed: f"{rng.choice(WORDS)}\n", kept: content},
        commands=(f"rm {doomed}",),
        goal={kept: content},
    )


def _append(rng: random.Random) -> StarterTask:
    name, content, word = file_name(rng), f"{rng.choice(WORDS)}\n", rng.choice(WORDS)
    return StarterTask(
        kind="append",
        instruction=f"Append the word {word} as a new line to /app/{name}",
        files={name: content},
        commands=(f"echo {word} >> {name}",),
        goal={name: f"{content}{word}\n"},
    )


def _nested(rng: random.Random) -> StarterTask:
    directory, name, word = rng.choice(DIRECTORIES), file_name(rng), rng.choice(WORDS)
    return StarterTask(
        kind="nested",
        instruction=(
            f"Create a directory named {directory} inside /app "
            f"and put a file named {name} in it with the content: {word}"
        ),
        files={},
        commands=(f"mkdir {directory}", f"echo {word} > {directory}/{name}"),
        goal={directory: None, f"{directory}/{name}": f"{word}\n"},
    )


KINDS: Mapping[str, Callable[[random.Random], StarterTask]] = {
    "create": _create,
    "mkdir": _mkdir,
    "copy": _copy,
    "move": _move,
    "count": _count,
    "remove": _remove,
    "append": _append,
    "nested": _nested,
}


def draw_task(rng: random.Random) -> StarterTask:
    """A task of a random kind."""
    return KINDS[rng.choice(list(KINDS))](rng)
