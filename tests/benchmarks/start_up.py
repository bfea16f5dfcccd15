"""How long a person waits: measures of starts for `cockpit.py`, from process start.

`--help`, the first line of `--no-ui`, and the app's first frame on a real pseudo-terminal, opened
by `run`, `replay` and `attach`; then the first reward. The import of Textual alone says how fast
the machine is at that moment.

Python keeps the bytecode of what it has imported once, so that only the very first start compiles.
The rows are of later ones, whatever PYTHONDONTWRITEBYTECODE says here; the last is of that first.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.benchmarks.ui_load import open_terminal

TBTUI = [sys.executable, "-m", "tbtui"]
REPEATS = 5
SIZE = (200, 60)


@contextmanager
def bytecode_in(directory: str) -> Iterator[None]:
    """Children keep the bytecode of what they import there, and find it again."""
    before = {name: os.environ.get(name) for name in _BYTECODE}
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ["PYTHONPYCACHEPREFIX"] = directory
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


_BYTECODE = ("PYTHONDONTWRITEBYTECODE", "PYTHONPYCACHEPREFIX")


def textual_seconds() -> float:
    began = time.monotonic()
    subprocess.run([sys.executable, "-c", "import textual.app"], check=True)
    return time.monotonic() - began


def help_seconds() -> float:
    began = time.monotonic()
    subprocess.run([*TBTUI, "--help"], stdout=subprocess.DEVNULL, check=True)
    return time.monotonic() - began


def first_line_seconds() -> float:
    began = time.monotonic()
    with (
        tempfile.TemporaryDirectory() as logs,
        subprocess.Popen(
            [*TBTUI, "run", "--no-ui", f"logs_dir={logs}"], stdout=subprocess.PIPE
        ) as process,
    ):
        assert process.stdout is not None
        process.stdout.readline()
        seconds = time.monotonic() - began
        process.send_signal(signal.SIGINT)
        process.stdout.read()
    return seconds


def first_frame_seconds(*arguments: str) -> float:
    """Until the app has painted its first whole frame (the line of keys is its last)."""
    began = time.monotonic()
    with open_terminal([*TBTUI, *arguments], SIZE) as terminal:
        seen = b""
        while b"quit" not in seen:
            if (data := terminal.read(30)) is None:
                raise SystemExit(f"{arguments}: no first frame: {seen[-200:]!r}")
            seen += data
        seconds = time.monotonic() - began
        terminal.type("\x03\x03")
        while terminal.read(30) is not None:
            pass
    return seconds


def run_frame_seconds() -> float:
    with tempfile.TemporaryDirectory() as logs:
        return first_frame_seconds("run", f"logs_dir={logs}")


@contextmanager
def recorded_run() -> Iterator[str]:
    """Forty seconds of a run that is over."""
    from tests.ui.synthetic import write_run

    with tempfile.TemporaryDirectory() as logs:
        yield str(write_run(Path(logs) / "recorded", 40.0).run.path)


@contextmanager
def live_run() -> Iterator[str]:
    """A run of another process, which waits: it takes no more of the machine than it must."""
    with tempfile.TemporaryDirectory() as logs:
        subprocess.run(
            [*TBTUI, "run", "--detach", f"logs_dir={logs}"], check=True, stdout=subprocess.DEVNULL
        )
        (run,) = Path(logs).iterdir()
        subprocess.run(
            [*TBTUI, "ctl", "run", "pause", str(run)], check=True, stdout=subprocess.DEVNULL
        )
        try:
            yield str(run)
        finally:
            subprocess.run(
                [*TBTUI, "ctl", "run", "stop", str(run)], check=True, stdout=subprocess.DEVNULL
            )


def first_reward_seconds() -> float:
    began = time.monotonic()
    with (
        tempfile.TemporaryDirectory() as logs,
        subprocess.Popen(
            [*TBTUI, "run", "--json", f"logs_dir={logs}"], stdout=subprocess.PIPE, text=True
        ) as process,
    ):
        assert process.stdout is not None
        for line in process.stdout:
            if '"trial_finished"' in line:
                break
        seconds = time.monotonic() - began
        process.send_signal(signal.SIGINT)
        process.stdout.read()
    return seconds


def first_start_seconds() -> float:
    """With nothing compiled."""
    with tempfile.TemporaryDirectory() as empty, bytecode_in(empty):
        return run_frame_seconds()


Measure = tuple[str, Callable[[], float], int, float | None]
"""What, how, how often, and seconds at most."""


@contextmanager
def start_measures() -> Iterator[list[Measure]]:
    """First frames of the app, what Textual takes of them, and other first signs of life."""
    with recorded_run() as recorded, live_run() as live:
        yield [
            ("import textual.app", textual_seconds, REPEATS, None),
            ("first frame, run", run_frame_seconds, REPEATS, 1.0),
            ("first frame, replay", lambda: first_frame_seconds("replay", recorded), REPEATS, 1.0),
            ("first frame, attach", lambda: first_frame_seconds("attach", live), REPEATS, 1.0),
            ("tbtui --help", help_seconds, REPEATS, 0.4),
            ("--no-ui, first line", first_line_seconds, REPEATS, 1.5),
            ("first reward", first_reward_seconds, 2, None),
            ("first frame, never compiled", first_start_seconds, 2, None),
        ]
