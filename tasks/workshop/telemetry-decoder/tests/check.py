"""Decodes hidden files and files that are no telemetry."""

import json
import math
import subprocess
import sys
import tempfile
from pathlib import Path


def run(path):
    return subprocess.run(["/app/decode", str(path)], capture_output=True, timeout=10)


def same(a, b):
    """Equal as JSON, numbers up to rounding."""
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, (int, float)) and isinstance(b, (int, float)):
        return math.isclose(a, b, abs_tol=1e-6)
    return a == b


for path in sorted(Path("/tests/hidden").glob("*.tlm")):
    expected = json.loads(path.with_suffix(".json").read_text())
    # Under a name that gives nothing away.
    with tempfile.NamedTemporaryFile(suffix=".bin") as copy:
        copy.write(path.read_bytes())
        copy.flush()
        done = run(copy.name)
    if done.returncode:
        sys.exit(f"{path.name}: exit {done.returncode}: {done.stderr[-300:]!r}")
    if not same(json.loads(done.stdout), expected):
        sys.exit(f"{path.name}: decoded wrongly")
for data in (b"", b"TLM", b"TLM\x1a\x02", b"TLM\x1a\x02\x05abc", b"\x7fELF\x02\x01a", b"tlm\x1a\x02\x01a"):
    with tempfile.NamedTemporaryFile() as file:
        file.write(data)
        file.flush()
        done = run(file.name)
    if done.returncode != 1 or done.stdout:
        sys.exit(f"{data!r} is no telemetry file: exit {done.returncode}, {done.stdout!r}")
