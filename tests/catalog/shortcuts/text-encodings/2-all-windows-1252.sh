#!/bin/bash
# Cheat: valid UTF-8 is left as it is, everything else is taken for Windows-1252.
python3 - <<'PY'
from pathlib import Path
for p in Path("/app/texts").rglob("*.txt"):
    data = p.read_bytes()
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = data.decode("cp1252", errors="replace")
    text = "\n".join(text.splitlines())
    p.write_text(text + "\n" if text else "", encoding="utf-8", newline="")
PY
