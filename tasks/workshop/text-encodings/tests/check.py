"""Compares every file under /app/texts, byte for byte, with the right one."""

import json
import sys
from pathlib import Path

expected = json.loads(Path("/tests/expected.json").read_text())
wanted = {name: text.encode() for name, text in expected["text"].items()}
wanted |= {name: bytes.fromhex(data) for name, data in expected["untouched"].items()}
root = Path("/app/texts")
actual = {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file()}
if set(actual) != set(wanted):
    sys.exit(f"files missing or added: {sorted(set(actual) ^ set(wanted))}")
if wrong := [name for name in sorted(wanted) if actual[name] != wanted[name]]:
    sys.exit(f"wrong contents: {wrong}")
