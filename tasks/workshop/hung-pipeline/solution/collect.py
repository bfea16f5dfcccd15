"""collect.py DATA PIPE SKIPPED: converts all files in DATA and writes the readings into PIPE."""

import subprocess
import sys
from pathlib import Path

data, pipe, skipped = map(Path, sys.argv[1:])
here = Path(__file__).parent
count = 0
with open(pipe, "w") as target:
    for path in sorted(data.glob("*.csv")):
        # Reading both pipes at once: waiting first stops for ever as soon as one of them is full.
        done = subprocess.run(
            [sys.executable, str(here / "convert.py"), str(path)],
            capture_output=True, text=True,
        )
        target.write(done.stdout)
        count += len(done.stderr.splitlines())
    # Before the pipe is closed, so that the number is there when the reader sees the end.
    skipped.write_text(str(count))
