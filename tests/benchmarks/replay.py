"""How long a large recorded run takes to open, to go about in, and to search.

`python tests/benchmarks/replay.py [--trials 10000] [--runs 300] [--recording-mb 50]` writes a run
of real events, many runs and a long recording under a temporary directory, and prints a table
beside the targets.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shutil
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "ui"))

from synthetic import write_run
from test_recording_seek import BEGAN, write_cast

from tbtui.journal.reader import JournalReader
from tbtui.journal.rundir import RunDirectory
from tbtui.journal.search import search
from tbtui.ui.runs import ReplayedRun
from tbtui.ui.terminal.recordings import ReadLimit, RecordingReader
from tbtui.view.reading import state_at_end
from tbtui.view.runs import find_runs, summarise

_NAME = re.compile(r'"[a-z]\d{3}(?=["-])')
"""What the names of a synthetic run's groups and trials begin with."""

Row = tuple[str, tuple[float, float], float]
"""What, seconds on the wall and of processors, seconds on the wall at most."""

_WORDS = ("the", "file", "is", "there", "so", "copy", "move", "list", "verify", "output")


def multiply(run: RunDirectory, trials: int) -> None:
    """Write the run's middle over and over, with other trials, until it has so many of them."""
    db = sqlite3.connect(run.database)
    rows = db.execute("SELECT seq, time, kind, trial, body FROM events ORDER BY seq").fetchall()
    first = next(i for i, row in enumerate(rows) if row[2] == "step_started")
    last = next(i for i in range(len(rows) - 1, 0, -1) if rows[i][2] == "step_finished")
    head, middle, tail = rows[:first], rows[first : last + 1], rows[last + 1 :]
    names = {row[3] for row in middle if row[3]}
    length = middle[-1][1] - middle[0][1]
    db.execute("DELETE FROM events")
    rng = random.Random(0)

    def written() -> Iterator[tuple[float, str, str | None, str]]:
        for _, at, kind, trial, body in head:
            yield at, kind, trial, body
        rounds = -(-trials // len(names))
        for turn in range(rounds):
            for _, at, kind, trial, body in middle:
                text = _NAME.sub(rf"\g<0>x{turn}", body)
                if kind == "turn_observed":
                    data = json.loads(text)
                    data["observation"] += " ".join(rng.choices(_WORDS, k=150))
                    text = json.dumps(data)
                mine = _NAME.sub(rf"\g<0>x{turn}", f'"{trial}')[1:] if trial else None
                yield at + turn * length, kind, mine, text
        for _, at, kind, trial, body in tail:
            yield at + (rounds - 1) * length, kind, trial, body

    db.executemany("INSERT INTO events (time, kind, trial, body) VALUES (?, ?, ?, ?)", written())
    db.commit()
    db.close()


def seconds(work: Callable[[], object]) -> tuple[float, float]:
    """On the wall, and of this process's processors: apart where others keep the machine busy."""
    began, busy = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - began, time.process_time() - busy


def measure(directory: Path, given: argparse.Namespace) -> Iterator[Row]:
    run = write_run(directory / "large" / "run", 200.0).run
    multiply(run, given.trials)
    reader = JournalReader(run)
    print(f"{reader.last_seq():,} events, {run.database.stat().st_size / 1e6:.0f} MB", flush=True)
    reader.read(0, 500)  # the events' classes are built at their first use
    yield "a replay opens at its start", seconds(lambda: at_share(ReplayedRun(run), 0.0)), 1.0
    replay = ReplayedRun(run)
    yield "the same at its end", seconds(lambda: at_share(replay, 1.0)), 1.0
    yield "from there back to the middle", seconds(lambda: at_share(replay, 0.5)), 1.0
    yield "and a little further", seconds(lambda: at_share(replay, 0.501)), 0.1
    yield "and a little back", seconds(lambda: at_share(replay, 0.5005)), 1.0
    yield "the state at the end, for the console", seconds(lambda: state_at_end(reader)), 1.0
    for text in ("nowhere to be found", "No such file"):
        yield f"search: {text!r}", seconds(lambda text=text: list(search(run, text))), 1.0
    yield from measure_runs(directory / "many", run, given.runs)
    yield from measure_recording(directory / "recording.cast", given.recording_mb * 1_000_000)


def at_share(replay: ReplayedRun, share: float) -> None:
    clock = replay.playback
    clock.go_to(clock.start + share * (clock.end - clock.start))
    replay.follow(60.0)
    while replay.behind:
        replay.follow(60.0)


def measure_runs(directory: Path, run: RunDirectory, count: int) -> Iterator[Row]:
    small = write_run(directory / "run-0000", 60.0).run
    for number in range(1, count):
        (directory / f"run-{number:04d}").mkdir()
        shutil.copy(small.database, directory / f"run-{number:04d}" / "run.db")
    yield (
        f"{count} runs",
        seconds(lambda: [summarise(each) for each in find_runs([directory])]),
        1.0,
    )
    yield "the large one's line", seconds(lambda: summarise(run)), 0.1


def measure_recording(path: Path, size: int) -> Iterator[Row]:
    end = write_cast(path, size)
    recording = RecordingReader(path)

    def seek(share: float) -> None:
        while recording.advance(ReadLimit(BEGAN + share * end, BEGAN)):
            pass

    seek(0.0)
    for share in (0.99, 0.5, 0.2, 0.8):
        yield f"{size // 10**6} MB recording, to {share:.0%}", seconds(lambda s=share: seek(s)), 0.1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=10_000)
    parser.add_argument("--runs", type=int, default=300)
    parser.add_argument("--recording-mb", type=int, default=50)
    parser.add_argument("--keep", type=Path, help="write there and leave it")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        for what, (wall, busy), most in measure(given.keep or Path(temporary), given):
            verdict = "ok" if wall <= most else "TOO SLOW"
            print(
                f"{what:<40} {wall * 1000:7.1f} ms ({busy * 1000:7.1f} of processors)"
                f"  <= {most * 1000:4.0f}  {verdict}"
            )
    print("load average " + " ".join(f"{each:.1f}" for each in os.getloadavg()))


if __name__ == "__main__":
    main()
