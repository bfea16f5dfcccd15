"""A short soak in a process of its own: what trials leave behind, and broken ones too."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

SOAK = Path(__file__).resolve().parents[1] / "benchmarks" / "soak.py"


@pytest.mark.parametrize("options", [[], ["--fault-every", "12"]], ids=["plain", "faults"])
def test_nothing_is_left_behind(options: list[str], tmp_path: Path) -> None:
    result = subprocess.run(
        [sys.executable, str(SOAK), "--trials", "40", *options],
        capture_output=True,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        check=False,
    )
    assert "left behind: nothing" in result.stdout, result.stdout + result.stderr
    assert result.returncode == 0, result.stdout
    assert not list(tmp_path.iterdir())
    if not options:
        assert "outcomes: 40 solved" in result.stdout
