"""What is refused where there is no Linux, which is imitated: in one line, at once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tbtui.resources import tasks_dir

pytestmark = pytest.mark.slow

NOT_LINUX = Path(__file__).parents[1] / "not_linux"
SANDBOX = "the sandbox needs Linux, this is darwin"
INSTEAD = (
    "give environment_type=docker or podman, which has to run here, or a service (modal, daytona,"
    " e2b, ...)"
)


def on_a_mac(cwd: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tbtui", *arguments],
        capture_output=True,
        text=True,
        cwd=cwd,
        # No engine is found: that of the machine is none of this.
        env={**os.environ, "PYTHONPATH": str(NOT_LINUX), "PATH": "/nowhere"},
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], f"{SANDBOX}: {INSTEAD}"),
        (["environment_type=sandbox"], f"{SANDBOX}: {INSTEAD}"),
        (
            ["engine=prime-rl", "model_name=m", f"tasks_dir={tasks_dir() / 'workshop'}"],
            "engine=prime-rl needs Linux, this is darwin: leave it out, or run it there",
        ),
    ],
)
def test_what_needs_linux_is_refused(tmp_path: Path, arguments: list[str], says: str) -> None:
    result = on_a_mac(tmp_path, "run", "--no-ui", *arguments)
    assert (result.returncode, result.stderr) == (2, f"tbtui: {says}\n")
    assert list(tmp_path.iterdir()) == []


def test_the_doctor_says_so_too(tmp_path: Path) -> None:
    result = on_a_mac(tmp_path, "doctor")
    assert result.returncode == 1
    said = {line.strip() for line in result.stdout.splitlines()}
    assert {f"✗ trials           {SANDBOX}", f"→ {INSTEAD}"} <= said
    assert "apt-get" not in result.stdout
