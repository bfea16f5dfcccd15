"""Compares the table, byte for byte, with the right one."""

import sys
from pathlib import Path

actual = Path("/app/revenue.csv").read_bytes()
expected = Path("/tests/expected.csv").read_bytes()
if actual != expected:
    wanted, found = expected.decode().splitlines(), actual.decode(errors="replace").splitlines()
    pairs = ((a, b) for a, b in zip(found, wanted) if a != b)
    sys.exit(f"{len(found)} lines of {len(wanted)}; first difference: {next(pairs, 'in length')}")
