"""The process that a shell waits for while the app runs in its child.

A shell gives its prompt back when the process that it has started stops or ends. So that a run can
outlive its app in the middle, the app runs in a child of a small process, which waits: it passes
on the signals that reach it alone, stops with the child, ends with the child's exit status or
signal, and ends before the child once that lets go of the terminal.

Both are in the process group that the shell made: what the terminal sends (ctrl-c, a hang-up, a new
size) reaches the child by itself. Whoever kills the waiting process kills the child too.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import termios
from collections.abc import Callable
from pathlib import Path

_PASSED_ON = frozenset(
    {
        signal.SIGHUP,
        signal.SIGINT,
        signal.SIGQUIT,
        signal.SIGTERM,
        signal.SIGTSTP,
        signal.SIGWINCH,
    }
)
_LET_GO = signal.SIGUSR1
"""Sent by the child: it needs the terminal no more."""
_FROM_KERNEL = 0x80
"""`si_code` of what the terminal sends to the whole group."""
_PR_SET_PDEATHSIG = 1

_RESTORE = (
    "\x1b[<u"  # Kitty's keyboard protocol, before the screen that it belongs to
    "\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1006l\x1b[?1015l\x1b[?1016l"  # mouse
    "\x1b[?1004l\x1b[?2004l\x1b[?2026l\x1b[?2048l"  # focus, paste, synchronized output, resizing
    "\x1b[?7h\x1b[?1049l\x1b[?25h\x1b[0m"  # wrapping, screen, cursor, colours
)
"""Undoes what the app asks of a terminal, after an app that could not do it."""


class Shell:
    """The waiting process, as its child sees it."""

    def __init__(self, waiting: int) -> None:
        self._waiting = waiting

    def release(self) -> None:
        """Give the shell its prompt back: this process leaves the terminal's session and goes on.

        Its standard streams must be elsewhere by then.
        """
        os.setsid()
        _die_with_parent(0)
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._waiting, _LET_GO)


def supervised(work: Callable[[Shell], int]) -> int:
    """Run `work` in a child while this process waits; returns in both, with their exit statuses.

    To be called before there are threads, and before anything large is imported: what this process
    has in memory by then stays there. In the waiting process: the child's status; 0 once the child
    has released it. If the child is killed by a signal, so is this process, after it has restored
    the terminal.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    waiting = os.getpid()
    modes = _terminal_modes()
    waited_for = _PASSED_ON | {signal.SIGCHLD, _LET_GO}
    # From before there is a child: nothing is lost between.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, waited_for)
    child = os.fork()
    if child == 0:
        _die_with_parent(signal.SIGKILL)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        if os.getppid() != waiting:
            # It was killed before this one could learn of it.
            os.kill(os.getpid(), signal.SIGKILL)
        return work(Shell(waiting))
    status = _wait(child, waited_for)
    if status >= 0:
        return status
    _restore_terminal(modes)
    return _die_of(-status)


def _wait(child: int, waited_for: frozenset[signal.Signals]) -> int:
    """Wait for the child; its exit status, below 0 the signal that killed it."""
    while True:
        came = signal.sigwaitinfo(waited_for)
        if came.si_signo == signal.SIGCHLD:
            ended, status = os.waitpid(child, os.WNOHANG | os.WUNTRACED)
            if ended and os.WIFSTOPPED(status):
                _stop_with(child)
            elif ended:
                return os.waitstatus_to_exitcode(status)
        elif came.si_signo == _LET_GO:
            if came.si_pid == child:
                return 0
        elif came.si_code != _FROM_KERNEL:
            os.kill(child, came.si_signo)


def _stop_with(child: int) -> None:
    """Stop, as the shell expects of a job; afterwards the child goes on too."""
    os.kill(os.getpid(), signal.SIGSTOP)
    # A shell continues the whole group, anybody else perhaps this process alone. Textual begins
    # anew with each of these signals.
    if _is_stopped(child):
        os.kill(child, signal.SIGCONT)


def _is_stopped(process: int) -> bool:
    try:
        stat = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] == "T"


def _die_with_parent(number: int) -> None:
    """Have the kernel send this process a signal when its parent ends; 0: none."""
    import ctypes  # the waiting process does without it

    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)


Modes = list[int | list[bytes | int]]


def _terminal_modes() -> Modes | None:
    try:
        return termios.tcgetattr(0)
    except termios.error:
        return None


def _restore_terminal(modes: Modes | None) -> None:
    if modes is None:
        return
    with contextlib.suppress(termios.error, OSError):
        # The terminal may have gone, and the child with it.
        termios.tcsetattr(0, termios.TCSANOW, modes)
        os.write(1, _RESTORE.encode())


def _die_of(number: int) -> int:
    """End by a signal, as the child has; where that doesn't end a process: the shells' status."""
    with contextlib.suppress(OSError):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
    os.kill(os.getpid(), number)
    return 128 + number
