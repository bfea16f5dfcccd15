"""The lines of a run on the standard output: also after a reader, or the terminal, has gone."""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import TextIO

from tbtui.invocation import to_type
from tbtui.journal.database import JournalError, may_pass
from tbtui.journal.events import Entry, RunContinued, RunFinished, RunStarted, fields_of
from tbtui.journal.reader import JournalReader
from tbtui.journal.rundir import RunDirectory

_POLL_SEC = 0.1


def json_line(entry: Entry) -> str:
    """One event as one JSON object on one line: `seq`, `time`, `kind` and its own fields."""
    fields = {"seq": entry.seq, "time": entry.time, **fields_of(entry.event)}
    return json.dumps(fields)


def follow(
    directory: RunDirectory,
    complete: threading.Event,
    lines: Callable[[Entry], Iterator[str]],
    out: TextIO,
    after: int = 0,
) -> None:
    """Write the journal's events as they come, until it is `complete` and written out.

    Waits for the reader of `out`: run it on a thread of its own. Events up to number `after` belong
    to an earlier part of the run: they are folded in, and not written.

    Raises:
        JournalError: the journal can't be read.
        OSError: nothing can be written; BrokenPipeError: nobody reads `out` any more.
    """
    while not directory.database.exists():
        if complete.is_set():
            return
        complete.wait(_POLL_SEC)
    with closing(JournalReader(directory, lenient=True)) as reader:
        seq = 0
        while True:
            ending = complete.is_set()
            while entries := reader.read(seq):
                seq = entries[-1].seq
                for entry in entries:
                    for line in lines(entry):
                        if entry.seq > after:
                            out.write(line + "\n")
                out.flush()
            if ending:
                return
            complete.wait(_POLL_SEC)


log = logging.getLogger(__name__)

_AGAIN_SEC = 1.0
"""Pause before a journal that can't be read is read again."""

Lines = Callable[[Entry], Iterator[str]]
"""The lines that an event adds to those before."""


class Printer:
    """Writes the lines of a run, and never holds the run up or ends it because nobody reads them.

    A reader who closes the pipe is missed once, on stderr; the lines stay in the journal. When
    the terminal has gone, what was printed there goes on in the run directory's `output`.
    """

    def __init__(
        self, directory: RunDirectory, lines: Callable[[], Lines], after: int, *, detaches: bool
    ) -> None:
        """
        Args:
            lines: makes what turns the journal's events, from its first one on, into lines.
            after: number of the last event whose lines are not to be written.
            detaches: whether the run goes on when its terminal goes away.
        """
        self._directory = directory
        self._lines = lines
        self._after = after
        self._detaches = detaches
        # A terminal that has gone doesn't say any more that it is one.
        self._terminal = [number for number in (0, 1, 2) if os.isatty(number)]
        self._gone = False
        self._unread = False
        self._over = False
        self._lock = threading.Lock()
        self.complete = False
        """The end of a run that had begun has been turned into lines."""
        self._begun = False

    @property
    def unread(self) -> bool:
        """Whether nothing reads the lines any more."""
        return self._unread

    def follow(self, complete: threading.Event) -> None:
        """Write the lines as they come, until the journal is `complete` and written out; or
        until the terminal has gone, and the run is to end with it.

        Raises:
            JournalError: it can't be read.
        """
        while not self._over:
            ending = complete.is_set()
            try:
                follow(self._directory, complete, self._noting(), sys.stdout, self._after)
            except OSError as error:
                self._lost(error)
            except JournalError as error:
                # The run waits for its disk too, and says so as soon as it can.
                if ending or not may_pass(error):
                    raise
                complete.wait(_AGAIN_SEC)
            else:
                return

    def hang_up(self) -> bool:
        """Handle the loss of the terminal; returns whether the run goes on."""
        with self._lock:
            if self._detaches and not self._gone:
                self._gone = True
                self._leave_terminal()
        return self._detaches

    def _noting(self) -> Lines:
        lines = self._lines()
        self._begun = self.complete = False

        def noted(entry: Entry) -> Iterator[str]:
            yield from lines(entry)
            self._after = max(self._after, entry.seq)
            match entry.event:
                case RunStarted() | RunContinued():
                    self._begun = True
                case RunFinished():
                    self.complete = self._begun
                    self._begun = False

        return noted

    def _lost(self, error: OSError) -> None:
        """Nothing can be written where the lines went."""
        if error.errno == errno.EIO and 1 in self._terminal and not self._gone:
            # Nobody has sent a signal yet, or ever will.
            if not self.hang_up():
                self._over = True
                _to_nowhere()
            return
        with self._lock:
            self._unread = True
            if self._gone and 1 not in self._terminal:
                # Their reader had the same terminal.
                self._leave_terminal()
                return
            _to_nowhere()
        why = "nobody reads" if isinstance(error, BrokenPipeError) else f"{error.strerror}: no more"
        _say(
            f"{why} lines; the run goes on: {to_type('attach', self._directory.path)}"
            f" (log: {self._directory.log})"
        )

    def _leave_terminal(self) -> None:
        if self._unread and 1 not in self._terminal:
            self._terminal.append(1)
        self._unread = False
        redirect(self._directory, self._terminal)


TERMINAL_GONE = "the terminal has gone; the run goes on without it (on_hangup=detach)"
DETACHED = "a person has detached; the run goes on without a terminal"


def redirect(directory: RunDirectory, numbers: list[int], why: str = TERMINAL_GONE) -> None:
    """Standard streams (0, 1, 2) that were a terminal are the run directory's `output` from here
    on, the input is empty; and the log says why, and how to see the run again."""
    nothing = os.open(os.devnull, os.O_RDWR)
    try:
        output = os.open(directory.output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    except OSError as error:
        log.warning("%s: can't be written (%s)", directory.output, error)
        output = os.dup(nothing)
    for number in numbers:
        os.dup2(output if number else nothing, number)
    os.close(output)
    os.close(nothing)
    log.info(
        "%s. See it: %s. End it: %s. Its lines: %s",
        why,
        to_type("attach", directory.path),
        to_type("ctl", "run", "stop", directory.path),
        directory.output,
    )


def _to_nowhere() -> None:
    # Python would fail once more at the exit, on what is left of the output.
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, sys.stdout.fileno())
    os.close(nothing)


def _say(text: str) -> None:
    with contextlib.suppress(OSError):
        # It may have had the same reader.
        os.write(2, f"tbtui: {text}\n".encode(errors="replace"))
