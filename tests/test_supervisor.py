"""The process that a shell waits for, and its child: small ones, without an app."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator

import psutil
import pytest

from tests.waiting import wait_until

WORK = """
import signal, sys
from tbtui.supervisor import supervised

def work(shell):
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
    print("at work", flush=True)
    for line in sys.stdin:
        if line == "release\\n":
            shell.release()
        print("heard", flush=True)
    return 0

sys.exit(supervised(work))
"""


@pytest.fixture
def waiting() -> Iterator[subprocess.Popen[str]]:
    pipe = subprocess.PIPE
    process = subprocess.Popen([sys.executable, "-c", WORK], stdin=pipe, stdout=pipe, text=True)
    hear(process, "at work")
    children = psutil.Process(process.pid).children()
    yield process
    for child in children:
        if child.is_running():
            child.kill()
    process.communicate()


def hear(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdout is not None
    assert process.stdout.readline() == f"{line}\n"


def child_of(process: subprocess.Popen[str]) -> psutil.Process:
    (child,) = psutil.Process(process.pid).children()
    return child


def test_a_signal_to_it_alone_is_passed_on_and_its_status_is_the_childs(
    waiting: subprocess.Popen[str],
) -> None:
    waiting.terminate()
    assert waiting.wait(20) == 7


def test_whoever_kills_one_of_both_kills_the_other(waiting: subprocess.Popen[str]) -> None:
    child = child_of(waiting)
    waiting.kill()
    wait_until(lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE)


def test_it_dies_as_its_child_has(waiting: subprocess.Popen[str]) -> None:
    child_of(waiting).kill()
    assert waiting.wait(20) == -signal.SIGKILL


def test_it_stops_and_goes_on_with_its_child(waiting: subprocess.Popen[str]) -> None:
    child, itself = child_of(waiting), psutil.Process(waiting.pid)
    for _ in range(2):
        child.suspend()
        wait_until(lambda: itself.status() == psutil.STATUS_STOPPED)
        itself.resume()
        wait_until(lambda: child.status() != psutil.STATUS_STOPPED)


def test_a_released_child_outlives_it(waiting: subprocess.Popen[str]) -> None:
    assert waiting.stdin is not None
    waiting.stdin.write("release\n")
    waiting.stdin.flush()
    assert waiting.wait(20) == 0
    waiting.stdin.write("one more\n")
    waiting.stdin.flush()
    hear(waiting, "heard")
    hear(waiting, "heard")
