"""Standard streams that are not as a command would like them, and a directory that is gone."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest


def shell(command: str, where: Path) -> subprocess.CompletedProcess[str]:
    """A command line in a shell; `$tbtui` is the program."""
    return subprocess.run(
        ["/bin/sh", "-c", command],
        cwd=where,
        env={"tbtui": f"{sys.executable} -m tbtui", "HOME": str(where), "PYTHONIOENCODING": ""},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("command", "status", "says"),
    [
        ("$tbtui run --help <&- >&-", 0, ""),
        (
            "$tbtui tasks browse <&-",
            2,
            f"tasks browse needs a terminal; {sys.executable} -m tbtui tasks list prints",
        ),
        ("$tbtui --version > /dev/full", 1, "the output: can't be written (No space left on"),
        (
            "ulimit -f 0; $tbtui --version > there",
            1,
            "the output: can't be written (File too large",
        ),
        ("mkdir d; cd d; rmdir ../d; $tbtui runs", 2, "the working directory is gone: cd to one"),
    ],
)
def test_one_line_or_none(tmp_path: Path, command: str, status: int, says: str) -> None:
    done = shell(command, tmp_path)
    assert done.returncode == status
    assert says in done.stderr
    assert len(done.stderr.splitlines()) == bool(says)


def test_what_an_encoding_lacks_is_written_with_its_number(tmp_path: Path) -> None:
    done = shell("PYTHONIOENCODING=latin-1 $tbtui run --print-config run_name=日", tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert r'run_name = "\u65e5"' in done.stdout


def test_a_terminal_that_has_gone_changes_no_status(tmp_path: Path) -> None:
    code = """
import sys
from tbtui import cli
cli.app = lambda: (sys.stdout.write("late"), sys.exit(130))
cli.main()
"""
    other_end, own_end = pty.openpty()
    program = subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**os.environ, "PYTHONUNBUFFERED": ""},
        stdout=own_end,
        stderr=subprocess.DEVNULL,
    )
    os.close(own_end)
    os.close(other_end)
    assert program.wait() == 130
