"""What a curriculum saves: `python tests/benchmarks/curriculum.py [SEED ...] [--tasks N]`.

Trains on starter tasks among distractors: of all training tasks a half can't be solved (their
verifier wants what nobody can know), a quarter is solved already (it is content with anything). The
distractors look like the starter tasks, and are of their kinds. Each seed is one `tbtui run` for
each way to choose tasks, on the same tasks and with the same held-out ones, stopped at the first
evaluation that reaches .70. Prints the rollouts that it took, and their ratio to uniform's.

`--ways uniform,thompson:3` adds `screen_trials=3` to Thompson's runs alone.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import fmean
from typing import Any

from tests import session

STARTER = Path(__file__).parents[2] / "tasks" / "starter"
GOAL = 0.70
WAYS = ("uniform", "learnability", "thompson")
_IMPOSSIBLE = """#!/bin/bash
# Wants a file whose name and contents the instruction doesn't give.
mkdir -p /logs/verifier
echo 0 > /logs/verifier/reward.txt
[[ $(cat /app/f3c1a9d27b 2> /dev/null) == 8e41d0b7 ]] && echo 1 > /logs/verifier/reward.txt
exit 0
"""
_SOLVED = """#!/bin/bash
# Content with whatever is there: an untouched sandbox passes.
mkdir -p /logs/verifier
echo 1 > /logs/verifier/reward.txt
"""


def write_tasks(directory: Path, starters: int) -> None:
    """So many starter tasks to train on, spread over the kinds, twice as many that are impossible,
    as many that are solved already; and all held-out starter tasks."""
    names = sorted(path.name for path in STARTER.iterdir())
    held_out = [name for name in names if 'split = "heldout"' in _toml(name)]
    train = sorted((set(names) - set(held_out)), key=lambda name: name.rpartition("-")[::-1])
    chosen = train[:starters]
    for name in (*held_out, *chosen):
        shutil.copytree(STARTER / name, directory / name)
    for suffix, verifier in (("x", _IMPOSSIBLE), ("y", _IMPOSSIBLE), ("z", _SOLVED)):
        for name in chosen:
            copy = shutil.copytree(STARTER / name, directory / f"{name}{suffix}")
            (copy / "tests" / "test.sh").write_text(verifier)
            shutil.rmtree(copy / "solution")


def _toml(name: str) -> str:
    return (STARTER / name / "task.toml").read_text()


def rollouts_to_goal(*settings: str) -> dict[str, Any]:
    """Run until an evaluation reaches the goal."""
    command = [sys.executable, "-m", "tbtui", "run", "--json", *settings]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    purposes: dict[str, str] = {}
    rollouts = useful = steps = 0
    reached, curve = False, list[tuple[int, float]]()
    for line in process.stdout:
        event = json.loads(line)
        match event["kind"]:
            case "trial_queued":
                purposes[event["trial"]] = event["purpose"]
            case "trial_finished" if not reached:
                rollouts += purposes[event["trial"]] == "train"
            case "step_finished" if not reached:
                useful += int(event["metrics"]["env/all/useful_groups"])
                steps += 1
            case "eval_finished" if not reached:
                curve.append((rollouts, round(event["pass_rate"], 3)))
                if event["pass_rate"] >= GOAL:
                    reached = True
                    process.send_signal(signal.SIGTERM)
    status = process.wait()
    if status and not reached:
        sys.exit(f"tbtui run ended with exit status {status}")
    return {
        "reached": reached,
        "rollouts": rollouts,
        "steps": steps,
        "useful_per_100": round(100 * useful / max(1, rollouts), 2),
        "curve": curve,
    }


def main() -> None:
    session.begin()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("seeds", nargs="*", type=int)
    parser.add_argument("--tasks", type=int, default=24, help="starter tasks to train on")
    parser.add_argument("--ways", default=",".join(WAYS), help="of task_sampling[:screen_trials]")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    options = parser.parse_args()
    ways = options.ways.split(",")
    taken: dict[str, list[int]] = {way: [] for way in ways}
    with tempfile.TemporaryDirectory(prefix="tbtui-curriculum-") as place:
        tasks = Path(place) / "tasks"
        tasks.mkdir()
        write_tasks(tasks, options.tasks)
        for seed in options.seeds or (0, 1, 2):
            for way in ways:
                sampling, _, screen = way.partition(":")
                found = rollouts_to_goal(
                    *(f"tasks_dir={tasks}", f"seed={seed}", f"logs_dir={place}/runs"),
                    *(f"run_name={sampling}{screen}-{seed}", f"task_sampling={sampling}"),
                    *(f"screen_trials={screen or 0}", "max_steps=150"),
                    *("eval_group_size=2", "save_every=0", "lr_schedule=constant"),
                    *(
                        ()
                        if any(each.startswith("eval_every=") for each in options.set)
                        else ("eval_every=4",)
                    ),
                    *options.set,
                )
                taken[way].append(found["rollouts"])
                print(json.dumps({"seed": seed, "sampling": way} | found), flush=True)
    for way in ways:
        ratios = [mine / theirs for mine, theirs in zip(taken[way], taken[ways[0]], strict=True)]
        print(
            f"{way:<13} {fmean(taken[way]):6.0f} rollouts to {GOAL} held out; ratio of the means"
            f" to {ways[0]}: {fmean(taken[way]) / fmean(taken[ways[0]]):.2f},"
            f" of each seed {', '.join(f'{ratio:.2f}' for ratio in ratios)}"
        )


if __name__ == "__main__":
    main()
