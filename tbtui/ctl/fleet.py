"""The fleet: live and recent runs of this machine and of others, a row each, and how to act on one.

Other machines are asked through `ssh HOST tbtui fleet --json --here`, so what a row says is what
tbtui there says, and nothing but ssh is needed.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import shlex
import sys
import time
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from tbtui.config import RunConfig
from tbtui.ctl.reading import Row, RunReading, read_run, run_row, unreadable_row
from tbtui.ctl.targets import all_live_runs, past_runs
from tbtui.errors import UserError
from tbtui.journal.database import JournalError
from tbtui.journal.rundir import RunDirectory, RunDirectoryError, journal_stands
from tbtui.paths import config_dir
from tbtui.view.curves import held_out_rates, training_rates

FILE = "fleet.toml"
SILENT_SEC = 90.0
"""A live run measures its own processes every few seconds: one that has written nothing for so long
hangs, is stopped, or can't write."""
_HOST_SEC = 30.0
_POINTS = 60
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

    logs_dirs: tuple[Path, ...]
    hosts: tuple[Host, ...] = ()
    command: str = "tbtui"
    recent_sec: float = 24 * 3600.0
    """Runs that are over are listed for so long."""
    known: dict[RunDirectory, tuple[Any, Row]] = field(default_factory=dict)
    """What was read of runs that are over."""


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
        tuple(logs_dirs) or (RunConfig().logs_dir,),
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


def local_rows(fleet: Fleet) -> list[Row]:
    """A row for each live or recent run of this machine, the live ones first."""
    live = {run.path: run for where in fleet.logs_dirs for run in all_live_runs(where)}
    rows = [_row(run) for run in live.values()]
    since = time.time() - fleet.recent_sec
    for where in fleet.logs_dirs:
        for run in past_runs(where):
            if run.path in live or run.database.stat().st_mtime < since:
                continue
            stands = journal_stands(run)
            if run not in fleet.known or fleet.known[run][0] != stands:
                fleet.known[run] = stands, _row(run)
            rows.append(fleet.known[run][1])
    return rows


def _row(directory: RunDirectory) -> Row:
    try:
        with read_run(directory) as run:
            return fleet_row(run)
    except (JournalError, RunDirectoryError, OSError) as error:
        return _EMPTY | unreadable_row(directory, str(error))


_EMPTY: Row = {
    "host": "",
    "curve": [],
    "curve_of": None,
    "cost_usd": None,
    "gpus": [],
    "alarm": None,
    "silent": False,
    "started_at": None,
}


def fleet_row(run: RunReading) -> Row:
    """`ctl`'s row of a run, with its curve, cost, GPUs, last alarm, and whether it is silent."""
    state, row = run.state, run_row(run)
    held_out, training = held_out_rates(state), training_rates(state)
    curve = held_out if len(held_out) > 2 else training or held_out
    gpus = [
        {
            "host": measured.host,
            "index": gpu.index,
            "utilisation": gpu.utilisation,
            "memory_used_mib": gpu.memory_used_mib,
        }
        for measured in state.gpus.values()
        for gpu in measured.gpus
    ]
    silent = row["silent_sec"] is not None and row["silent_sec"] > SILENT_SEC
    return {
        **_EMPTY,
        **row,
        "curve": [round(value, 4) for _, value in curve[-_POINTS:]],
        "curve_of": "held out" if curve is held_out else "reward",
        "cost_usd": state.totals.get("cost/total_usd"),
        "gpus": gpus if run.live else [],
        "alarm": state.alarms[-1].text if state.alarms else None,
        "silent": silent,
        "started_at": state.started_at,
    }


async def all_rows(fleet: Fleet) -> list[Row]:
    """Rows of this machine and of all hosts, which are asked at once; never fails for one host."""
    here, *others = await asyncio.gather(
        asyncio.to_thread(local_rows, fleet), *(_rows_of(fleet, host) for host in fleet.hosts)
    )
    return [*here, *(row for rows in others for row in rows)]


async def _rows_of(fleet: Fleet, host: Host) -> list[Row]:
    hours = fleet.recent_sec / 3600
    command = f"{fleet.command} fleet --json --here --recent {hours:g}"
    options = ("-o", "BatchMode=yes", "-o", "ConnectTimeout=10")
    try:
        status, out, err = await _output(host.ssh(command, *options), _HOST_SEC)
        if status != 0:
            last = err.strip().splitlines()[-1:] or [f"ssh ended with status {status}"]
            return [_unreachable(host, last[0])]
        rows = json.loads(out)["runs"]
        return [{**_EMPTY, **row, "host": host.text} for row in rows if isinstance(row, dict)]
    except TimeoutError:
        return [_unreachable(host, f"no answer within {_HOST_SEC:g} s")]
    except (OSError, ValueError, KeyError, TypeError) as error:
        return [_unreachable(host, f"no answer of tbtui's: {error}")]


def _unreachable(host: Host, reason: str) -> Row:
    nothing = dict.fromkeys(unreadable_row(RunDirectory(Path()), ""))
    return {**_EMPTY, **nothing, "host": host.text, "status": "unreachable", "reason": reason}


async def _output(command: Sequence[str], limit_sec: float) -> tuple[int, str, str]:
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(limit_sec):
            out, err = await process.communicate()
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    return process.returncode or 0, out.decode(errors="replace"), err.decode(errors="replace")


def command_for(fleet: Fleet, row: Row, *words: str, terminal: bool = False) -> list[str]:
    """The command that does something with the row's run, where it is: here, or through ssh.

    `words`: of tbtui's command line, before the run.
    """
    directory = str(row["directory"])
    if not row["host"]:
        return [sys.executable, "-m", "tbtui", *words, directory]
    (host,) = [each for each in fleet.hosts if each.text == row["host"]]
    options = ("-t",) if terminal else ("-o", "BatchMode=yes", "-o", "ConnectTimeout=10")
    return host.ssh(f"{fleet.command} {shlex.join([*words, directory])}", *options)


async def act(fleet: Fleet, row: Row, *words: str) -> str:
    """Do something with a run (`ctl run pause`, ...); returns what was said, one line."""
    try:
        _, out, err = await _output(command_for(fleet, row, *words), _HOST_SEC)
    except (OSError, TimeoutError) as error:
        return f"{row['run']}: {error or 'no answer'}"
    said = (out.strip() or err.strip() or "done").splitlines()[-1]
    return f"{row['run']}: {said}"


async def local_copy(fleet: Fleet, row: Row, place: Path) -> RunDirectory:
    """The run's directory; of another machine's run a copy of its journal, for charts.

    Raises:
        FleetError: it can't be had.
    """
    if not row["host"]:
        return RunDirectory(Path(row["directory"]))
    host = re.sub(r"[^\w.-]", "-", str(row["host"]))
    target = place / f"{host}-{Path(row['directory']).name}"
    target.mkdir(parents=True, exist_ok=True)
    command = command_for(fleet, row, "runs", "journal")
    with (target / "run.partial").open("wb") as file:
        process = await asyncio.create_subprocess_exec(
            *command, stdin=asyncio.subprocess.DEVNULL, stdout=file, stderr=asyncio.subprocess.PIPE
        )
        _, err = await process.communicate()
    if process.returncode:
        said = err.decode(errors="replace").strip().splitlines()[-1:] or ["no journal"]
        raise FleetError(f"{row['host']}: {said[0]}")
    (target / "run.partial").replace(target / "run.db")
    return RunDirectory(target)
