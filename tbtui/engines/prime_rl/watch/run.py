"""Watches a run of Prime-RL's to its end, or until cancelled."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

from tbtui.engines.prime_rl.watch.layout import SourceDirectory, SourceError
from tbtui.engines.prime_rl.watch.recorder import Recorder
from tbtui.engines.prime_rl.watch.savepoint import Savepoint, SavepointError
from tbtui.engines.prime_rl.watch.server import ServerMetrics, ServerMetricsError
from tbtui.engines.prime_rl.watch.watcher import Watcher
from tbtui.journal.commands import RunEnd
from tbtui.journal.rundir import RunDirectory, RunDirectoryError
from tbtui.journal.writer import JournalError

POLL_SEC = 0.25
MEASURE_SEC = 5.0
SAVEPOINT = "watch.json"

BAD_INPUT = (SourceError, SavepointError, ServerMetricsError, RunDirectoryError)
"""Errors that are found before anything is watched; the message is one line for a person."""


@dataclass(frozen=True, slots=True)
class WatchOptions:
    once: bool = False
    """Read what is there and leave."""
    stall_sec: float = 120.0
    """Tell why nothing goes forward after so long."""
    server_urls: tuple[str, ...] = ()
    """Of vLLM, for its `/metrics`."""


@dataclass(frozen=True, slots=True)
class PreparedWatch:
    source: SourceDirectory
    directory: RunDirectory
    savepoint: Savepoint
    options: WatchOptions
    server: ServerMetrics | None
    continues: bool
    """There is a journal already."""


def prepare_watch(path: Path, into: Path | None, options: WatchOptions) -> PreparedWatch:
    """Find what is to be watched and where its journal goes: `into`, or a directory of the watched
    one's name under `runs`.

    Raises:
        SourceError: `path` is no run of Prime-RL's.
        SavepointError: `into` holds something else.
        ServerMetricsError: a URL, or the package to read the numbers with, is missing.
        RunDirectoryError: `into` can't be used.
    """
    source = SourceDirectory.open(path)
    if options.once and source.empty:
        raise SourceError(f"{path}: nothing is there yet; leave --once out to wait for it")
    server = ServerMetrics(options.server_urls) if options.server_urls else None
    into = into or Path("runs") / source.path.name
    if into.resolve().is_relative_to(source.path):
        raise RunDirectoryError(f"{into}: lies in the watched directory; give another --into")
    saved = into / SAVEPOINT
    continues = (into / "run.db").is_file()
    if continues and not saved.exists():
        raise RunDirectoryError(f"{into}: holds a run of its own; give another --into")
    # A watcher that was killed early left its position and no journal.
    directory = RunDirectory(into.resolve()) if saved.exists() else RunDirectory.create(into)
    savepoint = Savepoint.load(saved, source.path)
    savepoint.save(saved)
    return PreparedWatch(source, directory, savepoint, options, server, continues)


async def watch(prepared: PreparedWatch) -> RunEnd:
    """Follow the run; cancelled, it leaves the journal open for the next watcher. Never raises:
    this is the one place that turns a failure into an end.
    """
    options = prepared.options
    try:
        with Recorder(prepared.directory, continues=prepared.continues) as recorder:
            watcher = Watcher(
                prepared.source,
                prepared.directory,
                recorder,
                prepared.savepoint,
                options.stall_sec,
                crash_settles_sec=0.0 if options.once else 2.0,
            )
            try:
                async with _measuring(prepared.server, watcher):
                    return await _follow(watcher, once=options.once)
            except asyncio.CancelledError:
                watcher.leave("the watcher leaves; the run goes on without it")
                return RunEnd("interrupted", "the run goes on; watch it again to go on reading")
            finally:
                watcher.close()
    except (JournalError, OSError) as error:
        return RunEnd("failed", str(error))


async def _follow(watcher: Watcher, *, once: bool) -> RunEnd:
    while watcher.end is None:
        more = watcher.poll()
        if not more and once:
            # What was written while the first round read.
            watcher.poll()
            break
        await asyncio.sleep(0 if more else POLL_SEC)
    return watcher.end or RunEnd("finished", "read to the end of what is there")


@contextlib.asynccontextmanager
async def _measuring(server: ServerMetrics | None, watcher: Watcher) -> AsyncIterator[None]:
    if server is None:
        yield
        return
    watcher.measured(await asyncio.to_thread(server.measure))
    task = asyncio.create_task(_measure(server, watcher))
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def _measure(server: ServerMetrics, watcher: Watcher) -> None:
    while True:
        await asyncio.sleep(MEASURE_SEC)
        watcher.measured(await asyncio.to_thread(server.measure))
