"""Compares the list with the right one."""

import sys
from pathlib import Path

actual = Path("/app/todo.csv").read_text().splitlines()
expected = Path("/tests/expected.csv").read_text().splitlines()
if actual != expected:
    missing, extra = sorted(set(expected) - set(actual)), sorted(set(actual) - set(expected))
    sys.exit(f"missing {missing[:3]}, wrong {extra[:3]}, or in the wrong order")
