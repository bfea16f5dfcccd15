"""A reader of the lines who doesn't read holds nothing up but the lines."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest


class UnreadRun:
    """A run in a process of its own, with a pipe for its output, which is full by now."""

    def __init__(self, directory: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.console.unread", str(directory)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.said() == "the pipe is full"

    @property
    def out(self) -> IO[str]:
        assert self.process.stdout is not None
        return self.process.stdout

    def said(self) -> str:
        assert self.process.stderr is not None
        return self.process.stderr.readline().rstrip()

    def interrupt(self) -> None:
        self.process.send_signal(signal.SIGINT)


@pytest.fixture
def run(tmp_path: Path) -> Iterator[UnreadRun]:
    unread = UnreadRun(tmp_path / "run")
    with unread.process:
        yield unread
        unread.process.kill()


def test_the_loop_goes_on_and_is_interrupted_and_every_line_comes_in_order(run: UnreadRun) -> None:
    run.interrupt()
    assert run.said() == "interrupted"
    lines = [json.loads(line) for line in run.out]
    assert [line["seq"] for line in lines] == list(range(1, len(lines) + 1))
    assert lines[-1]["text"] == "the end"
    assert run.process.wait() == 0


def test_a_second_interrupt_ends_it_whoever_reads(run: UnreadRun) -> None:
    run.interrupt()
    assert run.said() == "interrupted"
    run.interrupt()
    assert run.process.wait() == 130


@pytest.mark.slow
def test_an_interrupted_run_does_not_wait_for_a_reader_for_ever(run: UnreadRun) -> None:
    run.interrupt()
    assert run.said() == "interrupted"
    assert run.process.wait() == 130


def test_a_reader_who_leaves_ends_nothing_and_is_missed_once(run: UnreadRun) -> None:
    run.out.readline()
    run.out.close()
    # Nothing may be written for a while, or at once.
    run.interrupt()
    _, said = run.process.communicate()
    missed, *others = sorted(said.splitlines(), key=lambda line: not line.startswith("tbtui: "))
    assert missed.startswith("tbtui: nobody reads lines; the run goes on: tbtui attach ")
    assert missed.endswith("log.txt)")
    assert others == ["interrupted", "interrupted, unread"]
    assert run.process.returncode == 0


def test_after_a_hang_up_lines_go_on_in_the_run_directory(run: UnreadRun, tmp_path: Path) -> None:
    output = tmp_path / "run" / "output.txt"
    run.process.send_signal(signal.SIGHUP)
    while not output.exists():
        time.sleep(0.01)
    run.process.send_signal(signal.SIGHUP)
    # Whoever reads the pipe had the same terminal.
    run.out.close()
    run.interrupt()
    assert run.said() == "interrupted"
    assert run.said() == "interrupted"
    assert run.process.wait() == 0
    assert json.loads(output.read_text().splitlines()[-1])["text"] == "the end"


def test_a_program_that_is_to_ignore_hang_ups_does(tmp_path: Path) -> None:
    """As `nohup` starts it."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        run = UnreadRun(tmp_path / "run")
    finally:
        signal.signal(signal.SIGHUP, before)
    with run.process:
        run.process.send_signal(signal.SIGHUP)
        run.interrupt()
        run.process.communicate()
    assert run.process.returncode == 0
    assert not (tmp_path / "run" / "output.txt").exists()
