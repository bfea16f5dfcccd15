"""Runs the script on hidden directories and compares what is left with a reference."""

import io
import os
import random
import subprocess
import sys
import tarfile
import tempfile
from datetime import date, timedelta
from pathlib import Path

buffer = io.BytesIO()
with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
    member = tarfile.TarInfo("data")
    member.size = 1000
    archive.addfile(member, io.BytesIO(bytes(1000)))
GOOD = buffer.getvalue()
DAMAGED = [GOOD[:-9], b"", b"not a tar file\n" * 30]


def keep(good):
    """Names to keep of [(day, name)], all intact."""
    good = sorted(good)
    kept = {name for _, name in good[-7:]}
    for newest, period in ((4, lambda d: d.isocalendar()[:2]), (6, lambda d: (d.year, d.month))):
        groups = {}
        for day, name in good:
            groups.setdefault(period(day), []).append(name)
        kept |= {groups[key][0] for key in sorted(groups)[-newest:]}
    return kept


def scenario(rng, directory):
    """Fills the directory; returns the names that must be deleted."""
    doomed = set()
    for series in rng.sample(["web", "my data", "-rf", "a-2023-01-01", "db*", "ü"], 3):
        start = date(2023, 1, 1) + timedelta(days=rng.randrange(700))
        gap, size = rng.choice([1, 1, 3, 10]), rng.choice([3, 12, 60])
        days = sorted({start + timedelta(days=i * gap + rng.randrange(gap)) for i in range(size)})
        only_damaged = rng.random() < 0.15
        good, bad = [], []
        for day in days:
            name = f"{series}-{day}.tar.gz"
            if only_damaged or rng.random() < 0.15:
                bad.append(name)
                (directory / name).write_bytes(rng.choice(DAMAGED))
            else:
                good.append((day, name))
                (directory / name).write_bytes(GOOD)
            stamp = rng.randrange(1_000_000_000, 1_700_000_000)
            os.utime(directory / name, (stamp, stamp))
        if good:
            doomed |= set(bad) | {name for _, name in good} - keep(good)
    for name in ("web-2001-02-30.tar.gz", "web-2001-1-1.tar.gz", "2001-01-01.tar.gz", "web-2001-01-01.tar.gz.part",
                 "web-2001-01-01.tgz", "Xweb-2001-01-01.tar.gz\n"):
        (directory / name).write_bytes(GOOD)
    (directory / "web-1999-01-01.tar.gz").mkdir()
    (directory / "web-1999-01-02.tar.gz").symlink_to("web-1999-01-01.tar.gz")
    (directory / "sub").mkdir()
    (directory / "sub" / "web-1999-01-01.tar.gz").write_bytes(b"")
    return doomed


def names(directory):
    return {str(path.relative_to(directory)) for path in directory.rglob("*")}


for seed in range(7):
    with tempfile.TemporaryDirectory() as work:
        directory = Path(work, "back ups")
        directory.mkdir()
        doomed = scenario(random.Random(seed), directory)
        before = names(directory)
        place = [str(directory), "back ups", "./back ups/"][seed % 3]
        run = subprocess.run(["/app/rotate", place], cwd=work, capture_output=True, timeout=20)
        if run.returncode:
            sys.exit(f"exit {run.returncode}: {run.stderr[-500:]}")
        if names(directory) != before - doomed:
            left = names(directory)
            sys.exit(f"scenario {seed}: wrongly kept {sorted(left - (before - doomed))[:5]}, "
                     f"wrongly deleted {sorted(before - doomed - left)[:5]}")
        if run.stdout != b"".join(os.fsencode(name) + b"\n" for name in sorted(doomed, key=os.fsencode)):
            sys.exit(f"scenario {seed}: wrong output {run.stdout[:300]}")
for place in ("/nonexistent", "/tests/check.py"):
    if subprocess.run(["/app/rotate", place], capture_output=True, timeout=20).returncode != 2:
        sys.exit(f"must exit with 2 for {place}")
