"""Terminus-2's tmux session, gated and with fewer round trips.

Every command that Terminus-2 runs in the sandbox costs a process there, or a request to a cloud.
The session sends the same keys and reads the same screens as Harbor's, but it is started by one
command instead of three, and is not asked whether it lives right after it has shown its screen.
"""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Iterator, Sequence
from typing import override

from harbor.agents.terminus_2.tmux_session import TmuxSession
from harbor.environments.base import BaseEnvironment, ExecResult

from tbtui.journal.typed import Typed
from tbtui.rollout.environments.abilities import Terminals
from tbtui.rollout.held_sandbox import HeldSandbox
from tbtui.rollout.link import TrialLink
from tbtui.rollout.tmux_control import TmuxControl, plain_tmux

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
        """A tmux client can stay in the sandbox."""
        return self._terminals is not None

    async def open_client(self, session: str, user: str | int | None) -> None:
        """From now on keys and screens go by a tmux client that stays."""
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

    @override
    async def is_session_alive(self) -> bool:
        # Terminus-2 asks before every turn, most often right after it has read the screen.
        just_seen, self._just_seen = self._just_seen, False
        return just_seen or await super().is_session_alive()

    async def type(self, part: Typed) -> None:
        """What a person types; nothing is waited for.

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
