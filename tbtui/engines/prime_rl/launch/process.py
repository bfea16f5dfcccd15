"""Prime-RL's launcher as a process of ours, that leaves nothing when it or we end."""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import PIPE, STDOUT, Process
from collections.abc import Mapping, Sequence
from pathlib import Path

from tbtui.engines.prime_rl.launch import guard


class GuardedProcess:
    """A program behind `guard.py`, which outlives us for as long as it takes to clean up."""

    def __init__(self, process: Process) -> None:
        self._process = process

    @classmethod
    async def start(
        cls, program: Sequence[str], *, cwd: Path, environment: Mapping[str, str], log: Path
    ) -> GuardedProcess:
        """`log` takes what it prints, after what is there.

        Raises:
            OSError: it can't be started, or the log can't be written.
        """
        with log.open("ab") as output:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                # Nothing of the directory that it runs in is imported.
                "-P",
                str(Path(guard.__file__)),
                *program,
                stdin=PIPE,
                stdout=output,
                stderr=STDOUT,
                cwd=cwd,
                env=dict(environment),
                # Our terminal's ctrl-c is for us: we ask it to end, in the right order.
                start_new_session=True,
            )
        return cls(process)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def status(self) -> int | None:
        """None while it runs; else its exit status, 128 + n where signal n ended it."""
        status = self._process.returncode
        return 128 - status if status is not None and status < 0 else status

    async def wait(self) -> int:
        """Until nothing of it is left; its exit status."""
        await self._process.wait()
        assert self.status is not None
        return self.status

    async def stop(self) -> int:
        """Ask it to end, more and more firmly, and wait until nothing is left."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        return await self.wait()
