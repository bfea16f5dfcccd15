"""The figures that the app is to reach, in one table: `python tests/benchmarks/cockpit.py`.

On a real pty, two cores and nothing else to do. It takes some eight minutes; `--only starts,keys`
measures a few. The load is `ui_load.py`'s.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from tests import session
from tests.benchmarks.start_up import TBTUI, bytecode_in, start_measures, textual_seconds
from tests.benchmarks.ui_load import Load, drive, open_terminal
from tests.terminal import Terminal

Row = tuple[str, float, str, float | None]
"""What, how much, its unit, and the most that it may be; None: it is reported only."""

STALLS = 3
STALL_SEC = 10.0


def starts() -> Iterator[Row]:
    """The app opened by each of its commands, and what else one waits for; medians."""
    with start_measures() as measures:
        for name, measure, repeats, most in measures:
            measure()
            yield name, statistics.median(measure() for _ in range(repeats)), "s", most


def load() -> Iterator[Row]:
    measured = drive(Load(seconds=30))
    yield "64 live trials: share of a core", measured.cpu_share, "", 0.30
    yield "  loop lag, p99", measured.lag_p99_ms, "ms", 30
    yield "  output", measured.output_kb_per_sec, "kB/s", 300
    yield "  (tokens of the load)", measured.tokens_per_sec, "a second", None
    many = drive(Load(trials=256, seconds=30))
    yield "256 live trials: share of a core", many.cpu_share, "", 0.30
    yield "  loop lag, p99", many.lag_p99_ms, "ms", 30
    low = drive(Load(seconds=30, fps="low"))
    yield "  output, --fps low", low.output_kb_per_sec, "kB/s", 60
    large = drive(Load(seconds=30, size=(300, 100)))
    yield "  output, 300 x 100", large.output_kb_per_sec, "kB/s", 300
    yield "  share of a core, 300 x 100", large.cpu_share, "", 0.30


def keys() -> Iterator[Row]:
    """From a key's press until its answer has come, with 64 trials live, and with 256."""
    textual_seconds()
    yield "import textual.app, a yardstick", textual_seconds(), "s", None
    for trials in (64, 256):
        measured = drive(Load(trials=trials, seconds=90), keys=True)
        latencies = sorted(measured.keys_ms)
        answered = f"{trials} live: a key is answered, p50 of {len(latencies)}"
        yield answered, statistics.median(latencies), "ms", None
        yield "  p99", latencies[int(len(latencies) * 0.99)], "ms", 100
        yield "  memory", measured.rss_mb, "MB", 150


def hour() -> Iterator[Row]:
    """An hour of the run in two minutes."""
    measured = drive(Load(seconds=120, speed=30))
    yield "memory after an hour", measured.rss_mb, "MB", 150
    yield "  growth in its last third", measured.rss_growth * 100, "%", None
    yield "  minutes by the run's clock", measured.run_minutes, "", None
    yield "  events", measured.events, "", None


def stalled() -> Iterator[Row]:
    """Trials that the embedded engine finishes while its terminal is read, and while not."""
    with tempfile.TemporaryDirectory() as logs:
        settings = [f"logs_dir={logs}", "max_steps=1000", "eval_every=1000"]
        with open_terminal([*TBTUI, "run", *settings], (200, 60)) as terminal:
            windows = list(_windows(terminal))
            terminal.type("\x03\x03")
            while terminal.read(30) is not None:
                pass
        (database,) = Path(logs).glob("*/run.db")
        with contextlib.closing(sqlite3.connect(database)) as journal:
            ended = [
                at
                for (at,) in journal.execute(
                    "SELECT time FROM events WHERE kind = 'trial_finished' ORDER BY seq"
                )
            ]
    for name, read in (("read", True), ("stalled", False)):
        spans = [(since, until) for since, until, was_read in windows if was_read is read]
        count = sum(since <= at < until for at in ended for since, until in spans)
        rate = count / sum(until - since for since, until in spans)
        yield f"trials while the terminal is {name}", rate, "a second", None


def _windows(terminal: Terminal) -> Iterator[tuple[float, float, bool]]:
    """From, until, and whether the terminal was read; one kind after the other."""
    _read_for(terminal, 15.0)
    for _ in range(STALLS):
        since = time.time()
        _read_for(terminal, STALL_SEC)
        until = time.time()
        yield since, until, True
        time.sleep(STALL_SEC)
        yield until, time.time(), False
        # What had been waiting to be painted is not the training's time.
        _read_for(terminal, 1.0)


def _read_for(terminal: Terminal, seconds: float) -> None:
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        if terminal.read(left) is None:
            raise SystemExit("the app has gone")


MEASURES: dict[str, Callable[[], Iterator[Row]]] = {
    "starts": starts,
    "load": load,
    "keys": keys,
    "hour": hour,
    "stalled": stalled,
}


def main() -> None:
    session.begin()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default=",".join(MEASURES), help=f"of {', '.join(MEASURES)}")
    chosen = parser.parse_args().only.split(",")
    if unknown := set(chosen) - set(MEASURES):
        parser.error(f"--only: {', '.join(sorted(unknown))}: none of {', '.join(MEASURES)}")
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    missed = 0
    with tempfile.TemporaryDirectory() as compiled, bytecode_in(compiled):
        for name in chosen:
            for what, measured, unit, most in MEASURES[name]():
                verdict = ""
                if most is not None:
                    missed += measured > most
                    verdict = f"<= {most:g}  {'ok' if measured <= most else 'MISSED'}"
                print(f"{what:<40}{measured:>10,.2f} {unit:<10}{verdict}", flush=True)
    print(f"load average {os.getloadavg()[0]:.1f}; replay and search: tests/benchmarks/replay.py")
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
