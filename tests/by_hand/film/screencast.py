"""A program in a terminal that keys are pressed in, recorded as an asciicast of version 2.

Format: https://docs.asciinema.org/manual/asciicast/v2/
"""

from __future__ import annotations

import codecs
import contextlib
import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tbtui.ui.terminal.emulator import Emulator
from tests import terminal

LONGEST_WAIT_SEC = 60.0
ASKS_FOR_SYNC, HAS_SYNC = "\x1b[?2026$p", "\x1b[?2026;2$y"
"""Does the terminal know synchronized output? Then the app marks where a frame ends."""


class ScreencastError(Exception):
    """What was waited for has not come; the message holds the screen."""


@dataclass(frozen=True, slots=True)
class Cast:
    """A recording: the terminal's size, and (seconds since the start, what was written)."""

    columns: int
    rows: int
    output: tuple[tuple[float, str], ...]

    def write(self, path: Path) -> None:
        header = {"version": 2, "width": self.columns, "height": self.rows}
        lines = [header, *([round(at, 3), "o", text] for at, text in self.output)]
        path.write_text("".join(f"{json.dumps(line, ensure_ascii=False)}\n" for line in lines))

    @classmethod
    def read(cls, path: Path) -> Cast:
        header, *events = map(json.loads, path.read_text().splitlines())
        output = tuple((at, text) for at, kind, text in events if kind == "o")
        return cls(header["width"], header["height"], output)


class Terminal:
    """The terminal of a running program: its screen, its keys, and what it has written so far."""

    def __init__(self, program: terminal.Terminal, columns: int, rows: int) -> None:
        self._program = program
        self._columns, self._rows = columns, rows
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._screen = Emulator(columns, rows)
        self._began = time.monotonic()
        self._output: list[tuple[float, str]] = []

    @property
    def seconds(self) -> float:
        """Since the start."""
        return time.monotonic() - self._began

    @property
    def cast(self) -> Cast:
        return Cast(self._columns, self._rows, tuple(self._output))

    @property
    def text(self) -> str:
        """What stands on the screen."""
        return "\n".join(self._screen.plain(y) for y in range(self._rows))

    def press(self, keys: str) -> None:
        """Send keys, as the bytes that a terminal sends for them."""
        self._program.type(keys)

    def type(self, text: str, key_sec: float = 0.07) -> None:
        """Send keys one by one, as fast as a person types."""
        for key in text:
            self.press(key)
            self.hold(key_sec)

    def hold(self, seconds: float) -> None:
        """Let this much time pass: what is on the screen is to be read."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            self._read(left)

    def wait_for(self, *texts: str) -> None:
        """Until all the texts are on the screen. Raises `ScreencastError`."""
        self.wait_until(lambda screen: all(text in screen for text in texts), " and ".join(texts))

    def wait_until(self, holds: Callable[[str], bool], what: str) -> None:
        """Until it holds for the screen's text. Raises `ScreencastError`."""
        until = time.monotonic() + LONGEST_WAIT_SEC
        while not holds(self.text):
            if time.monotonic() > until:
                raise ScreencastError(f"{what}: not on the screen\n{self.text}")
            self._read(0.2)

    def _read(self, timeout: float) -> None:
        if (part := self._program.read(timeout)) is None:
            raise ScreencastError(f"the program has ended\n{self.text}")
        if not part:
            return
        text = self._decode(part)
        if ASKS_FOR_SYNC in text:
            self.press(HAS_SYNC)
        self._output.append((self.seconds, text))
        self._screen.feed(text)


@contextlib.contextmanager
def in_terminal(
    command: list[str], columns: int, rows: int, environment: Mapping[str, str], folder: Path
) -> Iterator[Terminal]:
    """Run a command in a terminal of its own; what is left of it at the end is killed."""
    size = columns, rows
    with terminal.Terminal(*command, size=size, cwd=folder, env=environment) as program:
        yield Terminal(program, columns, rows)
