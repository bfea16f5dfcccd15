"""`tbtui sweep FILE.toml`: a grid or a list of runs, some at once, and a table over seeds.

How far it is stands nowhere but in the runs' own directories: started again, after `kill -9` too,
it goes on with runs that are not over, waits for those that live, and starts the rest.

name = "rates"
at_once = 2
seeds = [0, 1, 2]

[settings]
max_steps = 15

[grid]
learning_rate = [1e-4, 2e-4]
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import json
import math
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tbtui.algorithm.evaluation import student_quantile
from tbtui.command_line import EXIT_FAILED, EXIT_INTERRUPTED
from tbtui.config import ConfigError, parse_settings
from tbtui.config.toml import read_toml
from tbtui.journal.database import JournalError
from tbtui.journal.metrics import read_series
from tbtui.journal.rundir import RunDirectory, is_live
from tbtui.paths import read_plain, replace_file
from tbtui.terminal import visible
from tbtui.view.runs import RunSummary, summarise

_LOOK_SEC = 0.5
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_MOST_RUNS = 10_000
_BEFORE_ITS_JOURNAL = {"config.toml", "trials", "checkpoints", "run.lock", "run.new", "log.txt"}
"""What a run that was killed before it began leaves."""


class _File(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    at_once: int = 1
    seeds: list[int] = msgspec.field(default_factory=lambda: [0])
    metric: str = "eval/pass_rate"
    """Whose last value the table compares."""
    settings: dict[str, Any] = {}
    grid: dict[str, list[Any]] = {}
    runs: list[dict[str, Any]] = []


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """A run of a sweep."""

    directory: RunDirectory
    point: tuple[tuple[str, Any], ...]
    """The settings in which it differs from others, the seed left out."""
    seed: int
    settings: tuple[str, ...]
    """As on a command line."""

    @property
    def output(self) -> Path:
        """What it prints; locked from before it begins until its processes have gone."""
        return self.directory.path.with_name(f"{self.directory.name}.out")


@dataclass(slots=True)
class Sweep:
    """Runs to start, and how."""

    name: str
    metric: str
    at_once: int
    runs: tuple[PlannedRun, ...]
    place: Path
    tried: set[Path] = field(default_factory=set)
    """Started, or taken up again, by this process: each once."""


def sweep(file: Path, *, table_only: bool, as_json: bool) -> int:
    """Start what is not over yet, wait for all, print the table.

    Returns the exit status: 0 all runs have finished, 1 some have not, 130 interrupted: the runs
    under way have been stopped, and the same command goes on with them.

    Raises:
        ConfigError: the file, or a setting in it, is not what it should be.
    """
    plan = read_sweep(file)
    interrupted = False
    if not table_only:
        _keep_plan(plan)
        interrupted = not _see_through(plan, quiet=as_json)
    rows = list(_rows(plan))
    if as_json:
        sys.stdout.write(json.dumps(_document(plan, rows), indent=1) + "\n")
    else:
        _print(plan, rows)
    if interrupted:
        return EXIT_INTERRUPTED
    done = all(_standing(run) == "finished" for run in plan.runs)
    return 0 if done else EXIT_FAILED


def read_sweep(path: Path) -> Sweep:
    """Read and check the file, every run's settings included. Raises `ConfigError`."""
    try:
        file = msgspec.convert(read_toml(path), _File)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{path}: {error}") from error
    if not _NAME.fullmatch(file.name):
        raise ConfigError(f"{path}: name {file.name!r}: letters, digits, dots and dashes")
    if file.at_once < 1 or not file.seeds:
        raise ConfigError(f"{path}: at_once and the number of seeds are at least 1")
    if bool(file.grid) == bool(file.runs):
        raise ConfigError(f"{path}: give a [grid], or a list of [[runs]], one of the two")
    for name in ("run_name", "seed"):
        if name in {**file.settings, **file.grid} or any(name in each for each in file.runs):
            raise ConfigError(f"{path}: {name}: the sweep sets it itself; for seeds there is seeds")
    if any(not values for values in file.grid.values()):
        raise ConfigError(f"{path}: a list of the [grid] is empty: give a value, or leave it out")
    if len(set(file.seeds)) < len(file.seeds):
        raise ConfigError(f"{path}: seeds: one is there twice, and would count twice")
    count = (len(file.runs) or math.prod(map(len, file.grid.values()))) * len(file.seeds)
    if count > _MOST_RUNS:
        raise ConfigError(f"{path}: {count:,} runs; {_MOST_RUNS:,} at most: make several sweeps")
    names = list(file.grid)
    points = file.runs or [
        dict(zip(names, values, strict=True)) for values in itertools.product(*file.grid.values())
    ]
    runs = []
    for number, point in enumerate(points, 1):
        for seed in file.seeds:
            name = f"{file.name}-{number:02d}-seed{seed}"
            settings = {**file.settings, **point, "seed": seed, "run_name": name}
            words = tuple(f"{key}={_typed(value)}" for key, value in settings.items())
            config = parse_settings(words)
            directory = RunDirectory(config.logs_dir.absolute() / name)
            runs.append(PlannedRun(directory, tuple(point.items()), seed, words))
    place = runs[0].directory.path.parent
    return Sweep(file.name, file.metric, file.at_once, tuple(runs), place)


