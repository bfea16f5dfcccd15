"""The fleet: live and recent runs of this machine and of others, a row each, and how to act on one.

Other machines are asked through `ssh HOST tbtui fleet --json --here`, so what a row says is what
tbtui there says, and nothing but ssh is needed.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shlex
import signal
import sys
import time
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from tbtui.config import RunConfig
from tbtui.errors import UserError
from tbtui.journal.rundir import RunDirectory
from tbtui.paths import config_dir
from tbtui.view.runs import RunList, RunSummary, decode_row

FILE = "fleet.toml"
_HOST_SEC = 30.0
_MOST_ROWS = 1000
_MOST_BYTES = 16 << 20
_HOST = re.compile(r"(?P<name>(?:[\w.-]+@)?[\w.][\w.-]*)(?::(?P<port>\d{1,5}))?")


class FleetError(UserError):
    """The fleet's file, or a host, is not what it should be."""


class _File(msgspec.Struct, forbid_unknown_fields=True):
    hosts: list[str] = []
    command: str = "tbtui"
    """What starts tbtui on another machine."""
    recent_hours: float = 24.0


@dataclass(frozen=True, slots=True)
class Host:
    """Another machine."""

    text: str
    name: str
    port: str | None

    def ssh(self, command: str, *options: str) -> list[str]:
        """The arguments that run a command there."""
        port = ["-p", self.port] if self.port else []
        return ["ssh", *options, *port, "--", self.name, command]


@dataclass(frozen=True, slots=True)
class Fleet:
    """Which runs are looked at."""

    here: RunList
    hosts: tuple[Host, ...] = ()
    command: str = "tbtui"
    recent_sec: float = 24 * 3600.0
    """Runs that are over are listed for so long."""


def make_fleet(
    logs_dirs: Sequence[Path], hosts: Sequence[str], recent_hours: float | None, *, here: bool
) -> Fleet:
    """The fleet as `fleet.toml` in the user's configuration has it, and as was asked for.

    Args:
        hosts: besides those of the file.
        here: look at this machine alone.

    Raises:
        FleetError: the file can't be read, or a host is none.
    """
    file = _read_file(config_dir() / FILE)
    named = [] if here else list(dict.fromkeys([*file.hosts, *hosts]))
    hours = file.recent_hours if recent_hours is None else recent_hours
    return Fleet(
        RunList(logs_dirs or (RunConfig().logs_dir,), outlook=True, elsewhere=True),
        tuple(_host(text) for text in named),
        file.command,
        hours * 3600.0,
    )


def _read_file(path: Path) -> _File:
    try:
        return msgspec.convert(tomllib.loads(path.read_text()), _File)
    except FileNotFoundError:
        return _File()
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise FleetError(f"{path}: {error}") from error


def _host(text: str) -> Host:
    found = _HOST.fullmatch(text.removeprefix("ssh://"))
    if found is None:
        raise FleetError(f"{text!r} is no host: write it as HOST, USER@HOST or HOST:PORT")
    return Host(text, found["name"], found["port"])


def local_rows(fleet: Fleet) -> list[RunSummary]:
    """A row for each live or recent run of this machine."""
    return fleet.here.read(time.time() - fleet.recent_sec)


class _Answer(msgspec.Struct):
    runs: list[msgspec.Raw]


async def all_rows(fleet: Fleet) -> list[RunSummary]:
    """Rows of this machine and of all hosts, which are asked at once; never fails for one host."""
    here, *others = await asyncio.gather(
        asyncio.to_thread(local_rows, fleet), *(_rows_of(fleet, host) for host in fleet.hosts)
    )
    return [*here, *(row for rows in others for row in rows)]


