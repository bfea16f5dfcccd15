"""Where a person works: `tbtui ...` in a directory and a state of its own, and terminals."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from tbtui.journal.events import AnyEvent, TrialPhaseChanged
from tbtui.journal.rundir import RunDirectory
from tbtui.resources import tasks_dir
from tests import terminal
from tests.events import events_of
from tests.terminal import PATIENCE_SEC

TBTUI = (sys.executable, "-m", "tbtui")


class Shell:
    """Real runs of real trials, by the name of `r`; there are to be few of them."""

    def __init__(self, where: Path) -> None:
        self.where = where
        self.tasks = where / "tasks"
        self.directory = RunDirectory(where / "runs" / "r")
        self.environment = {**os.environ, "XDG_STATE_HOME": str(where / "state")}
        for name in ("mkdir-01", "remove-01", "mkdir-07"):
            shutil.copytree(tasks_dir() / "starter" / name, self.tasks / name)

    def tbtui(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*TBTUI, *arguments],
            cwd=self.where,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE_SEC,
        )

    def detach(self, *settings: str) -> subprocess.CompletedProcess[str]:
        return self.tbtui("run", "--detach", *self.settings(*settings))

    def settings(self, *more: str) -> list[str]:
        own = ["run_name=r", f"tasks_dir={self.tasks}", "batch_size=2", "group_size=2"]
        usual = [*own, "eval_tasks=mkdir-07", "max_steps=100", "save_every=0"]
        names = {each.partition("=")[0] for each in more}
        return [*(each for each in usual if each.partition("=")[0] not in names), *more]

    def asked(self, *arguments: str) -> Any:
        result = self.tbtui("ctl", *arguments, "--json")
        assert result.returncode == 0, result.stderr
        return json.loads(result.stdout)

    def events[E: AnyEvent](self, kind: type[E]) -> list[E]:
        return events_of(self.directory, kind)

    def until(self, condition: Callable[[], object]) -> None:
        deadline = time.monotonic() + PATIENCE_SEC
        while not condition():
            assert time.monotonic() < deadline, self.directory.output.read_text()
            time.sleep(0.05)

    def processes(self) -> list[psutil.Process]:
        """The processes of all runs in this directory."""
        found = []
        for process in psutil.process_iter():
            try:
                if process.environ().get("XDG_STATE_HOME") == self.environment["XDG_STATE_HOME"]:
                    found.append(process)
            except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
                continue
        return found


class Terminal(terminal.Terminal):
    """One that a person has opened, with what they start there."""

    def __init__(self, shell: Shell, *command: str) -> None:
        env = {**shell.environment, "PS1": "ready> "}
        super().__init__(*command, cwd=shell.where, env=env)
        self.shell = shell

    @classmethod
    def with_run(cls, shell: Shell, *arguments: str) -> Terminal:
        """A run that has trials at work; the app, unless the arguments have `--no-ui`."""
        terminal = cls(shell, *TBTUI, "run", *shell.settings(*arguments))
        shell.until(terminal.at_work)
        if "--no-ui" not in arguments:
            terminal.wait_for(b"quit")
        return terminal

    def at_work(self) -> bool:
        """Whether the run has trials at work."""
        self.shows()
        assert self.process.poll() is None, self.seen
        return self.shell.directory.database.exists() and bool(self.shell.events(TrialPhaseChanged))
