"""Runs a program and leaves nothing of it: a program of its own, `python guard.py PROGRAM...`.

It ends the program, with everything that the program has started, when its own standard input is
closed: its parent closes it, or has ended in any way. What the program leaves behind when it ends
by itself is ended too. Its exit status is the program's.

Prime-RL's parts start sessions of their own (torchrun does for each trainer), so that a process
group is not enough: as the subreaper of them all, this process inherits every orphan.
"""

from __future__ import annotations

import sys

assert sys.platform == "linux"

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import time

import psutil

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
PATIENCE = ((signal.SIGINT, 30.0), (signal.SIGTERM, 30.0))
"""Signals, and how many seconds each has to work before the next; SIGKILL is the last."""
LEFTOVERS_SEC = 10.0
"""For what the program left, between SIGTERM and SIGKILL."""
PATIENCE_VARIABLE = "TBTUI_GUARD_PATIENCE_SEC"
"""Seconds in place of those."""

_libc = ctypes.CDLL(None, use_errno=True)


def main() -> int:
    if len(sys.argv) < 2:
        sys.stderr.write("usage: guard.py PROGRAM [ARGUMENT...]\n")
        return 2
    _libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    # Ignored and not blocked: what is started would inherit a mask.
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    try:
        # With one thread there is nothing that preexec_fn could meet in the middle of its work.
        program = subprocess.Popen(
            sys.argv[1:],
            stdin=subprocess.DEVNULL,
            process_group=0,
            preexec_fn=_die_with_parent,
        )
    except OSError as error:
        sys.stderr.write(f"{sys.argv[1]}: {error.strerror}\n")
        return 127
    finished = os.pidfd_open(program.pid)
    ready, _, _ = select.select([0, woken, finished], [], [])
    if finished not in ready:
        _stop(program, finished)
    status = program.wait()
    _end_leftovers()
    return status if status >= 0 else 128 - status


def _die_with_parent() -> None:
    # Should this process be killed itself, Prime-RL's launcher ends its parts at a SIGTERM.
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


def _stop(program: subprocess.Popen[bytes], finished: int) -> None:
    for number, patience in PATIENCE:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(program.pid, number)
        if select.select([finished], [], [], _patience(patience))[0]:
            return
    with contextlib.suppress(ProcessLookupError):
        os.killpg(program.pid, signal.SIGKILL)


def _end_leftovers() -> None:
    """End every process that is left, in any session."""
    firmly = time.monotonic() + _patience(LEFTOVERS_SEC)
    signalled: set[tuple[int, int]] = set()
    while left := _living():
        now = time.monotonic()
        if now > firmly + LEFTOVERS_SEC:
            return  # stuck in the kernel: no signal ends those
        number = signal.SIGTERM if now < firmly else signal.SIGKILL
        for process in left:
            if (process.pid, number) not in signalled:
                signalled.add((process.pid, number))
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.send_signal(number)
        time.sleep(0.05)


def _living() -> list[psutil.Process]:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    living = []
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            # The dead are reaped by their parents, or here when those are gone.
            if process.status() != psutil.STATUS_ZOMBIE:
                living.append(process)
    return living


def _patience(seconds: float) -> float:
    return float(os.environ.get(PATIENCE_VARIABLE, seconds))


if __name__ == "__main__":
    sys.exit(main())
