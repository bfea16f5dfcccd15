"""A session of tests, or of a benchmark: nothing that it starts outlives it, however it ends.

Pytest killed by SIGKILL runs no fixture's end, and a detached run is made to go on. So a watcher, a
process beside the session, waits for the session's own process to end, and kills then whatever has
the session's mark in its environment.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

MARK = "TBTUI_TEST_SESSION"
"""Variable that all processes of a session inherit; its value is the session's directory."""
_PATIENCE_SEC = 20.0


def begin() -> Path:
    """Mark this process's environment and start the watcher.

    What a person's runs have left in their state directory is nothing to a test, nor the other way
    round (which run directories are trusted, above all): `XDG_STATE_HOME` is the session's too.

    Returns:
        The session's directory, which goes with it.
    """
    directory = tempfile.mkdtemp(prefix="tbtui-session-")
    # A worker of pytest-xdist is killed by its controller's watcher; its own watcher must not be.
    os.environ.pop(MARK, None)
    # A descriptor, for a number could belong to another process by the time the watcher looks.
    ended = os.pidfd_open(os.getpid())
    watcher = [sys.executable, "-I", __file__, directory, str(os.getpid()), str(ended)]
    try:
        # No child of this process: tests look at its children.
        subprocess.run(
            ["setsid", "--fork", *watcher],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=[ended],
            check=True,
        )
    finally:
        os.close(ended)
    os.environ[MARK] = directory
    os.environ["XDG_STATE_HOME"] = directory
    return Path(directory)


def _watch(directory: Path, pid: int, ended: int) -> None:
    select.select([ended], [], [])
    killed = {pid}
    homes = {home.parent for home in directory.rglob("tbtui")}
    until = time.monotonic() + _PATIENCE_SEC
    # Until there is none: one may have been starting another.
    while (found := marked(directory)) and time.monotonic() < until:
        for process, environment in found.items():
            killed.add(process)
            homes.add(Path(environment.get("XDG_STATE_HOME", directory)))
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        time.sleep(0.02)
    _reap([directory, *(home for home in homes if home.exists())], killed)
    shutil.rmtree(directory, ignore_errors=True)


def marked(directory: Path) -> dict[int, dict[str, str]]:
    """The processes of the session and their environments."""
    mark = f"{MARK}={directory}"
    found = {}
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            lines = path.read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue  # it has ended, or belongs to another user
        if mark in lines:
            pairs = (line.partition("=") for line in lines)
            found[int(path.parent.name)] = {name: value for name, _, value in pairs}
    return found


def _reap(homes: list[Path], killed: set[int]) -> None:
    """Remove control groups and containers of what was killed."""
    from tbtui.rollout.environments.leftovers import reap_leftovers

    for home in homes:
        os.environ["XDG_STATE_HOME"] = str(home)
        reap_leftovers(ended=killed)


if __name__ == "__main__":
    _watch(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
