"""`tbtui` as a process."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
from typer.testing import CliRunner, Result

from tbtui.cli import app


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


def tbtui(
    *arguments: str, cwd: Path | None = None, timeout: float = 110
) -> subprocess.CompletedProcess[str]:
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
            timeout=timeout,
            check=False,
        )


def invoke(*arguments: str) -> Result:
    """The same in this process, where no more than what is printed and the status matters."""
    return CliRunner().invoke(app, arguments)
