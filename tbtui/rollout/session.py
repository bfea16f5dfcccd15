"""Terminus-2's tmux session, gated and with fewer round trips.

Every command that Terminus-2 runs in the sandbox costs a process there, or a request to a cloud.
The session sends the same keys and reads the same screens as Harbor's, but it is started by one
command instead of three, and is not asked whether it lives right after it has shown its screen.

Where a program of the sandbox can be talked to, keys and screens don't take a process each: one
`tmux -C attach-session` per trial reads tmux commands from a socket and writes their output to it
(control mode: https://github.com/tmux/tmux/wiki/Control-Mode). It shows what `tmux COMMAND` would
have printed, and an error as that command's exit code. The pane keeps its size and the client is
sent none of its output.
"""

from __future__ import annotations

import asyncio
import re
import secrets
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import override

from harbor.agents.terminus_2.tmux_session import TmuxSession
from harbor.environments.base import BaseEnvironment, ExecResult

from tbtui.journal.commands import Typed
from tbtui.rollout.environments.base import Terminals, direct_argv
from tbtui.rollout.held_sandbox import HeldSandbox
from tbtui.rollout.link import TrialLink

MAX_REPLY_BYTES = 8 << 20
"""What the output of a command in the sandbox is kept of at most, too."""
# Run twice after an answer was lost, these would type twice.
_ONCE = frozenset(["send-keys", "set-buffer", "paste-buffer"])
_COMMANDS = frozenset(["send-keys", "capture-pane", "has-session", "set-option", "display-message"])
_CLIENT = ("tmux", "-C", "attach-session", "-E", "-f", "no-output,ignore-size", "-t")
# Outside blocks tmux reports events, each in a line that begins with %.
_REPLY = re.compile(
    rb"%end \d+ \d+ 1\n(?:%(?!begin \d+ \d+ 1\n)[^\n]*\n)*"
    rb"%begin (?P<block>\d+ \d+ 1)\n(?P<output>.*)%(?P<guard>end|error) (?P=block)\n"
    rb"(?:%[^\n]*\n)*%begin \d+ \d+ 1\n",
    re.DOTALL,
)
_UNSAFE = re.compile(rb"[^A-Za-z0-9]")


def tmux_line(argv: Sequence[str]) -> bytes:
    """One line for tmux's command parser that means exactly these arguments.

    Every byte that is neither letter nor digit is written as an octal escape between double
    quotes, so nothing is left for tmux to expand, separate or comment out.
    """
    return b" ".join(
        b'"%b"' % _UNSAFE.sub(lambda found: b"\\%03o" % found.group()[0], word.encode())
        for word in argv
    )


def plain_tmux(command: str) -> list[str] | None:
    """The arguments of a command line that this client can run in place of a process, or None.

    As arguments of a process, words that end in `;` separate commands, and none can hold NUL.
    """
    argv = direct_argv(command)
    if argv is None or argv[0] != "tmux" or len(argv) < 2 or argv[1] not in _COMMANDS:
        return None
    if any(word.endswith(";") or "\0" in word for word in argv):
        return None
    return argv[1:]


