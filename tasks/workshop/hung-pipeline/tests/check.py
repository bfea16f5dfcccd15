"""Runs the job on hidden data: alone, again, after a kill, and two at a time."""

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

RUN = "/app/nightly/run"


def make(directory, seed, files, rows, bad):
    """Fills a directory with readings; returns the report that they must give."""
    rng, sums, skipped = random.Random(seed), Counter(), 0
    directory.mkdir()
    for number in range(files):
        lines = []
        for _ in range(rows):
            meter, watt_hours = f"m{rng.randrange(30)}", rng.randrange(1, 90000)
            sums[meter] += watt_hours
            lines.append(f"2024-05-01,{meter},{watt_hours / 1000}")
        for _ in range(bad):
            lines.insert(rng.randrange(len(lines) + 1), rng.choice(["", "x" * 40, "a,b,c", "1,2"]))
            skipped += 1
        (directory / f"{number} x.csv").write_text("\n".join(lines) + "\n")
    (directory / "notes.txt").write_text("not a reading\n")
    return "".join(f"{m} {sums[m]}\n" for m in sorted(sums)) + f"total {sum(sums.values())}\nskipped {skipped}\n"


def start(data, output):
    return subprocess.Popen([RUN, str(data), str(output)], stdout=subprocess.DEVNULL,
                            stderr=subprocess.PIPE, start_new_session=True)


def await_converter(session):
    """Returns when a convert.py runs in the session (or may have been missed)."""
    deadline = time.monotonic() + 3
    while time.monotonic() < deadline:
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                if b"convert.py" in (entry / "cmdline").read_bytes() and os.getsid(int(entry.name)) == session:
                    return
            except OSError:
                continue  # it ended while we looked


def finish(process, what):
    try:
        process.wait(timeout=10)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        sys.exit(f"{what}: still running after 10 seconds")


def expect(data, output, report, what):
    process = start(data, output)
    finish(process, what)
    if process.returncode or output.read_text() != report:
        sys.exit(f"{what}: exit {process.returncode}, report {output.read_text()[-200:]!r}")


with tempfile.TemporaryDirectory() as name:
    work = Path(name)
    given = Path("/app/report.txt").read_text()
    expected = Path("/tests/report.txt").read_text()
    if given != expected:
        sys.exit("/app/report.txt is wrong")
    big = make(work / "big", 1, 3, 4000, 1500)
    small = make(work / "small data", 2, 4, 30, 3)
    empty = make(work / "empty", 3, 0, 0, 0)
    expect(work / "big", work / "1", big, "much data")
    expect(work / "small data", work / "2", small, "another run")
    expect(work / "empty", work / "3", empty, "no data")
    for delay in ("0.05", "0.25"):
        killed = start(work / "big", work / "killed")
        subprocess.run(["sleep", delay])
        os.killpg(killed.pid, signal.SIGKILL)
        killed.wait()
        expect(work / "small data", work / "4", small, f"after a kill at {delay} s")
    together = [start(work / d, work / o) for d, o in (("big", "5"), ("small data", "6"), ("big", "7"))]
    for process in together:
        finish(process, "three at a time")
    if [(work / o).read_text() for o in "567"] != [big, small, big]:
        sys.exit("runs at the same time disturb one another")
    # A run must wait while another one, stopped here in mid-work, has the lock.
    long = make(work / "long", 4, 12, 200, 10)
    first = start(work / "long", work / "8")
    await_converter(first.pid)
    os.killpg(first.pid, signal.SIGSTOP)
    second = start(work / "small data", work / "9")
    try:
        second.wait(timeout=1)
        waited = False
    except subprocess.TimeoutExpired:
        waited = True
    os.killpg(first.pid, signal.SIGCONT)
    finish(first, "first of two")
    finish(second, "second of two")
    if not waited or (work / "8").read_text() != long or (work / "9").read_text() != small:
        sys.exit("the second run did not wait for the first")
    wrong = start(work / "nowhere", work / "10")
    finish(wrong, "no directory")
    if wrong.returncode != 1 or not wrong.stderr.read().strip():
        sys.exit("a missing directory must be refused")
