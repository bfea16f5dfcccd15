"""Prime-RL's launcher as a process of ours that leaves nothing behind, and why it ended."""

from __future__ import annotations

import asyncio
import re
import signal
import sys
from asyncio.subprocess import PIPE, STDOUT, Process
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tbtui.engines.prime_rl.watch.part_logs import read_line

_GUARD = Path(__file__).with_name("guard.py")


class GuardedProcess:
    """A program behind `guard.py`, which outlives this process until it has cleaned up."""

    def __init__(self, process: Process) -> None:
        self._process = process

    @classmethod
    async def start(
        cls, program: Sequence[str], *, cwd: Path, environment: Mapping[str, str], log: Path
    ) -> GuardedProcess:
        """Start the program; `log` takes what it prints, after what is there.

        Raises:
            OSError: it can't be started, or the log can't be written.
        """
        with log.open("ab") as output:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                # Import nothing from the directory that it runs in.
                "-P",
                str(_GUARD),
                *program,
                stdin=PIPE,
                stdout=output,
                stderr=STDOUT,
                cwd=cwd,
                env=dict(environment),
                # Ctrl-c is for tbtui alone, which ends the program in the right order.
                start_new_session=True,
            )
        return cls(process)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def status(self) -> int | None:
        """Its exit status, 128 + n where signal n ended it; None while it runs."""
        status = self._process.returncode
        return 128 - status if status is not None and status < 0 else status

    async def wait(self) -> int:
        """Wait until nothing of it is left. Returns its exit status."""
        await self._process.wait()
        assert self.status is not None
        return self.status

    async def stop(self) -> int:
        """End it, with stronger and stronger signals, and wait until nothing is left."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        return await self.wait()


_MOST_BYTES = 1 << 18
_SIGNALS = 128
"""An exit status over this is a signal's number added to it."""
_SUBMITTED = re.compile(r"Submitted batch job (\d+)")
_LOGS, _LINES = 6, 8
"""Logs whose last lines are shown, those that were written last, and how many of each."""


@dataclass(frozen=True, slots=True)
class Failure:
    reason: str
    """One line."""
    lines: tuple[str, ...]
    """Each with the name of its log in front."""


def failure_of(log: Path, attempt: Path | None, status: int) -> Failure:
    """How a launcher ended with `status`, and the ends of the logs it left.

    Args:
        log: what it printed.
        attempt: the directory of its parts' logs, if there is one.
    """
    how = f"ended with status {status}" if status < _SIGNALS else f"fell to {_signal(status)}"
    logs = [] if attempt is None else sorted(attempt.rglob("*.log"), key=_written)[-_LOGS:]
    lines = [
        f"{path.name}: {line}" for path in (*logs, log) for line in _last_lines(path)[-_LINES:]
    ]
    return Failure(
        f"Prime-RL's launcher {how}: {last_line(log) or 'its log is empty'}", tuple(lines)
    )


def submitted_job(log: Path) -> str | None:
    """The number of the SLURM job that the launcher submitted."""
    found = [match[1] for line in _last_lines(log) if (match := _SUBMITTED.search(line))]
    return found[-1] if found else None


def last_line(log: Path) -> str:
    """The launcher's last line; empty: none yet."""
    return next((line.strip() for line in reversed(_last_lines(log))), "")


def _signal(status: int) -> str:
    try:
        return signal.Signals(status - _SIGNALS).name
    except ValueError:
        return f"signal {status - _SIGNALS}"


def _written(path: Path) -> float:
    return path.stat().st_mtime


def _last_lines(path: Path) -> list[str]:
    return [text for line in _tail(path) if (text := read_line(line)).strip()]


def _tail(path: Path) -> list[bytes]:
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - _MOST_BYTES))
            return file.read().splitlines()
    except FileNotFoundError:
        return []
