"""collect.py DATA PIPE SKIPPED: converts all files in DATA and writes the readings into PIPE."""

import subprocess
import sys
from pathlib import Path

data, pipe, skipped = map(Path, sys.argv[1:])
here = Path(__file__).parent
count = 0
with open(pipe, "w") as target:
    for path in sorted(data.glob("*.csv")):
        converter = subprocess.Popen(
            [sys.executable, str(here / "convert.py"), str(path)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        converter.wait()
        target.write(converter.stdout.read())
        count += len(converter.stderr.read().splitlines())
skipped.write_text(str(count))