class TmuxControl(asyncio.Protocol):
    """One client. Commands run one at a time. Ends with its session, or when it is killed."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()
        self._marker = b""
        self._reply: asyncio.Future[bytes | None] | None = None
        self._turn = asyncio.Lock()
        self._answered = False

    @staticmethod
    async def open(sandbox: Terminals, session: str, user: str | int | None = None) -> TmuxControl:
        """Attaches to the session; the first command shows whether that worked.

        Raises:
            SandboxError: the sandbox is gone or can't start a program.
        """
        end = await sandbox.open_program([*_CLIENT, session], user=user)
        loop = asyncio.get_running_loop()
        _, control = await loop.create_unix_connection(TmuxControl, sock=end)
        return control

    @property
    def attached(self) -> bool:
        """Whether the client is not known to have ended."""
        return self._transport is not None

    async def run(self, argv: Sequence[str]) -> ExecResult | None:
        """What `tmux ARGV` prints and returns. None: run it by a process.

        A tmux too old for control mode, and a client that was killed, answer nothing. Keys are
        sent only once the client has answered, and never twice: lost on the way they are an error.
        """
        repeatable = argv[0] not in _ONCE
        async with self._turn:
            if self._transport is None or not (repeatable or self._answered):
                return None
            reply = await self._ask(argv)
        if reply is not None:
            self._answered = True
            return reply
        return None if repeatable else ExecResult(stderr="lost the tmux client\n", return_code=1)

    async def _ask(self, argv: Sequence[str]) -> ExecResult | None:
        """Frames the reply by words that nothing in the sandbox can know beforehand.

        The guard lines around it carry a time and a counter, which could be guessed and printed.
        """
        assert self._transport is not None
        begin, end = secrets.token_hex(16), secrets.token_hex(16)
        lines = (["display-message", "-p", begin], argv, ["display-message", "-p", end])
        self._marker = f"\n{end}\n".encode()
        self._received.clear()
        self._reply = asyncio.get_running_loop().create_future()
        self._transport.write(b"".join(tmux_line(line) + b"\n" for line in lines))
        try:
            data = await self._reply
        except asyncio.CancelledError:
            self.close()  # its reply would be taken for the next one's
            raise
        finally:
            self._reply = None
        if data is None:
            return None
        found = _REPLY.fullmatch(data.partition(f"\n{begin}\n".encode())[2])
        if found is None:
            self.close()
            return None
        output = found["output"].decode(errors="replace")
        if found["guard"] == b"end":
            return ExecResult(stdout=output, stderr="", return_code=0)
        error = output.removeprefix("parse error: ")
        return ExecResult(stdout="", stderr=error, return_code=1)

    def close(self) -> None:
        """Ends the client. Idempotent."""
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.abort()
        self._resolve(None)

    def _resolve(self, data: bytes | None) -> None:
        if self._reply is not None and not self._reply.done():
            self._reply.set_result(data)

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    @override
    def data_received(self, data: bytes) -> None:
        if self._reply is None or self._reply.done():
            return  # events that were not asked for
        searched = max(0, len(self._received) - len(self._marker))
        self._received += data
        if len(self._received) > MAX_REPLY_BYTES:
            self.close()
            return
        at = self._received.find(self._marker, searched)
        if at >= 0:
            self._resolve(bytes(self._received[: at + 1]))
            self._received.clear()

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self.close()


EXEC_SEC = 120.0
"""Sending keys and reading a screen take milliseconds; after this long the terminal is stuck."""
_SET_HISTORY = "tmux set-option -g history-limit 10000000"
"""As Harbor sets it. Terminus-2's pane exists by then and keeps tmux's default."""
_REACTION_SEC = 0.01
"""What a shell has at least to show what a key does, whatever duration the model asks for: with a
process for each command, sending the keys and reading the screen took as long by themselves."""
_NO_TMUX = 93
_PASTE = "tbtui-paste"
_CHUNK_CHARS = 2000
"""An old tmux takes commands of up to 16 kB, and every byte of these may be written as four."""


class TerminalStuckError(Exception):
    """tmux does not answer."""


class GatedExec:
    """What a `TmuxSession` needs of a sandbox; waits while the trial is frozen."""

    def __init__(self, environment: BaseEnvironment, link: TrialLink, sandbox: HeldSandbox) -> None:
        self._environment = environment
        self._link = link
        self._sandbox = sandbox
        self.session_id = environment.session_id
        self._terminals = environment if isinstance(environment, Terminals) else None
        self._client: TmuxControl | None = None
        self.bounded = False
        """Commands that hang raise. Not while tools are being installed."""

    async def exec(
        self, command: str, user: str | int | None = None, timeout_sec: int | None = None
    ) -> ExecResult:
        """Run a command.

        Raises:
            TerminalStuckError: it takes longer than `EXEC_SEC` of active time.
        """
        await self._link.control.thawed()
        work = self._run(command, user, timeout_sec)
        if not self.bounded:
            return await work
        self._sandbox.used()
        clock = self._link.budget
        began = clock.active()
        task = asyncio.ensure_future(work)
        try:
            while not task.done():
                left = began + EXEC_SEC - clock.active()
                if left <= 0:
                    raise TerminalStuckError(f"no answer from tmux within {EXEC_SEC:g} s")
                await asyncio.wait((task,), timeout=left)
            return task.result()
        finally:
            task.cancel()

    async def tmux(self, argv: Sequence[str], user: str | int | None) -> None:
        """`tmux ARGV`, each word meaning itself.

        Raises:
            RuntimeError: tmux refuses.
        """
        await self._link.control.thawed()
        self._sandbox.used()
        result = await self._client.run(argv) if self._client is not None else None
        if result is None:
            # As arguments of a process, a word that ends in `;` would end the command.
            words = [f"{word[:-1]}\\;" if word.endswith(";") else word for word in argv]
            command = shlex.join(["tmux", *words])
            result = await self._environment.exec(command=command, user=user)
        if result.return_code != 0:
            raise RuntimeError((result.stderr or "").strip() or f"tmux can't {argv[0]}")

    @property
    def keeps_clients(self) -> bool:
        """Whether a tmux client can stay in the sandbox."""
        return self._terminals is not None

    async def open_client(self, session: str, user: str | int | None) -> None:
        """Start a tmux client that stays, through which keys and screens go from now on."""
        await self._link.control.thawed()
        if self._terminals is not None:
            self._client = await TmuxControl.open(self._terminals, session, user)

    async def _run(
        self, command: str, user: str | int | None, timeout_sec: int | None
    ) -> ExecResult:
        if self._client is not None and (argv := plain_tmux(command)) is not None:
            result = await self._client.run(argv)
            if result is not None:
                return result
        return await self._environment.exec(command=command, user=user, timeout_sec=timeout_sec)


@dataclass(frozen=True, slots=True)
class PaneState:
    """How a terminal stands."""

    shell: int
    """Process of its shell."""
    server: int
    """Process of tmux."""
    history: int
    """Lines above the visible screen."""
    row: int
    """The cursor's."""
    full_screen: bool
    """A program uses the alternate screen."""
    coloured: str
    """All lines, history included, with escape sequences."""