def _typed(value: object) -> str:
    """A value of a TOML file as on a command line."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return ",".join(map(_typed, value))
    return str(value)


def _keep_plan(plan: Sweep) -> None:
    """Keep what the sweep is of beside its runs; refuse another one of the same name."""
    file = plan.place / f"{plan.name}.sweep.json"
    text = json.dumps([list(run.settings) for run in plan.runs], indent=1).encode()
    try:
        if file.is_file() and read_plain(file) != text:
            raise ConfigError(
                f"{file}: the sweep {plan.name} has begun with other runs: give another name"
            )
        replace_file(file, text)
    except OSError as error:
        raise ConfigError(f"{file}: {error.strerror}") from error


def _see_through(plan: Sweep, *, quiet: bool) -> bool:
    """Run all runs to their ends; False: a person interrupted it."""
    children: dict[PlannedRun, subprocess.Popen[bytes]] = {}
    said: dict[PlannedRun, str] = {}
    standings: dict[PlannedRun, str] = {}
    try:
        while True:
            for run, child in list(children.items()):
                if child.poll() is not None:
                    del children[run]
            # Of a thousand runs most are over: they are not read again and again.
            left = [run for run in plan.runs if standings.get(run) != "finished"]
            standings |= {run: _standing(run) for run in left}
            for run, standing in standings.items():
                words = "running" if run in children else standing
                if said.get(run) != words and words != "missing" and not quiet:
                    typer.echo(f"{run.directory.name:<28} {words}")
                    said[run] = words
            under_way = {run for run, now in standings.items() if now == "live"} | set(children)
            waiting = [
                run
                for run, now in standings.items()
                if now not in ("finished", "live")
                and run not in children
                and run.directory.path not in plan.tried
            ]
            if not under_way and not waiting:
                return True
            for run in waiting[: max(0, plan.at_once - len(under_way))]:
                plan.tried.add(run.directory.path)
                children[run] = _start(run)
            time.sleep(_LOOK_SEC)
    except KeyboardInterrupt:
        _end(children.values())
        return False


def _start(run: PlannedRun) -> subprocess.Popen[bytes]:
    """Start a run, or take it up again; it outlives this process."""
    begun = run.directory.database.is_file()
    words = ["--resume", str(run.directory.path)] if begun else list(run.settings)
    with run.output.open("ab") as output:
        with contextlib.suppress(BlockingIOError):  # what is left of one that was killed has it
            fcntl.flock(output, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not begun:
            _clear(run.directory.path)
        return subprocess.Popen(
            [sys.executable, "-m", "tbtui", "run", "--no-ui", *words],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def _clear(directory: Path) -> None:
    """Remove what a run left that was killed before it had a journal: the name would be taken."""
    if directory.is_dir() and {each.name for each in directory.iterdir()} <= _BEFORE_ITS_JOURNAL:
        shutil.rmtree(directory)


def _end(children: Collection[subprocess.Popen[bytes]]) -> None:
    for child in children:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child.pid, signal.SIGINT)
    for child in children:
        child.wait()


def _standing(run: PlannedRun) -> str:
    """As of a summary; `missing`: it has not begun."""
    if not run.directory.database.is_file():
        return "live" if _is_beginning(run) or is_live(run.directory) else "missing"
    return summarise(run.directory).standing


def _is_beginning(run: PlannedRun) -> bool:
    """A process that this sweep, or one before it, has started for the run is there."""
    try:
        with run.output.open("rb") as output:
            fcntl.flock(output, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except FileNotFoundError:
        pass
    return False


@dataclass(frozen=True, slots=True)
class SweepRow:
    """A point of the sweep, over its seeds."""

    point: Mapping[str, Any]
    values: tuple[float, ...]
    """The metric's last value of each run that has one."""
    summaries: tuple[RunSummary, ...]

    @property
    def mean(self) -> float | None:
        return statistics.fmean(self.values) if self.values else None

    @property
    def half_width(self) -> float | None:
        """Half of the mean's 95% interval over seeds (Student's t); None with fewer than two."""
        if len(self.values) < 2:
            return None
        error = statistics.stdev(self.values) / math.sqrt(len(self.values))
        return student_quantile(len(self.values) - 1) * error


