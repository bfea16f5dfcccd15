"""`tbtui prime-rl watch`: journals a Prime-RL run, and prints it in lines."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from tbtui.command_line import EXIT, say
from tbtui.errors import UserError

if TYPE_CHECKING:
    from tbtui.engines.prime_rl.watch.run import PreparedWatch
    from tbtui.journal.events import Entry


def watch(
    path: Path,
    into: Path | None,
    *,
    once: bool,
    urls: Sequence[str],
    stall: float,
    as_json: bool,
    trials_dir: Path | None = None,
) -> int:
    """Follow the run in `path`; the exit status: 0 finished, 1 failed, 2 bad input,
    130 interrupted."""
    from tbtui.engines.prime_rl.watch.run import WatchOptions, prepare_watch

    try:
        options = WatchOptions(once, stall, tuple(urls), trials_dir)
        prepared = prepare_watch(path, into, options)
        status = _watch(prepared, as_json)
    except UserError as error:
        say(error)
        status = "refused"
    except BrokenPipeError:
        # The reader of our output has left; Python would complain again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status = "interrupted"
    return EXIT[status]


def _watch(prepared: PreparedWatch, as_json: bool) -> str:
    from tbtui.console import HumanLines, end_line, follow, json_line
    from tbtui.engines.host import run_headless
    from tbtui.engines.prime_rl.watch.run import watch as watch_run
    from tbtui.journal.events import RunFinished
    from tbtui.journal.reader import JournalReader

    gc.enable()
    before = 0
    if prepared.continues:
        reader = JournalReader(prepared.directory)
        before = reader.last_seq()
        reader.close()
    if not as_json:
        typer.echo(f"journal {prepared.directory.path}")
    human = HumanLines()
    last: Entry | None = None

    def lines(entry: Entry) -> Iterator[str]:
        nonlocal last
        last = entry
        return iter([json_line(entry)]) if as_json else human.lines(entry)

    end = run_headless(
        watch_run(prepared),
        lambda complete: follow(prepared.directory, complete, lines, sys.stdout, before),
    )
    if last is None or last.seq <= before or not isinstance(last.event, RunFinished):
        typer.echo(end_line(end.status, end.reason), err=as_json)
    return end.status
