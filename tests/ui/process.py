"""The app as a process in a pty of its own."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from dataclasses import dataclass
from pathlib import Path

from tbtui.journal.events import RunFinished
from tbtui.journal.reader import JournalReader
from tbtui.journal.rundir import RunDirectory

_APP = """
import os, sys
from pathlib import Path
from tests.ui.synthetic import SyntheticHost
from tbtui.ui.app import run_app
from tbtui.ui.panes.key_bar import KeyBar

mode, directory = sys.argv[1], Path(sys.argv[2])
if mode == "crash":
    def broken(self, frame):
        if frame.state.trials:
            raise ValueError("a pane [/] broke")
        return None
    KeyBar.key = broken
host = SyntheticHost(
    directory,
    steps=2,
    tempo=30.0 if mode in ("run", "fail") else 4.0,
    fail="no space left" if mode == "fail" else "",
)
start = host.start
def noisy_start():
    print("stray print of a library", flush=True)
    os.write(1, b"stray write to 1\\n")
    os.write(2, b"stray write to 2\\n")
    start()
host.start = noisy_start
sys.exit(run_app(host))
"""


@dataclass
class Session:
    process: subprocess.Popen[bytes]
    master: int
    slave: int
    run: RunDirectory
    seen: bytes = b""

    def wait_for(self, text: bytes) -> None:
        while text not in self.seen:
            self.seen += os.read(self.master, 65536)

    def finish(self) -> int:
        """Drain until the process has ended; returns its exit code."""
        os.set_blocking(self.master, False)
        while self.process.poll() is None:
            self._drain()
        self._drain()
        return self.process.returncode

    def _drain(self) -> None:
        import select

        while select.select([self.master], [], [], 0.05)[0]:
            try:
                self.seen += os.read(self.master, 65536)
            except OSError:
                return

    @property
    def last_line(self) -> str:
        """What follows the last escape of the screen's end."""
        return re.split(r"\x1b\[[^A-Za-z]*[A-Za-z]", self.seen.decode(errors="replace"))[-1].strip()

    def cooked(self) -> bool:
        return bool(termios.tcgetattr(self.slave)[3] & termios.ICANON)

    def outcome(self) -> str:
        last = JournalReader(self.run).read(0, 10**6)[-1].event
        assert isinstance(last, RunFinished)
        return last.status


def start_process(tmp_path: Path, mode: str) -> Session:
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
    directory = tmp_path / "run"
    process = subprocess.Popen(
        [sys.executable, "-c", _APP, mode, str(directory)],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env={
            # pytest's workers are told the size of the terminal that pytest runs in.
            **{name: os.environ[name] for name in os.environ.keys() - {"COLUMNS", "LINES"}},
            "TERM": "xterm-256color",
            "PYTHONPATH": str(Path(__file__).parents[2]),
        },
        start_new_session=True,
    )
    return Session(process, master, slave, RunDirectory(directory))