@dataclass(frozen=True, slots=True)
class Look:
    """What a terminal shows, and who has it."""

    program: str
    """Name of the program in the foreground."""
    before_cursor: str
    """The cursor's line, up to it."""
    history: int
    """Lines above the visible screen."""
    screen: str


class GatedSession(TmuxSession):
    """Sends no key and reads no screen while the trial is frozen; waits in active time."""

    def __init__(
        self,
        session_name: str,
        shell: GatedExec,
        link: TrialLink,
        **options: object,
    ) -> None:
        super().__init__(
            session_name=session_name,
            environment=shell,  # type: ignore[arg-type]  # what it uses of one
            local_asciinema_recording_path=None,
            remote_asciinema_recording_path=None,
            **options,  # type: ignore[arg-type]
        )
        self._shell = shell
        self._link = link
        self._just_seen = False
        """The screen was read and nothing was done since."""

    async def pane(self) -> PaneState:
        """The terminal as a snapshot has it. Raises `RuntimeError`: tmux gives no answer."""
        name = self._session_name
        asked = "#{pane_pid} #{pid} #{history_size} #{cursor_y} #{alternate_on}"
        answer = await self._shell.exec(
            shlex.join(["tmux", "display-message", "-p", "-t", name, asked]), user=self._user
        )
        screen = await self._shell.exec(
            shlex.join(["tmux", "capture-pane", "-p", "-e", "-S", "-", "-t", name]),
            user=self._user,
        )
        try:
            shell, server, history, row, full = map(int, (answer.stdout or "").split())
        except ValueError:
            raise RuntimeError("tmux does not say how its pane stands") from None
        return PaneState(shell, server, history, row, bool(full), screen.stdout or "")

    async def look(self) -> Look:
        """What the terminal shows now. Raises `RuntimeError`: tmux gives no answer."""
        asked = "#{history_size} #{cursor_x} #{cursor_y} #{pane_current_command}"
        words = ["tmux", "display-message", "-p", "-t", self._session_name, asked]
        answer = await self._shell.exec(shlex.join(words), user=self._user)
        screen = await self.capture_pane()
        try:
            history, column, row, program = (answer.stdout or "").rstrip("\n").split(" ", 3)
            lines = [*screen.split("\n"), *[""] * (int(row) + 1)]
            return Look(program, lines[int(row)][: int(column)], int(history), screen)
        except ValueError:
            raise RuntimeError("tmux does not say what its pane shows") from None

    @property
    def previous_buffer(self) -> str | None:
        """The whole pane as it was when its new output was asked for last."""
        return self._previous_buffer

    @previous_buffer.setter
    def previous_buffer(self, buffer: str | None) -> None:
        self._previous_buffer = buffer

    @override
    async def start(self) -> None:
        """Start tmux, and install it first where there is none.

        Raises:
            RuntimeError: tmux does not start.
        """
        start = self._tmux_start_session
        if not self._shell.keeps_clients:
            start += f" && {{ {_SET_HISTORY} || true; }}"
        result = await self._shell.exec(
            f"command -v tmux >/dev/null || exit {_NO_TMUX}; {start}", user=self._user
        )
        if result.return_code == _NO_TMUX:
            await super().start()
        elif result.return_code != 0:
            raise RuntimeError(f"Failed to start tmux session. Error: {result.stderr}")
        self._shell.bounded = True
        if self._shell.keeps_clients:
            await self._shell.open_client(self._session_name, self._user)
            await self._shell.exec(_SET_HISTORY, user=self._user)

    async def tty(self) -> str:
        """The path of the pane's terminal in the sandbox.

        Raises:
            RuntimeError: tmux does not say.
        """
        words = ["tmux", "display-message", "-p", "-t", self._session_name, "#{pane_tty}"]
        result = await self._shell.exec(shlex.join(words), user=self._user)
        path = (result.stdout or "").strip()
        if result.return_code != 0 or not path.startswith("/dev/"):
            raise RuntimeError(f"tmux names no terminal: {(result.stderr or path).strip()}")
        return path

    @override
    async def is_session_alive(self) -> bool:
        # Terminus-2 asks before every turn, most often right after it has read the screen.
        just_seen, self._just_seen = self._just_seen, False
        return just_seen or await super().is_session_alive()

    async def type(self, part: Typed) -> None:
        """Type a person's keys, without waiting for their effect.

        Raises:
            RuntimeError: tmux refuses, or has no such session any more.
        """
        self._just_seen = False
        name = self._session_name
        match part.kind:
            case "key":
                await self._tmux("send-keys", "-t", name, "--", part.text)
            case "text":
                for chunk in _chunks(part.text):
                    await self._tmux("send-keys", "-t", name, "-l", "--", chunk)
            case "paste":
                for number, chunk in enumerate(_chunks(part.text)):
                    more = ("-a",) if number else ()
                    await self._tmux("set-buffer", *more, "-b", _PASTE, "--", chunk)
                await self._tmux("paste-buffer", "-d", "-p", "-b", _PASTE, "-t", name)

    async def _tmux(self, *argv: str) -> None:
        await self._shell.tmux(argv, self._user)

    @override
    async def capture_pane(self, capture_entire: bool = False) -> str:
        command = self._tmux_capture_pane(capture_entire=capture_entire)
        result = await self._shell.exec(command, user=self._user)
        self._just_seen = result.return_code == 0
        return result.stdout or ""

    @override
    async def _send_non_blocking_keys(self, keys: list[str], min_timeout_sec: float) -> None:
        self._just_seen = False
        clock = self._link.budget
        since = clock.active()
        await self._send_keys_to_session(keys, action="non-blocking")
        await clock.sleep(max(min_timeout_sec, _REACTION_SEC) - (clock.active() - since))


def _chunks(text: str) -> Iterator[str]:
    for start in range(0, len(text), _CHUNK_CHARS):
        yield text[start : start + _CHUNK_CHARS]
