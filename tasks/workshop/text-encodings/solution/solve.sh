#!/bin/bash
set -euo pipefail
python3 - <<'PY'
from pathlib import Path


def decode(path, data):
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return data.decode("utf-16")
    if data.startswith(b"\xef\xbb\xbf"):
        return data.decode("utf-8-sig")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return data.decode("cp437" if path.parent.name == "dos" else "cp1252")
    while not text.isascii():
        try:
            text = text.encode("cp1252").decode("utf-8")
        except UnicodeError:
            break
    return text


for path in Path("/app/texts").rglob("*.txt"):
    text = decode(path, path.read_bytes()).replace("\r\n", "\n").replace("\r", "\n")
    path.write_bytes((text.rstrip("\n") + "\n").encode() if text else b"")
PY
