"""A tmux client that stays: keys and screens without a process for each.

One `tmux -C attach-session` per trial reads tmux commands from a socket and writes their output to
it (control mode: https://github.com/tmux/tmux/wiki/Control-Mode). It shows what `tmux COMMAND`
would have printed, and an error as that command's exit code. The pane keeps its size and the
client is sent none of its output.
"""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import Sequence
from typing import override

from harbor.environments.base import ExecResult

from tbtui.rollout.environments.abilities import Terminals
from tbtui.rollout.environments.commands import direct_argv

MAX_REPLY_BYTES = 8 << 20
"""What the output of a command in the sandbox is kept of at most, too."""
# Run twice after an answer was lost, these would type twice.
_ONCE = frozenset(["send-keys", "set-buffer", "paste-buffer"])
_COMMANDS = frozenset(["send-keys", "capture-pane", "has-session", "set-option"])
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
        """Not known to have ended."""
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
