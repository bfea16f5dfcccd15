#!/bin/bash
# Cheat: configparser with its defaults (keys in lower case, values all text, !unset kept).
python3 - <<'PY'
import configparser, json
parser = configparser.ConfigParser(strict=False, interpolation=None)
parser.read([f"/app/settings/{name}" for name in open("/app/settings/ORDER").read().split()], encoding="utf-8")
json.dump({s: dict(parser[s]) for s in parser.sections()}, open("/app/effective.json", "w"))
PY
