"""`tbtui` as a process."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path


def tbtui(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run to its end, without anything of the person's own who runs the tests."""
    with tempfile.TemporaryDirectory() as home:
        names = ("XDG_CONFIG_HOME", "XDG_DATA_HOME")  # their state is the session's own
        return subprocess.run(
            [sys.executable, "-m", "tbtui", *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            cwd=cwd,
            env={**os.environ, **dict.fromkeys(names, home)},
            timeout=110,
            check=False,
        )
