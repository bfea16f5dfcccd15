"""Tries the attacks and prints a table: tried, held, not tried here.

uv run python -m tests.attacks [MODULE...]
"""

from __future__ import annotations

import re
import sys
from collections import Counter, defaultdict
from pathlib import Path

import pytest
from rich.console import Console
from rich.table import Table

HERE = Path(__file__).parent


class Counts:
    """A plugin of pytest: what became of each test, by module, or by class."""

    def __init__(self) -> None:
        self.by_module: dict[str, Counter[str]] = defaultdict(Counter)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        # A test that is skipped or breaks in its fixture has no `call`.
        if report.when == "call" or report.outcome != "passed":
            file, test, *_ = report.nodeid.split("::")
            # A class is a room of its own.
            room = test.removeprefix("Test") if test.startswith("Test") else Path(file).stem[5:]
            self.by_module[re.sub("(?<=[a-z])(?=[A-Z])", " ", room).lower()][report.outcome] += 1


def main(names: list[str]) -> int:
    modules = [HERE / f"test_{name}.py" for name in names] or [HERE]
    counts = Counts()
    options = ["-n", "0", "-m", "slow or not slow", "-p", "no:cacheprovider"]
    status = pytest.main([*options, *map(str, modules)], plugins=[counts])
    table = Table("attacks on", "tried", "held", "not tried here", title="Attacks")
    total: Counter[str] = Counter()
    for module, found in [*sorted(counts.by_module.items()), ("", total)]:
        tried = found["passed"] + found["failed"]
        name = module.replace("_", " ") or "in all"
        table.add_row(name, str(tried), str(found["passed"]), str(found["skipped"]))
        total += found
    Console().print(table)
    return int(status)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
