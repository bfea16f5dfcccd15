"""The app around a synthetic run in real time: `python -m tests.ui.demo DIRECTORY`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tbtui.ui.app import run_app
from tests.ui.synthetic import SyntheticHost


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--tempo", type=float, default=1.0)
    parser.add_argument("--fail", default="", help="end with this failure after two steps")
    given = parser.parse_args()
    host = SyntheticHost(given.directory, steps=given.steps, tempo=given.tempo, fail=given.fail)
    return run_app(host)


if __name__ == "__main__":
    sys.exit(main())
