"""How long a person waits: `python tests/benchmarks/start_up.py`. Run it on a quiet machine.

`--help`, the first line of `--no-ui`, and the app's first frame on a real pseudo-terminal, from
process start; then the first reward. The import of Textual alone says how fast the machine is at
that moment: where it takes other than 0.65 s, read the others in proportion.
"""

from __future__ import annotations

import os
import pty
import select
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Callable
from fcntl import ioctl

TBTUI = [sys.executable, "-m", "tbtui"]
REPEATS = 5


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
    with subprocess.Popen(
        [*TBTUI, "run", "--no-ui", f"logs_dir={tempfile.mkdtemp()}"], stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        seconds = time.monotonic() - began
        process.send_signal(signal.SIGINT)
        process.stdout.read()
    return seconds


def first_frame_seconds() -> float:
    """Until the app has painted its first whole frame (the footer is its last line)."""
    began = time.monotonic()
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ["TERM"] = "xterm-256color"
        os.execv(TBTUI[0], [*TBTUI, "run", f"logs_dir={tempfile.mkdtemp()}"])
    ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 60, 200, 0, 0))
    seen = b""
    while b"quit" not in seen:
        if select.select([terminal], [], [], 30)[0]:
            seen += os.read(terminal, 65536)
    seconds = time.monotonic() - began
    os.kill(pid, signal.SIGTERM)
    while True:
        try:
            if not os.read(terminal, 65536):
                break
        except OSError:
            break
    os.waitpid(pid, 0)
    return seconds


def first_reward_seconds() -> float:
    began = time.monotonic()
    with subprocess.Popen(
        [*TBTUI, "run", "--json", f"logs_dir={tempfile.mkdtemp()}"],
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if '"trial_finished"' in line:
                break
        seconds = time.monotonic() - began
        process.send_signal(signal.SIGINT)
        process.stdout.read()
    return seconds


def main() -> None:
    measures: list[tuple[str, Callable[[], float], int, str]] = [
        ("import textual.app", textual_seconds, REPEATS, "-"),
        ("tbtui --help", help_seconds, REPEATS, "0.4"),
        ("--no-ui, first line", first_line_seconds, REPEATS, "1.5"),
        ("app, first frame", first_frame_seconds, REPEATS, "1.5"),
        ("first reward", first_reward_seconds, 2, "-"),
    ]
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    print(f"{'':22}{'median':>8}{'worst':>8}{'aim':>6}   seconds")
    for name, measure, repeats, aim in measures:
        seconds = [measure() for _ in range(repeats)]
        print(f"{name:22}{statistics.median(seconds):8.2f}{max(seconds):8.2f}{aim:>6}", flush=True)


if __name__ == "__main__":
    main()
