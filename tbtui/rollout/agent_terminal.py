"""The terminal of a trial whose agent is a program in the sandbox.

A shell in tmux, as Terminus-2 has one, on which what the agent prints is written too: so its
recording, typing by a person and replay are those of Terminus-2. A person who takes the trial over
has that shell to himself, while the agent waits at its next call. Where there is no tmux, what the
agent prints is recorded alone.

Many agents print a JSON object a line, for programs. Such lines are kept in a file beside the
recording; in their place the terminal has the commands of the agent's recorded calls and what came
of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import shlex
import socket
from collections.abc import Sequence
from pathlib import Path

from harbor.environments.base import BaseEnvironment
from harbor.models.trial.paths import EnvironmentPaths

from tbtui.journal.rundir import AGENT_STREAM
from tbtui.rollout.disk import MAX_FILE_BYTES
from tbtui.rollout.environments.base import PANE_LOG, Terminals
from tbtui.rollout.held_sandbox import HeldSandbox
from tbtui.rollout.link import TrialLink
from tbtui.rollout.oracle import LineRecording
from tbtui.rollout.recording import Recording
from tbtui.rollout.session import GatedExec, GatedSession, TerminalStuckError
from tbtui.rollout.terminus import PANE_HEIGHT, PANE_WIDTH, first_screen

_MOST_WAITING = 1 << 20
"""Bytes that wait for a terminal which takes none; what comes then is left out."""
_MOST_WRITTEN = 64 << 20
"""Characters of output that go to a file of the host."""
_BATCH_SEC = 0.5
_BATCH_CHARS = 32_000
_START_SEC = 60.0
_SETTLE_SEC = 10.0
_DIM, _PLAIN = "\x1b[2m", "\x1b[0m"
_COMMAND_CHARS = 240

_LONGEST_LINE = 1 << 20
_MOST_CALLS = 100
"""Texts of calls that are kept until the agent is known to print JSON."""

_log = logging.getLogger(__name__)


class AgentTerminal:
    """Shows what the agent's commands print. Made by `open_terminal`."""

    def __init__(self, secret: str, stream: Path) -> None:
        """`stream`: the file for the lines of JSON that the agent prints."""
        self._secret = secret
        self._stream = stream
        self._streamed = 0
        """Bytes in that file; 0: it prints none."""
        self._begun = ""
        """The beginning of a line that may be one of JSON."""
        self._calls: list[str] = []
        """What came of its calls so far; shown once it prints JSON."""
        self._feed: asyncio.Transport | None = None
        self._file: Path | None = None
        self._room = _MOST_WRITTEN
        self._by_command: tuple[BaseEnvironment, str] | None = None
        self._batch = ""
        self._writing: asyncio.Task[None] | None = None
        self._hurried = asyncio.Event()
        """Somebody waits for what was shown."""
        self._line_ended = False  # a prompt stands there

    def command(self, command: str) -> None:
        """Show that a command begins."""
        line = " ".join(command.split())
        if len(line) > _COMMAND_CHARS:
            line = f"{line[:_COMMAND_CHARS]}…"
        self._write_begun()
        lead = "" if self._line_ended else "\n"
        self._write(f"{lead}{_DIM}$ {line}{_PLAIN}\n")

    def show(self, text: str) -> None:
        """Show output, the trial's secret and lines of JSON left out."""
        *lines, begun = (self._begun + text).replace(self._secret, "****").split("\n")
        plain = [f"{line}\n" for line in lines if not self._kept_apart(line)]
        may_be_json = begun.startswith("{") and len(begun) < _LONGEST_LINE
        self._begun = begun if may_be_json else ""
        self._write("".join(plain) + ("" if may_be_json else begun))

    def acts(self, commands: Sequence[str]) -> None:
        """Show the commands of an answer that the agent got, if what it prints doesn't."""
        self._called("".join(f"{_DIM}$ {line.strip()}{_PLAIN}\n" for line in commands))

    def sees(self, observation: str) -> None:
        """Show what came of them, if what it prints doesn't."""
        self._called(f"{observation.rstrip()}\n")

    def _called(self, text: str) -> None:
        self._calls = [*self._calls, text.replace(self._secret, "****")][-_MOST_CALLS:]
        if self._streamed:
            self._write("".join(self._calls))
            self._calls.clear()

    def _kept_apart(self, line: str) -> bool:
        """Whether it is an object of JSON for programs, which is kept in a file."""
        if not (line.startswith("{") and _is_event(line)):
            return False
        if not self._streamed:
            self._write("".join(self._calls))
            self._calls.clear()
        data = f"{line}\n".encode(errors="replace")
        if self._streamed + len(data) <= MAX_FILE_BYTES:
            with contextlib.suppress(OSError), self._stream.open("ab") as file:
                file.write(data)
        self._streamed += len(data)
        return True

    def _write_begun(self) -> None:
        begun, self._begun = self._begun, ""
        if not self._kept_apart(begun):
            self._write(begun)

    def _write(self, text: str) -> None:
        if not text:
            return
        self._line_ended = text.endswith("\n")
        if self._feed is not None:
            if self._feed.get_write_buffer_size() < _MOST_WAITING and not self._feed.is_closing():
                self._feed.write(text.encode(errors="replace"))
        elif self._file is not None:
            text = text[: self._room]
            self._room -= len(text)
            with contextlib.suppress(OSError), self._file.open("a", errors="replace") as file:
                file.write(text)
        elif self._by_command is not None:
            self._batch = (self._batch + text)[-_BATCH_CHARS:]
            if self._writing is None or self._writing.done():
                self._writing = asyncio.create_task(self._write_batches(), name="agent's output")

    async def settled(self) -> None:
        """Wait until what was shown last is on its way."""
        self._write_begun()
        if self._writing is not None:
            self._hurried.set()
            await asyncio.wait((self._writing,), timeout=_SETTLE_SEC)
            self._hurried.clear()

    def close(self) -> None:
        if self._feed is not None:
            self._feed.close()
        if self._writing is not None:
            self._writing.cancel()

    async def _write_batches(self) -> None:
        assert self._by_command is not None
        environment, tty = self._by_command
        while self._batch:
            text, self._batch = self._batch, ""
            try:
                await environment.exec(f"printf %s {shlex.quote(text)} > {tty}", user="root")
            except RuntimeError as error:
                _log.info("%s: output not shown: %s", environment.session_id, error)
                return
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._hurried.wait(), _BATCH_SEC)

    async def attach(self, environment: BaseEnvironment, tty: str) -> None:
        """Write on this terminal of the sandbox from now on."""
        if not isinstance(environment, Terminals):
            self._by_command = environment, tty
            return
        writer = ["/bin/sh", "-c", f"exec cat > {shlex.quote(tty)}"]
        end: socket.socket = await environment.open_program(writer, user="root")
        loop = asyncio.get_running_loop()
        self._feed, _ = await loop.create_unix_connection(asyncio.Protocol, sock=end)

    def write_to(self, file: Path) -> None:
        """Append to this file of the host from now on."""
        self._file = file


