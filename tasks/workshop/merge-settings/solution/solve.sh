#!/bin/bash
set -euo pipefail
python3 - <<'PY'
import json
import re
from pathlib import Path

root = Path("/app/settings")
merged = {}


def convert(text):
    if text.lower() in ("yes", "on", "true"):
        return True
    if text.lower() in ("no", "off", "false"):
        return False
    if re.fullmatch(r"-?[0-9]+", text):
        return int(text)
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] == '"' else text


for name in (root / "ORDER").read_text().split():
    for line in (root / name).read_text(encoding="utf-8").splitlines():
        line = line.strip()
        if not line or line[0] in "#;":
            continue
        if line.startswith("["):
            section = merged.setdefault(line[1:-1], {})
            continue
        key, value = (part.strip() for part in line.split("=", 1))
        if value == "!unset":
            section.pop(key, None)
        else:
            section[key] = convert(value)
text = json.dumps({name: keys for name, keys in merged.items() if keys}, indent=2)
Path("/app/effective.json").write_text(text)
PY
