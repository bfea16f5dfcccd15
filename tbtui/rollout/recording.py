"""Records a trial's terminal as an asciicast v2 while it happens.

tmux pipes the pane's raw bytes into a file that the host can see; a recording follows that file
and writes what arrives, with the time of its arrival. One ticking task serves all trials of a
worker. Format: https://docs.asciinema.org/manual/asciicast/v2/

The file lies in a directory that the agent can write to, so nothing about it is trusted: links
and special files are refused, and a file that was put in its place later is never opened.
"""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import json
import logging
import os
import re
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path

TICK_SEC = 0.05
ATTENDED_TICK_SEC = 0.01
"""While a person types and waits for the echo."""
MAX_CAST_BYTES = 16 << 20
_CHUNK_BYTES = 256 << 10
_FIRST_SCREEN_WAIT_SEC = 0.5

_CONTROLS = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # CSI
    r"|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)"  # OSC
    r"|\x1b[ -/]*[0-~]"
    r"|[\x00-\x08\x0b-\x1f\x7f]"
)

_log = logging.getLogger(__name__)


class Recording:
    """One trial's recording.

    `first_screen` is what the terminal showed when the recording began. tmux may have drawn it
    before it started to pipe; then the recording opens with it.
    """

    def __init__(
        self,
        pane: Path,
        cast: Path,
        *,
        width: int,
        height: int,
        first_screen: str = "",
        max_bytes: int = MAX_CAST_BYTES,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._pane = pane
        self._clock = clock
        self._began = clock()
        self._first_screen = first_screen.rstrip()
        self._opened = not self._first_screen
        """The first screen is accounted for."""
        self._head = ""
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._max_bytes = max_bytes
        self._written = 0
        self._source: int | None = None
        self._over = False
        """Nothing more will be written."""
        self._cast = cast.open("wb", buffering=0)
        began = time.time()
        self._write(
            {
                "version": 2,
                "width": width,
                "height": height,
                "timestamp": int(began),
                # The format has whole seconds; a replay follows the journal more closely.
                "began": round(began, 3),
                "env": {"TERM": "xterm-256color", "SHELL": "/bin/bash"},
            }
        )

    def pump(self) -> bool:
        """Write down what has arrived, one chunk at most; True if there may be more."""
        if self._over:
            return False
        data = self._read()
        text = self._decoder.decode(data)
        if self._opened:
            self._output(text)
        else:
            self._open_with(text)
        return len(data) == _CHUNK_BYTES

    def typed(self, text: str) -> None:
        """Write down what a person types, after what the terminal has shown by now."""
        self._beside("i", text)

    def mark(self, label: str) -> None:
        self._beside("m", label)

    def _beside(self, kind: str, text: str) -> None:
        if self._over:
            return
        self.pump()
        if not self._opened:
            self._begin(complete=False)
        if not self._over:
            self._write([round(self._clock() - self._began, 6), kind, text])

    def close(self) -> None:
        """Write down the rest and close the files."""
        if self._cast.closed:
            return
        try:
            while self.pump():
                pass
            if not self._over:
                if not self._opened:
                    self._begin(complete=False)
                self._output(self._decoder.decode(b"", final=True))
        finally:
            self._over = True
            self._cast.close()
            if self._source is not None:
                os.close(self._source)
                self._source = None

    def _read(self) -> bytes:
        if self._source is None:
            self._source = _open_plain_file(self._pane)
            if self._source is None:
                return b""
        return os.read(self._source, _CHUNK_BYTES)

    def _open_with(self, text: str) -> None:
        # The stream normally holds the first screen, written a moment later than the screen
        # itself was seen: wait for it a little before taking it for missing.
        self._head += text
        last_line = self._first_screen.splitlines()[-1].strip()
        if last_line in _CONTROLS.sub("", self._head):
            self._begin(complete=True)
        elif self._clock() - self._began > _FIRST_SCREEN_WAIT_SEC:
            self._begin(complete=False)

    def _begin(self, *, complete: bool) -> None:
        if not complete:
            # A captured line has lost the blank between a prompt and the cursor.
            lines = self._first_screen.splitlines()
            self._output("\x1b[H\x1b[2J" + "\r\n".join(lines) + " ")
        self._opened = True
        self._output(self._head)
        self._head = ""

    def _output(self, text: str) -> None:
        if text:
            self._write([round(self._clock() - self._began, 6), "o", text])

    def _write(self, record: object) -> None:
        # In ASCII: U+0085 or U+2028 would end the line for readers that know such line ends.
        line = json.dumps(record).encode() + b"\n"
        if self._written + len(line) > self._max_bytes:
            note = f"[the recording ends here: it reached {self._max_bytes:,} bytes]"
            at = round(self._clock() - self._began, 6)
            line = json.dumps([at, "o", f"\x1b[0m\r\n{note}\r\n"]).encode() + b"\n"
            line += json.dumps([at, "m", note]).encode() + b"\n"
            self._over = True
        self._cast.write(line)
        self._written += len(line)


class Recorder:
    """Keeps all recordings of a worker up to date from one task."""

    def __init__(self) -> None:
        self._live: set[Recording] = set()
        self._attended: set[Recording] = set()
        self._waiting = asyncio.Event()
        """A person types and waits for what comes of it."""

    def typed(self, recording: Recording, text: str) -> None:
        """Write down what a person types, ahead of what the terminal makes of it."""
        if recording in self._live:
            with self._giving_up(recording):
                recording.typed(text)

    def mark(self, recording: Recording, label: str, *, attended: bool) -> None:
        """Write a marker; while a recording is attended to, all are kept up to date faster."""
        if recording not in self._live:
            return
        with self._giving_up(recording):
            recording.mark(label)
        (self._attended.add if attended else self._attended.discard)(recording)
        if self._attended:
            self._waiting.set()
        else:
            self._waiting.clear()

    def add(self, recording: Recording) -> None:
        self._live.add(recording)

    def finish(self, recording: Recording) -> None:
        """Write down the rest of `recording` and close it."""
        self._leave(recording)
        try:
            recording.close()
        except OSError as error:
            _log.warning("the end of a recording is lost: %s", error)

    async def run(self) -> None:
        """Tick until cancelled."""
        while True:
            await self._tick()
            for recording in tuple(self._live):
                with self._giving_up(recording):
                    recording.pump()

    async def _tick(self) -> None:
        if self._waiting.is_set():
            await asyncio.sleep(ATTENDED_TICK_SEC)
            return
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._waiting.wait(), TICK_SEC)

    @contextlib.contextmanager
    def _giving_up(self, recording: Recording) -> Iterator[None]:
        """A full disk must cost the recording, not the trial."""
        try:
            yield
        except OSError as error:
            _log.warning("a recording is given up: %s", error)
            self._leave(recording)
            with contextlib.suppress(OSError):
                recording.close()

    def _leave(self, recording: Recording) -> None:
        self._live.discard(recording)
        self._attended.discard(recording)
        if not self._attended:
            self._waiting.clear()


def _open_plain_file(path: Path) -> int | None:
    """Descriptor of a regular file that is not a link; None while there is none."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    return None
