"""What five demonstrations teach that five more steps of GRPO don't.

    uv run python -m tests.benchmarks.demonstrations [SEED ...] [SETTING=VALUE ...]

The embedded model knows how to delete a file and how to make a directory, and has never seen a task
that asks for both. It is trained on five such tasks for five steps and evaluated on eight others
before and after: once as it is, and once with five demonstrations. Those are given as a person
gives them, over the run's socket: a trial of each task is taken over in its first turn, the two
commands are typed, and the trial is given back; what that made is accepted. A table, a row for each
seed.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tbtui.engines.control.client import ControlClient
from tbtui.journal.commands import Command, Typed, to_arguments
from tbtui.journal.events import (
    DemonstrationKept,
    EvalFinished,
    HumanTyped,
    RunFinished,
    TrialPaused,
    TrialQueued,
    TrialTakenOver,
)
from tbtui.journal.rundir import RunDirectory
from tests import session
from tests.events import events_of
from tests.tasks import make_task

STEPS = 5
SHOWN = 5
GROUP = 8
FILES = (
    *("notes.txt", "data.csv", "list.md", "report.log", "table.json", "config.py", "index.txt"),
    *("todo.csv", "main.md", "draft.log", "final.json", "backup.py", "story.txt"),
)
DIRECTORIES = (
    *("src", "build", "docs", "tests", "assets", "temp", "archive", "public", "private", "shared"),
    *("alpha", "gamma", "input"),
)
PATIENCE_SEC = 300


def tbtui(*arguments: str, home: Path, ok: bool = True) -> str | None:
    kinds = {f"XDG_{name}_HOME": str(home / name) for name in ("CONFIG", "STATE", "DATA")}
    done = subprocess.run(
        [sys.executable, "-m", "tbtui", *arguments],
        env={**os.environ, **kinds},
        capture_output=True,
        text=True,
        timeout=PATIENCE_SEC,
        check=False,
    )
    if done.returncode == 0:
        return done.stdout
    if ok:
        raise SystemExit(f"{arguments}: {done.stdout}{done.stderr}")
    return None


def solution(number: int) -> tuple[str, str]:
    return f"rm {FILES[number]}", f"mkdir {DIRECTORIES[number]}"


def write_tasks(folder: Path) -> list[str]:
    """Tasks that ask for a file to go and a directory to be made."""
    names = []
    for number, (file, directory) in enumerate(zip(FILES, DIRECTORIES, strict=True)):
        name = f"both-{number + 1:02d}"
        task = make_task(
            folder / name,
            f"Delete the file /app/{file} but keep everything else.\n"
            f"Create a directory named {directory} inside /app",
            f"cd /app; [ ! -e {file} ] && [ -d {directory} ]; echo $((1 - $?)) > $R",
        )
        with (task / "environment" / "Dockerfile").open("a") as dockerfile:
            dockerfile.write(f"COPY {file} /app/{file}\n")
        (task / "environment" / file).write_text("winter\n")
        names.append(name)
    return names


async def demonstrate(run: RunDirectory) -> list[str]:
    """Show how, in the last trial of each group of the first step; returns the demonstrations."""
    queued = await until(lambda: _last_trials(run))
    client, _ = await ControlClient.open(run, "person")
    try:
        for trial in queued:  # before it starts: it waits in its first turn
            await client.ask(Command("pause", trial, "person"))
        for trial, task in queued.items():
            await show(client, run, trial, solution(int(task[-2:]) - 1))
        kept = await until(lambda: _all_kept(run))
    finally:
        client.close()
    return [each.demonstration for each in kept]


async def show(client: ControlClient, run: RunDirectory, trial: str, lines: Sequence[str]) -> None:
    """Type lines in a trial that is about to pause, and give it back."""
    await until(lambda: _of(run, TrialPaused, trial))
    await client.ask(Command("take_over", trial, "person"))
    await until(lambda: _of(run, TrialTakenOver, trial))
    for line in lines:
        typed = to_arguments([Typed("text", line), Typed("key", "Enter")])
        await client.ask(Command("type", trial, "person", arguments=typed))
    await until(lambda: len(_of(run, HumanTyped, trial)) == len(lines))
    await client.ask(Command("give_back", trial, "person"))


def _last_trials(run: RunDirectory) -> dict[str, str]:
    """Trial -> task, once all groups of the first step are queued."""
    queued = [e for e in events_of(run, TrialQueued) if e.step == 1 and e.purpose == "train"]
    last = {e.trial: e.task for e in queued if e.label.endswith(f"/{GROUP}")}
    return last if len(last) == SHOWN else {}


def _of[E: TrialPaused | TrialTakenOver | HumanTyped](
    run: RunDirectory, kind: type[E], trial: str
) -> list[E]:
    return [each for each in events_of(run, kind) if each.trial == trial]


def _all_kept(run: RunDirectory) -> Sequence[DemonstrationKept]:
    kept = events_of(run, DemonstrationKept)
    return kept if len(kept) == SHOWN else ()


async def until[T](found: Callable[[], T]) -> T:
    deadline = time.monotonic() + PATIENCE_SEC
    while not (value := found()):
        if time.monotonic() > deadline:
            raise SystemExit("it takes too long")
        await asyncio.sleep(0.02)
    return value


def arm(seed: str, more: Sequence[str], *, shown: bool) -> list[float]:
    """Pass rates on the held-out tasks, before and after."""
    home = Path(tempfile.mkdtemp(prefix="tbtui-demos-"))
    names = write_tasks(home / "tasks")
    train, heldout = names[:SHOWN], names[SHOWN:]
    run = home / "runs" / "run"
    settings = (
        f"tasks_dir={home / 'tasks'}",
        f"tasks={','.join(train)}",
        f"eval_tasks={','.join(heldout)}",
        f"seed={seed}",
        f"max_steps={STEPS}",
        f"eval_every={STEPS}",
        "eval_group_size=8",
        f"batch_size={SHOWN}",
        f"group_size={GROUP}",
        "pace_sec=0",
        "lr_schedule=constant",
        f"logs_dir={home / 'runs'}",
        "run_name=run",
        *more,
    )
    if shown:
        # Slowly enough for its last trials to be there to be taken over before they start.
        slowly = "env_starts_per_sec=4"
        tbtui("run", "--detach", "demos=train", slowly, *settings, home=home)
        ids = asyncio.run(demonstrate(RunDirectory.open(run)))
        tbtui("demos", "accept", str(run), *ids, home=home)
        asyncio.run(until(lambda: events_of(RunDirectory.open(run), RunFinished)))
    else:
        tbtui("run", "--no-ui", *settings, home=home)
    rates = [each.pass_rate for each in events_of(RunDirectory.open(run), EvalFinished)]
    return [rate for rate in rates if rate is not None]


def main(arguments: list[str]) -> None:
    session.begin()
    more = [each for each in arguments if "=" in each]
    if not any(each.startswith("learning_rate=") for each in more):
        more.append("learning_rate=1e-3")
    seeds = [each for each in arguments if "=" not in each] or ["0", "1", "2"]
    print(f"| seed | before | after {STEPS} steps | the same with {SHOWN} demonstrations |")
    print("|---|---|---|---|")
    for seed in seeds:
        without, shown = arm(seed, more, shown=False), arm(seed, more, shown=True)
        print(f"| {seed} | {without[0]:.2f} | {without[-1]:.2f} | {shown[-1]:.2f} |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