async def _rows_of(fleet: Fleet, host: Host) -> list[RunSummary]:
    hours = fleet.recent_sec / 3600
    command = f"{fleet.command} fleet --json --here --recent {hours:g}"
    options = ("-o", "BatchMode=yes", "-o", "ConnectTimeout=10")
    try:
        status, out, err = await _output(host.ssh(command, *options), _HOST_SEC)
        if status != 0:
            last = err.strip().splitlines()[-1:] or [f"ssh ended with status {status}"]
            return [_unreachable(host, last[0])]
        answer = msgspec.json.decode(out, type=_Answer)
    except TimeoutError:
        return [_unreachable(host, f"no answer within {_HOST_SEC:g} s")]
    except (OSError, RecursionError, msgspec.DecodeError, UnicodeError) as error:
        return [_unreachable(host, f"no answer of tbtui's: {error}")]
    return [_remote_row(host, row) for row in answer.runs[:_MOST_ROWS]]


def _remote_row(host: Host, text: msgspec.Raw) -> RunSummary:
    try:
        return msgspec.structs.replace(decode_row(text), host=host.text)
    except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
        return _unreachable(host, f"a row that is none of tbtui's: {error}")


def _unreachable(host: Host, reason: str) -> RunSummary:
    return RunSummary(status="unreachable", host=host.text, reason=reason)


async def _output(command: Sequence[str], limit_sec: float) -> tuple[int, str, str]:
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(limit_sec):
            out, err = await asyncio.gather(_read(process.stdout), _read(process.stderr))
            await process.wait()
        if max(len(out), len(err)) > _MOST_BYTES:
            raise OSError(f"more than {_MOST_BYTES >> 20} MiB")
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.communicate()  # the rest, lest the pipes outlive it
    return process.returncode or 0, out.decode(errors="replace"), err.decode(errors="replace")


async def _read(stream: asyncio.StreamReader | None) -> bytes:
    """What comes, and no more than is kept of it: the rest is read and dropped."""
    assert stream is not None
    read = bytearray()
    while part := await stream.read(1 << 16):
        if len(read) <= _MOST_BYTES:
            read += part
    return bytes(read)


def command_for(fleet: Fleet, row: RunSummary, *words: str, terminal: bool = False) -> list[str]:
    """The command that does something with the row's run, where it is: here, or through ssh.

    `words`: of tbtui's command line, before the run.
    """
    if not row.host:
        return [sys.executable, "-m", "tbtui", *words, row.path]
    (host,) = [each for each in fleet.hosts if each.text == row.host]
    options = ("-t",) if terminal else ("-o", "BatchMode=yes", "-o", "ConnectTimeout=10")
    return host.ssh(f"{fleet.command} {shlex.join([*words, row.path])}", *options)


async def act(fleet: Fleet, row: RunSummary, *words: str) -> str:
    """Do something with a run (`ctl run pause`, ...); returns what was said, one line."""
    try:
        _, out, err = await _output(command_for(fleet, row, *words), _HOST_SEC)
    except (OSError, TimeoutError) as error:
        return f"{row.name}: {error or 'no answer'}"
    said = (out.strip() or err.strip() or "done").splitlines()[-1]
    return f"{row.name}: {said}"


async def local_copy(fleet: Fleet, row: RunSummary, place: Path) -> RunDirectory:
    """The run's directory; of another machine's run a copy of its journal, for charts.

    Raises:
        FleetError: it can't be had.
    """
    if not row.host:
        return row.directory
    host = re.sub(r"[^\w.-]", "-", row.host)
    target = place / f"{host}-{row.directory.name}"
    target.mkdir(parents=True, exist_ok=True)
    command = command_for(fleet, row, "runs", "journal")
    with (target / "run.partial").open("wb") as file:
        process = await asyncio.create_subprocess_exec(
            *command, stdin=asyncio.subprocess.DEVNULL, stdout=file, stderr=asyncio.subprocess.PIPE
        )
        _, err = await process.communicate()
    if process.returncode:
        said = err.decode(errors="replace").strip().splitlines()[-1:] or ["no journal"]
        raise FleetError(f"{row.host}: {said[0]}")
    (target / "run.partial").replace(target / "run.db")
    return RunDirectory(target)
