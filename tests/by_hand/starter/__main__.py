"""`python -m tests.by_hand.starter tasks|model DIRECTORY`: see the package."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tests.by_hand.starter.warm_start import warm_start
from tests.by_hand.starter.write import SEED, write_starter


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.by_hand.starter")
    commands = parser.add_subparsers(dest="command", required=True)
    tasks = commands.add_parser("tasks", help="write the starter tasks")
    tasks.add_argument("--seed", type=int, default=SEED)
    model = commands.add_parser("model", help="make tokenizer.json and policy.npz")
    model.add_argument("--seed", type=int, default=0)
    for command in (tasks, model):
        command.add_argument("directory", type=Path, help="a new or empty one")
    arguments = parser.parse_args()
    try:
        if arguments.command == "tasks":
            written = write_starter(arguments.directory, arguments.seed)
            report(f"{len(written)} tasks in {arguments.directory}")
        else:
            warm_start(arguments.directory, arguments.seed, report)
    except OSError as error:
        sys.exit(f"{error.strerror}: {error.filename}; give a new or empty directory")


def report(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
