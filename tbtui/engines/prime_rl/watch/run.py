"""Watches a Prime-RL run to its end, or until cancelled."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tbtui.engines.prime_rl.control import PrimeRlControl
from tbtui.engines.prime_rl.watch.recorder import Savepoint, TraceRecorder
from tbtui.engines.prime_rl.watch.server import ServerMetrics
from tbtui.engines.prime_rl.watch.source import SourceDirectory, read_configuration, trials_dir
from tbtui.engines.prime_rl.watch.watcher import Watcher
from tbtui.errors import UserError
from tbtui.journal.commands import RunEnd
from tbtui.journal.database import JournalError
from tbtui.journal.rundir import RunDirectory, RunDirectoryError

POLL_SEC = 0.25
MEASURE_SEC = 5.0
SAVEPOINT = "watch.json"


@dataclass(frozen=True, slots=True)
class WatchOptions:
    once: bool = False
    """Read what is there and exit."""
    stall_sec: float = 120.0
    """Warn when there has been no progress for so long."""
    server_urls: tuple[str, ...] = ()
    """vLLM servers whose `/metrics` are read."""
    trials_dir: Path | None = None
    """Directory of the plugin's environment servers; None: what the configuration says."""
    settings: dict[str, Any] | None = None
    """Settings with which the run continues; None: those that it began with."""


@dataclass(frozen=True, slots=True)
class PreparedWatch:
    source: SourceDirectory
    directory: RunDirectory
    savepoint: Savepoint
    options: WatchOptions
    server: ServerMetrics | None
    continues: bool
    """There is a journal already."""

    def trials_dir(self) -> Path | None:
        """Directory of the plugin's environment servers, if it is known yet."""
        if self.options.trials_dir is not None:
            return self.options.trials_dir
        found = read_configuration(self.source)
        return trials_dir(found[0]) if found is not None else None


def prepare_watch(path: Path, into: Path | None, options: WatchOptions) -> PreparedWatch:
    """Find the run to watch and the place of its journal: `into`, or its name under `runs`.

    Raises:
        UserError: `path` is no Prime-RL run.
        UserError: `into` holds something else.
        ServerMetricsError: a URL, or the package to read the numbers with, is missing.
        RunDirectoryError: `into` can't be used.
    """
    source = SourceDirectory.open(path)
    if options.once and source.empty:
        raise UserError(f"{path}: nothing is there yet; leave --once out to wait for it")
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
    """Follow the run; cancelled, leave the journal open for the next watcher. Never raises.

    This is the one place that turns a failure into an end.
    """
    try:
        with TraceRecorder(prepared.directory, continues=prepared.continues) as recorder:
            return await follow(prepared, recorder)
    except asyncio.CancelledError:
        return RunEnd("interrupted", "the run goes on; watch it again to go on reading")
    except (JournalError, RunDirectoryError, OSError) as error:
        return RunEnd("failed", str(error))


async def follow(
    prepared: PreparedWatch,
    recorder: TraceRecorder,
    control: PrimeRlControl | None = None,
    *,
    ends_it: bool = False,
) -> RunEnd:
    """Follow the run to its end. Other writers of the journal share `recorder`.

    Args:
        control: carries commands out meanwhile.
        ends_it: cancelling this ends the run, and the trials that still run then.

    Raises:
        JournalError: the journal can't be written.
        OSError: a file is there and can't be read.
    """
    options, trials = prepared.options, prepared.trials_dir()
    _link_recordings(prepared.directory, trials)
    watcher = Watcher(
        prepared.source,
        prepared.directory,
        recorder,
        prepared.savepoint,
        options.stall_sec,
        trials_dir=trials,
        settings=options.settings,
    )
    try:
        async with contextlib.AsyncExitStack() as stack:
            await stack.enter_async_context(_measuring(prepared.server, watcher))
            if control is not None:
                await stack.enter_async_context(control.serving(watcher.commands))
            return await _to_the_end(watcher, once=options.once)
    except asyncio.CancelledError:
        if ends_it:
            watcher.abandon()
        else:
            watcher.leave("the watcher leaves; the run goes on without it")
        raise
    finally:
        watcher.close()


def _link_recordings(directory: RunDirectory, trials_dir: Path | None) -> None:
    """Link the plugin's trials into the journal's directory, where they are elsewhere."""
    if trials_dir is None or directory.trials.is_symlink():
        return
    recordings = RunDirectory(trials_dir).trials
    if recordings.resolve() != directory.trials.resolve():
        with contextlib.suppress(OSError):  # there is something in it already
            directory.trials.rmdir()
            directory.trials.symlink_to(recordings.absolute())


async def _to_the_end(watcher: Watcher, *, once: bool) -> RunEnd:
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
