"""A sandbox that hangs on demand."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

from tbtui.rollout.environments.sandbox import SandboxEnvironment

RELEASE = "release"
"""A file in the trial's directory that ends every hang."""
HANGING = f"{__name__}:HangingEnvironment"


class HangingEnvironment(SandboxEnvironment):
    """`hang`: the method that never returns. `deaf`: not even when it is cancelled.

    `exec` hangs for commands that contain `at`; `stop` first ends the box.
    """

    def __init__(
        self, *args: Any, hang: str = "", deaf: bool = False, at: str = "", **kwargs: Any
    ) -> None:
        self._hang = hang
        self._deaf = deaf
        self._at = at
        self._hangs = False
        super().__init__(*args, **kwargs)

    async def _maybe(self, method: str) -> None:
        if method != self._hang:
            return
        while not (self.trial_paths.trial_dir / RELEASE).exists():
            try:
                await asyncio.sleep(0.02)
            except asyncio.CancelledError:
                if not self._deaf:
                    raise

    async def start(self, force_build: bool) -> None:
        await self._maybe("start")
        await super().start(force_build)

    async def exec(self, command: str, *args: Any, **kwargs: Any) -> Any:
        if self._hang == "exec" and (self._hangs or self._at in command):
            self._hangs = True  # and it never answers anything again
            await self._maybe("exec")
        return await super().exec(command, *args, **kwargs)

    async def open_program(self, *args: Any, **kwargs: Any) -> socket.socket:
        if self._hang != "exec":
            return await super().open_program(*args, **kwargs)
        ours, theirs = socket.socketpair()
        ours.close()  # without a client that stays, each command is run by `exec`
        return theirs

    async def download_dir(self, source_dir: str, target_dir: Any) -> None:
        await self._maybe("download_dir")
        await super().download_dir(source_dir, target_dir)

    async def upload_dir(self, source_dir: Any, target_dir: str) -> None:
        await self._maybe("upload_dir")
        await super().upload_dir(source_dir, target_dir)

    async def freeze(self) -> None:
        await self._maybe("freeze")
        await super().freeze()

    async def stop(self, delete: bool) -> None:
        await super().stop(delete)
        await self._maybe("stop")
