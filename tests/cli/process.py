"""`tbtui` as a process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def tbtui(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tbtui", *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        cwd=cwd,
        timeout=110,
        check=False,
    )
