"""Compares the report with the true figures (computed once from all three log files)."""

import json
import sys
from pathlib import Path

report = json.loads(Path("/app/report.json").read_text())
expected = json.loads(Path("/tests/expected.json").read_text())
wrong = [key for key in expected if report.get(key) != expected[key]]
if wrong or set(report) != set(expected):
    sys.exit(f"wrong: {wrong}, unexpected keys: {sorted(set(report) - set(expected))}")
