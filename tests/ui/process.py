"""The app as a process in a pty of its own."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

from tbtui.journal.events import RunFinished
from tbtui.journal.rundir import RunDirectory
from tests.events import events_of
from tests.terminal import Terminal

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
    steps=200 if mode == "crash" else 2,
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


class Session(Terminal):
    """The app in a mode of its script, in a window of 100 columns and 30 lines."""

    def __init__(self, tmp_path: Path, mode: str) -> None:
        self.run = RunDirectory(tmp_path / "run")
        command = (sys.executable, "-c", _APP, mode, str(self.run.path))
        env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
        super().__init__(*command, size=(100, 30), controls=False, env=env)

    @property
    def last_line(self) -> str:
        """What follows the last escape of the screen's end."""
        return re.split(r"\x1b\[[^A-Za-z]*[A-Za-z]", self.seen.decode(errors="replace"))[-1].strip()

    def outcome(self) -> str:
        return events_of(self.run, RunFinished)[-1].status