def _rows(plan: Sweep) -> Iterator[SweepRow]:
    for point, group in itertools.groupby(plan.runs, key=lambda run: run.point):
        runs = [run for run in group if run.directory.database.is_file()]
        yield SweepRow(
            dict(point),
            tuple(
                value for run in runs if (value := _last(run.directory, plan.metric)) is not None
            ),
            tuple(summarise(run.directory) for run in runs),
        )


def _last(run: RunDirectory, metric: str) -> float | None:
    """The metric's last value; None: it has none, or its journal can't be read."""
    try:
        points = read_series(run, metric, "step")
    except JournalError:
        return None
    return points[-1].y if points else None


def _document(plan: Sweep, rows: Sequence[SweepRow]) -> dict[str, Any]:
    return {
        "sweep": plan.name,
        "metric": plan.metric,
        "points": [
            {
                "settings": dict(row.point),
                "values": list(row.values),
                "mean": row.mean,
                "half_width": row.half_width,
                "runs": {each.directory.name: each.standing for each in row.summaries},
            }
            for row in rows
        ],
    }


def _print(plan: Sweep, rows: Sequence[SweepRow]) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold")
    names = list(dict.fromkeys(name for row in rows for name in row.point))
    for name in names:
        table.add_column(Text(visible(name)))
    for heading in ("seeds", Text(visible(plan.metric)), "95%", "steps", "not finished"):
        table.add_column(heading, justify="right", no_wrap=True)
    best = max((row.mean for row in rows if row.mean is not None), default=None)
    for row in rows:
        mean, half = row.mean, row.half_width
        open_runs = sum(each.standing != "finished" for each in row.summaries)
        interval = "" if mean is None or half is None else f"{mean - half:.3f} to {mean + half:.3f}"
        table.add_row(
            *(Text(visible(_typed(row.point.get(name, "")))) for name in names),
            str(len(row.values)),
            "-" if mean is None else f"{mean:.3f}",
            interval,
            str(sum(each.step for each in row.summaries)),
            str(open_runs or ""),
            style="bold" if mean is not None and mean == best else "",
        )
    Console(highlight=False).print(table)
