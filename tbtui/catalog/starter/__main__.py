"""`python -m tbtui.catalog.starter DIRECTORY`: write the starter tasks."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tbtui.catalog.starter.write import SEED, write_starter


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tbtui.catalog.starter", description=__doc__)
    parser.add_argument("directory", type=Path, help="where the task directories go")
    parser.add_argument("--seed", type=int, default=SEED)
    arguments = parser.parse_args()
    try:
        written = write_starter(arguments.directory, arguments.seed)
    except OSError as error:
        sys.exit(f"{error.strerror}: {error.filename}; give a new or empty directory")
    sys.stdout.write(f"{len(written)} tasks in {arguments.directory}\n")


if __name__ == "__main__":
    main()
