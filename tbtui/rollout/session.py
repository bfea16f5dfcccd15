"""Terminus-2's tmux session, gated and with fewer round trips.

Every command that Terminus-2 runs in the sandbox costs a process there, or a request to a cloud.
The session sends the same keys and reads the same screens as Harbor's, but it is started by one
command instead of three, and is not asked whether it lives right after it has shown its screen.
"""

from __future__ import annotations

import asyncio
from typing import override

from harbor.agents.terminus_2.tmux_session import TmuxSession
from harbor.environments.base import BaseEnvironment, ExecResult

from tbtui.rollout.held_sandbox import HeldSandbox
from tbtui.rollout.link import TrialLink

EXEC_SEC = 120.0
"""Sending keys and reading a screen take milliseconds; after this long the terminal is stuck."""
_HISTORY_LINES = 10_000_000
"""As Harbor sets it. Terminus-2's pane exists by then and keeps tmux's default."""
_NO_TMUX = 93


class TerminalStuckError(Exception):
    """tmux does not answer."""


class GatedExec:
    """What a `TmuxSession` needs of a sandbox; waits while the trial is frozen."""

    def __init__(self, environment: BaseEnvironment, link: TrialLink, sandbox: HeldSandbox) -> None:
        self._environment = environment
        self._link = link
        self._sandbox = sandbox
        self.session_id = environment.session_id
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
        work = self._environment.exec(command=command, user=user, timeout_sec=timeout_sec)
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
        result = await self._shell.exec(
            f"command -v tmux >/dev/null || exit {_NO_TMUX}; {self._tmux_start_session}"
            f" && {{ tmux set-option -g history-limit {_HISTORY_LINES} || true; }}",
            user=self._user,
        )
        if result.return_code == _NO_TMUX:
            await super().start()
        elif result.return_code != 0:
            raise RuntimeError(f"Failed to start tmux session. Error: {result.stderr}")
        self._shell.bounded = True

    @override
    async def is_session_alive(self) -> bool:
        # Terminus-2 asks before every turn, most often right after it has read the screen.
        just_seen, self._just_seen = self._just_seen, False
        return just_seen or await super().is_session_alive()

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
        await clock.sleep(min_timeout_sec - (clock.active() - since))
