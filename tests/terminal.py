"""A program in a terminal of its own, whose other end we hold."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Self

PATIENCE_SEC = 90
_CONTROLLED = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execvp(sys.argv[1], sys.argv[1:])
"""


class Terminal:
    """The program, what it is sent, and what it has shown."""

    def __init__(
        self,
        *command: str,
        size: tuple[int, int] = (120, 40),
        controls: bool = True,
        cwd: Path | None = None,
        env: Mapping[str, str] = os.environ,
    ) -> None:
        """`size`: columns and rows. `controls`: it is the program's controlling terminal, whose
        keys send signals, and whose end is a hang-up."""
        self._other_end, self._own_end = pty.openpty()
        fcntl.ioctl(self._own_end, termios.TIOCSWINSZ, struct.pack("HHHH", size[1], size[0], 0, 0))
        # pytest's workers are told the size of the terminal that pytest runs in.
        variables = {name: env[name] for name in env.keys() - {"COLUMNS", "LINES"}}
        self.process = subprocess.Popen(
            [sys.executable, "-c", _CONTROLLED, *command] if controls else command,
            cwd=cwd,
            env={**variables, "TERM": "xterm-256color"},
            stdin=self._own_end,
            stdout=self._own_end,
            stderr=self._own_end,
            start_new_session=True,
        )
        self.seen = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Whatever is left of the program is killed."""
        self.process.kill()
        self.process.wait()
        if not self._gone:
            self.goes_away()

    _gone = False

    def read(self, timeout: float) -> bytes | None:
        """What has come within so many seconds; None when the program has ended."""
        until = time.monotonic() + timeout
        while True:
            has_ended = self.process.poll() is not None
            # The kernel passes on the last of what was written a moment later.
            left = 0.3 if has_ended else min(0.1, max(0.0, until - time.monotonic()))
            if select.select([self._other_end], [], [], left)[0]:
                return os.read(self._other_end, 65536)
            if has_ended:
                return None
            if time.monotonic() >= until:
                return b""

    def shows(self) -> bytes:
        """All that it has shown since something was typed."""
        while part := self.read(0):
            self.seen += part
        return self.seen

    def type(self, text: str) -> None:
        self.seen = b""
        os.write(self._other_end, text.encode())

    def wait_for(self, *patterns: bytes) -> None:
        """Until each has been shown."""
        until = time.monotonic() + PATIENCE_SEC
        while not all(re.search(pattern, self.seen) for pattern in patterns):
            part = self.read(0.2)
            assert part is not None and time.monotonic() < until, self.seen[-2000:]
            self.seen += part

    def ended(self) -> int:
        """Read until the program has ended; its exit status."""
        until = time.monotonic() + PATIENCE_SEC
        while (part := self.read(0.2)) is not None:
            assert time.monotonic() < until, self.seen[-2000:]
            self.seen += part
        return self.process.wait()

    def goes_away(self) -> None:
        self.shows()
        os.close(self._own_end)
        os.close(self._other_end)
        self._gone = True

    @property
    def cooked(self) -> bool:
        """Whether it is as a shell wants it."""
        return bool(termios.tcgetattr(self._own_end)[3] & termios.ICANON)
