"""Whatever ends, and however, no process of a launch is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tbtui.engines.prime_rl.launch import guard
from tests.waiting import wait_until

from .conftest import Place
from .stand_in import living

FAMILY = """
import os, subprocess, sys, time
waits = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
subprocess.Popen([sys.executable, "-c", waits], start_new_session=True)
print(os.getpid(), flush=True)
while not os.path.exists(sys.argv[1]):
    time.sleep(0.02)
sys.exit(3)
"""


def start(*program: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-P", guard.__file__, *program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env=os.environ | {guard.PATIENCE_VARIABLE: "0.2"},
    )


def family(process: subprocess.Popen[str]) -> list[psutil.Process]:
    assert process.stdout is not None
    process.stdout.readline()
    found = psutil.Process(process.pid).children(recursive=True)
    assert len(found) == 2
    return found


def test_the_status_is_the_programs_and_what_it_leaves_is_ended(tmp_path: Path) -> None:
    process = start(sys.executable, "-c", FAMILY, str(tmp_path / "end"))
    members = family(process)
    (tmp_path / "end").touch()
    assert process.wait() == 3
    assert not any(member.is_running() for member in members)


def test_it_ends_all_when_its_input_is_closed(tmp_path: Path) -> None:
    process = start(sys.executable, "-c", FAMILY, str(tmp_path / "end"))
    members = family(process)
    assert process.stdin is not None
    process.stdin.close()
    assert process.wait() == 128 + signal.SIGINT
    assert not any(member.is_running() for member in members)


def test_a_program_that_cant_be_run(capfd: pytest.CaptureFixture[str]) -> None:
    process = start("/no/such/program")
    assert process.wait() == 127
    assert "/no/such/program: No such file or directory" in capfd.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_the_end_of_tbtui_is_the_end_of_prime_rl(
    place: Place, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    monkeypatch.setenv("STAND_IN_RL", "hold")
    process = subprocess.Popen(
        [sys.executable, "-m", "tbtui", "run", "--no-ui", str(place.file)],
        cwd=place.root,
        stdout=subprocess.DEVNULL,
    )
    wait_until(lambda: len(living(place.pids)) == 3)
    process.send_signal(number)
    assert process.wait() == (-number if number == signal.SIGKILL else 130)
    wait_until(lambda: not living(place.pids))


@pytest.mark.slow
def test_even_without_the_guard_the_launcher_hears_of_it(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STAND_IN_RL", "hold")
    process = subprocess.Popen(
        [sys.executable, "-m", "tbtui", "run", "--no-ui", str(place.file)],
        cwd=place.root,
        stdout=subprocess.PIPE,
        text=True,
    )
    wait_until(lambda: len(living(place.pids)) == 3)
    launcher = psutil.Process(living(place.pids)[0])
    guardian = launcher.parent()
    assert guardian is not None
    guardian.kill()
    output, _ = process.communicate()
    assert process.returncode == 1
    assert "Prime-RL's launcher fell to SIGKILL" in output.splitlines()[-1]
    wait_until(lambda: not launcher.is_running())
    for pid in living(place.pids):  # the one that takes no hint
        psutil.Process(pid).kill()


def test_its_own_file_imports_nothing_of_ours() -> None:
    text = Path(guard.__file__).read_text()
    assert "tbtui." not in text