def _is_event(line: str) -> bool:
    try:
        read = json.loads(line)
    except (ValueError, RecursionError):
        return False
    return isinstance(read, dict) and "type" in read


async def open_terminal(
    link: TrialLink, environment: BaseEnvironment, sandbox: HeldSandbox, secret: str
) -> AgentTerminal:
    """Start the trial's terminal and its recording."""
    paths = environment.trial_paths
    terminal = AgentTerminal(secret, paths.trial_dir / AGENT_STREAM)
    cast = paths.trial_dir / "recording.cast"
    session = GatedSession(
        "agent",
        GatedExec(environment, link, sandbox),
        link,
        logging_path=EnvironmentPaths.agent_dir / PANE_LOG,
        pane_width=PANE_WIDTH,
        pane_height=PANE_HEIGHT,
        user=environment.default_user,
    )
    try:
        async with asyncio.timeout(_START_SEC):
            await session.start()
            await terminal.attach(environment, await session.tty())
    except (RuntimeError, OSError, TimeoutError, TerminalStuckError) as error:
        _log.info("%s: no terminal, its agent's output is recorded: %s", link.spec.trial, error)
        output = paths.trial_dir / "agent-output.log"
        terminal.write_to(output)
        recording: Recording = LineRecording(output, cast, width=PANE_WIDTH, height=PANE_HEIGHT)
    else:
        link.keyboard.attach(session)
        pane = paths.agent_dir / PANE_LOG
        recording = Recording(
            pane,
            cast,
            width=PANE_WIDTH,
            height=PANE_HEIGHT,
            first_screen=await first_screen(session, pane),
        )
    link.begin_recording(recording)
    return terminal
