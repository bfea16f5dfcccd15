"""Sends an alert when a run was killed: a process beside the run, which waits for it.

The first line of its input names the receivers and the run. The run's last word is `done`; where
the input ends without it, the run's process is gone: it was killed, or the machine had no memory
left for it.
"""

from __future__ import annotations

import json
import signal
import sys
import threading
import time
from pathlib import Path


def main() -> None:
    # A hang-up or ctrl-c is for the run, which says how it ends.
    for number in (signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    alerts, project, path = json.loads(sys.stdin.readline())
    if sys.stdin.readline().strip() == "done":
        return
    # Not before there is a need for them: it may wait for days beside a run that needs the memory.
    from tbtui.engines.alerts import deliver, make_alert, receivers_of
    from tbtui.journal.rundir import RunDirectory
    from tbtui.view.ending import to_resume

    directory = RunDirectory(Path(path))
    text = f"killed: the process is gone; {to_resume(directory)}".removesuffix("; ")
    alert = make_alert("crash", text, directory, time.time())
    for receiver in receivers_of(alerts, project, directory.name):
        deliver(alert, receiver, threading.Event())


if __name__ == "__main__":
    main()
