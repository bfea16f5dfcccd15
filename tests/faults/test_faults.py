"""One trial for each fault that takes no long wait; the whole table: tests/benchmarks/faults.py."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.faults.campaign import Campaign, WorkerKill
from tests.faults.cases import CASES
from tests.faults.report import table

SLOW = {"exec hangs", "box stops answering", "stop hangs"}
"""Wait for time limits of whole seconds; the benchmark has them."""
ALIKE = {
    "start raises once",
    "start: disk full",
    "box killed, turn 1",
    "verdict: words",
    "verdict: empty",
    "verdict: inf",
    "verdict: 1e20",
    "verifier: no such module",
    "agent: rm all programs",
    "agent: kills its shell",
    "agent: ends test.sh",
    "test.sh killed",
    "500",
    "garbage: empty",
    "garbage: NULs",
    "garbage: deep JSON",
    "cut off, then mended",
    "out of turns",
}
"""Take the same path as another case."""


@pytest.mark.slow
@pytest.mark.starves
async def test_no_fault_is_scored(tmp_path: Path) -> None:
    cases = [case for case in CASES if case.name not in SLOW | ALIKE]
    kill = WorkerKill(len(cases) // 2, signal.SIGKILL)
    report = await Campaign(tmp_path, cases, seed=0, n_parallel=12, kills=[kill]).run()
    assert not report.complaints, "\n".join([*report.complaints, table(report)])
    assert report.kills == 1
