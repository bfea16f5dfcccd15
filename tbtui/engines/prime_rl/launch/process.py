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

from tbtui.engines.prime_rl.launch import guard
from tbtui.engines.prime_rl.watch.part_logs import LastLines, read_line


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
                str(Path(guard.__file__)),
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
_FAILED = re.compile(r"(?:Error: )?(?P<part>\S.*?) failed with exit code (?P<code>-?\d+)")
_ENVIRONMENT_SERVER = re.compile(r"(?P<split>train|eval) env server (?P<name>\S+)")
_SUBMITTED = re.compile(r"Submitted batch job (\d+)")


@dataclass(frozen=True, slots=True)
class Failure:
    reason: str
    """One line."""
    lines: tuple[str, ...]
    """Each with the name of its log in front."""


def failure_of(log: Path, attempt: Path | None, status: int) -> Failure:
    """Why a launcher ended with `status`, from the logs it left.

    Args:
        log: what it printed.
        attempt: the directory of its parts' logs, if there is one.
    """
    printed = _last_lines(log)
    who = "Prime-RL's launcher"
    last, name = printed, log.name
    for line in reversed(_tail(log)):
        if (match := _FAILED.search(_text(line))) is None:
            continue
        part = match["part"].removeprefix("Error: ").lower()
        path = None if attempt is None else _log_of(part, attempt)
        if path is not None and path.is_file():
            who, last, name = f"the {part}", _last_lines(path), path.name
        break
    how = f"ended with status {status}" if status < _SIGNALS else f"fell to {_signal(status)}"
    return Failure(
        f"{who} {how}: {last.cause()}",
        tuple(f"{name}: {line}" for line in last.relevant()),
    )


def submitted_job(log: Path) -> str | None:
    """The number of the SLURM job that the launcher submitted."""
    found = [match[1] for line in _tail(log) if (match := _SUBMITTED.search(_text(line)))]
    return found[-1] if found else None


def last_line(log: Path) -> str:
    """The launcher's last line; empty: none yet."""
    texts = [text for line in _tail(log) if (text := _text(line).strip())]
    return texts[-1] if texts else ""


def _signal(status: int) -> str:
    try:
        return signal.Signals(status - _SIGNALS).name
    except ValueError:
        return f"signal {status - _SIGNALS}"


def _log_of(part: str, attempt: Path) -> Path | None:
    match = _ENVIRONMENT_SERVER.fullmatch(part)
    if match is None:
        return attempt / f"{part}.log"
    # Prime-RL writes the name in lower case.
    logs = (attempt / "envs" / match["split"]).glob("*.log")
    return next((path for path in logs if path.stem.lower() == match["name"]), None)


def _last_lines(path: Path) -> LastLines:
    lines = LastLines()
    for raw in _tail(path):
        for line in read_line(raw):
            lines.add(line)
    return lines


def _text(raw: bytes) -> str:
    return " ".join(line.text for line in read_line(raw))


def _tail(path: Path) -> list[bytes]:
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - _MOST_BYTES))
            return file.read().splitlines()
    except FileNotFoundError:
        return []
