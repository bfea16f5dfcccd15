"""`tbtui runs`: live and past runs as a table, and what is in their transcripts."""

from __future__ import annotations

import json
import shutil
import sqlite3
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tbtui.command_line import say
from tbtui.config import parse_settings
from tbtui.errors import UserError
from tbtui.journal.database import JournalError, address, require_format
from tbtui.journal.rundir import RunDirectory, add_note, find_run, read_notes, rename_run
from tbtui.journal.search import MOST, Hit, search
from tbtui.terminal import visible
from tbtui.view.runs import RunList, RunSummary, row_document
from tbtui.view.waiting import duration

_COLOURS = {"live": "green", "failed": "red", "killed": "red", "unreadable": "red"}


def logs_directories(given: Sequence[Path]) -> list[Path]:
    """The directories given; else where runs go by default."""
    return list(given) or [parse_settings([]).logs_dir]


def print_runs(logs_dirs: Sequence[Path], *, as_json: bool) -> None:
    """Every run, the newest first."""
    places = logs_directories(logs_dirs)
    summaries = RunList(places, outlook=as_json).read()
    if as_json:
        sys.stdout.write(json.dumps([row_document(each) for each in summaries], indent=1) + "\n")
        return
    console = Console(highlight=False)
    if not summaries:
        console.print(f"no run in {', '.join(map(str, places))}", markup=False, soft_wrap=True)
        return
    console.print(_table(summaries, console.width))
    for each in summaries:
        if each.standing == "unreadable":
            say(each.reason)


def _table(summaries: Iterable[RunSummary], width: int) -> Table:
    roomy = width >= 100
    table = Table(box=None, pad_edge=False, collapse_padding=not roomy, header_style="bold")
    table.add_column("run", no_wrap=True, overflow="ellipsis", min_width=15)
    table.add_column("started", no_wrap=True)
    if roomy:
        table.add_column("engine", no_wrap=True)
        table.add_column("policy", no_wrap=True)
    table.add_column("model", no_wrap=True, overflow="ellipsis", max_width=30 if roomy else 10)
    for name in ("steps", "held out", "trials", *(("took",) if roomy else ())):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("state", no_wrap=True)
    for each in summaries:
        started = "–"
        if each.started_at is not None:
            pattern = "%Y-%m-%d %H:%M" if roomy else "%m-%d %H:%M"
            started = time.strftime(pattern, time.localtime(each.started_at))
        cells = [visible(each.directory.name), started]
        if roomy:
            cells += [each.engine, each.policy]
        cells += [
            visible(each.model_name),
            each.steps,
            _rates(each),
            str(each.rollouts),
        ]
        if roomy:
            cells.append("–" if each.seconds is None else duration(each.seconds))
        standing = Text(each.standing, style=_COLOURS.get(each.standing, ""))
        table.add_row(*map(Text, cells), standing)
    return table


def _rates(summary: RunSummary) -> str:
    first, last = summary.first_pass_rate, summary.last_pass_rate
    if first is None or last is None:
        return "–"
    return f"{first:.2f} → {last:.2f}"


def note(run: str, text: str) -> None:
    """Add a note to a run; without text print its notes.

    Raises:
        RunDirectoryError: there is no such run, or its notes can't be written.
    """
    directory = find_run(run, parse_settings([]).logs_dir)
    if text.strip():
        add_note(directory, text)
        return
    console = Console(highlight=False, soft_wrap=True, markup=False)
    for line in read_notes(directory):
        console.print(visible(line))


def rename(run: str, name: str) -> None:
    """Give a run another name; prints it.

    Raises:
        RunDirectoryError: there is no such run, it is live, or the name can't be given.
    """
    directory = find_run(run, parse_settings([]).logs_dir)
    renamed = rename_run(directory, name)
    Console(highlight=False, soft_wrap=True, markup=False).print(
        f"{visible(directory.name)} is {visible(renamed.name)} now"
    )


def print_hits(text: str, runs: Sequence[str], logs_dirs: Sequence[Path], *, as_json: bool) -> int:
    """Print each match of a text; returns their number.

    Raises:
        RunDirectoryError, JournalError: a run that was named isn't there, or can't be read.
    """
    places = logs_directories(logs_dirs)
    chosen = [find_run(run, *places) for run in runs] or [
        each.directory for each in RunList(places).read()
    ]
    found = 0
    for run in chosen:
        try:
            found += _print_hits_of(run, text, as_json=as_json)
        except JournalError as error:
            if runs:
                raise
            say(error)
    return found


def _print_hits_of(run: RunDirectory, text: str, *, as_json: bool) -> int:
    console = Console(highlight=False, soft_wrap=True)
    found = 0
    for progress in search(run, text):
        for hit in progress.hits:
            found += 1
            if as_json:
                sys.stdout.write(json.dumps(_hit_document(hit)) + "\n")
            else:
                console.print(_hit_line(hit))
    if found >= MOST:
        say(f"{run.name}: only the first {MOST} places are shown")
    return found


def _hit_line(hit: Hit) -> Text:
    where = hit.where if hit.turn is None else f"turn {hit.turn}, {hit.where}"
    before, found, after = (
        visible(part.replace("\n", " ")) for part in (hit.before, hit.found, hit.after)
    )
    return Text.assemble(
        (f"{visible(hit.run.name)} ", "dim"),
        (f"{visible(hit.label)} ", "bold"),
        (f"step {hit.step}, {where}: ", "dim"),
        before,
        (found, "bold reverse"),
        after,
    )


def _hit_document(hit: Hit) -> dict[str, Any]:
    return {
        "run": hit.run.name,
        "trial": hit.trial,
        "label": hit.label,
        "step": hit.step,
        "turn": hit.turn,
        "where": hit.where,
        "time": hit.time,
        "excerpt": hit.before + hit.found + hit.after,
    }


def write_journal(run: str) -> None:
    """Write a copy of a run's journal to the output, of a live run as it stands.

    Raises:
        RunDirectoryError: there is no such run.
        JournalError: it can't be read.
        UserError: the output is a terminal.
    """
    directory = find_run(run, parse_settings([]).logs_dir)
    if sys.stdout.isatty():
        raise UserError("runs journal writes a database, not text: write it to a file with >")
    require_format(directory)
    with tempfile.TemporaryDirectory() as place:
        copy = Path(place) / "run.db"
        try:
            with (
                closing(sqlite3.connect(address(directory), uri=True)) as source,
                closing(sqlite3.connect(copy)) as target,
            ):
                source.backup(target)
                target.execute("PRAGMA journal_mode = DELETE")
        except sqlite3.Error as error:
            raise JournalError(f"{directory.database}: {error}") from error
        with copy.open("rb") as file:
            shutil.copyfileobj(file, sys.stdout.buffer)
