"""`tbtui` as a process."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil


@contextlib.contextmanager
def started(*arguments: str, output: Path) -> Iterator[subprocess.Popen[bytes]]:
    """`tbtui` in the background; it and its children are killed at the block's end.

    Args:
        output: the file that gets what it prints.
    """
    with output.open("wb") as file:
        process = subprocess.Popen(
            # A shell's background job ignores ctrl-c, and so would all that is started in one.
            ["env", "--default-signal=INT", sys.executable, "-m", "tbtui", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        kill_all(process.pid)
        process.wait()


def kill_all(pid: int) -> None:
    """Kill a process and all its descendants, as a machine's crash would."""
    with contextlib.suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        for each in (process, *process.children(recursive=True)):
            with contextlib.suppress(psutil.NoSuchProcess):
                each.kill()


def wait_until(holds: Callable[[], object], seconds: float = 100) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.1)


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
