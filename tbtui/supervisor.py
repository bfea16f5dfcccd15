"""The process that a shell waits for while the app runs in its child.

A shell gives its prompt back when the process that it has started stops or ends. So that a run can
outlive its app in the middle, the app runs in a child of a small process, which waits: it passes
on the signals that reach it alone, stops with the child, ends with the child's exit status or
signal, and ends before the child once that lets go of the terminal.

Both are in the process group that the shell made: what the terminal sends (ctrl-c, a hang-up, a new
size) reaches the child by itself. A kill of the waiting process kills the child too.

Only Linux says who has sent a signal, and tells a process of its parent's end. Elsewhere what
terminals send is not passed on, whatever its sender, and the child watches a pipe that ends with
its parent.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import termios
import threading
from collections.abc import Callable

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
_OF_TERMINALS = frozenset({signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP, signal.SIGWINCH})
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

    def __init__(self, waiting: int, death_signal: _ParentDeathSignal) -> None:
        self._waiting = waiting
        self._death_signal = death_signal

    def release(self) -> None:
        """Give the shell its prompt back: this process leaves the terminal's session and goes on.

        Its standard streams must be elsewhere by then.
        """
        os.setsid()
        self._death_signal.disarm()
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
    death_signal = _ParentDeathSignal()
    child = os.fork()
    if child == 0:
        death_signal.arm()
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        if os.getppid() != waiting:
            # It was killed before this one could learn of it.
            os.kill(os.getpid(), signal.SIGKILL)
        return work(Shell(waiting, death_signal))
    status = _wait(child, waited_for)
    if status >= 0:
        return status
    _restore_terminal(modes)
    return _die_of(-status)


def _wait(child: int, waited_for: frozenset[signal.Signals]) -> int:
    """Wait for the child; its exit status, below 0 the signal that killed it."""
    while True:
        number, of_terminal = _next_signal(waited_for)
        if number == signal.SIGCHLD:
            changed, status = os.waitpid(child, os.WNOHANG | os.WUNTRACED)
            if changed and os.WIFSTOPPED(status):
                # As the shell expects of a job.
                os.kill(os.getpid(), signal.SIGSTOP)
                # A shell continues the whole group, anybody else perhaps this process alone.
                # Textual begins anew with each of these signals.
                changed, status = os.waitpid(child, os.WNOHANG | os.WCONTINUED)
                if not changed:
                    os.kill(child, signal.SIGCONT)
            if changed and not os.WIFCONTINUED(status):
                return os.waitstatus_to_exitcode(status)
        elif number == _LET_GO:
            with contextlib.suppress(ProcessLookupError):
                if os.getsid(child) == child:
                    return 0
        elif not of_terminal:
            os.kill(child, number)


def _next_signal(waited_for: frozenset[signal.Signals]) -> tuple[int, bool]:
    """The next signal, and whether a terminal has sent it to the whole group."""
    if sys.platform == "linux":
        came = signal.sigwaitinfo(waited_for)
        return came.si_signo, came.si_code == _FROM_KERNEL
    number = signal.sigwait(waited_for)
    return number, number in _OF_TERMINALS


class _ParentDeathSignal:
    """Kills a child when its parent ends, however that ends."""

    def __init__(self) -> None:
        self._disarmed = threading.Event()
        if sys.platform != "linux":
            self._read, self._write = os.pipe()

    def arm(self) -> None:
        """Begin; to be called in the child."""
        if sys.platform == "linux":
            _signal_at_end_of_parent(signal.SIGKILL)
        else:
            os.close(self._write)
            threading.Thread(target=self._watch, name="parent", daemon=True).start()

    def disarm(self) -> None:
        """Let the child go on without its parent."""
        self._disarmed.set()
        if sys.platform == "linux":
            _signal_at_end_of_parent(0)

    def _watch(self) -> None:
        if sys.platform == "linux":  # the kernel does
            return
        os.read(self._read, 1)
        if not self._disarmed.is_set():
            os.kill(os.getpid(), signal.SIGKILL)


def _signal_at_end_of_parent(number: int) -> None:
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
