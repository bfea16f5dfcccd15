"""Compares the merged settings with the right ones, types included."""

import json
import sys
from pathlib import Path

EXPECTED = {
    "server": {"host": "shop.example.com", "port": 8443, "debug": True, "title": "Shop = Café",
               "Title": "capital", "workers": 2},
    "cache": {"enabled": False, "size": 64},
    "limits": {"burst": -5, "rate": "fast", "code": "0012", "empty": "", "quoted": "", "phase": "on/off"},
}


def typed(value):
    """Tells true from 1, and 1 from 1.0, which compare equal in Python."""
    if isinstance(value, dict):
        return {key: typed(item) for key, item in value.items()}
    return type(value).__name__, value


actual = json.loads(Path("/app/effective.json").read_text(encoding="utf-8"))
if typed(actual) != typed(EXPECTED):
    sys.exit(f"wrong settings: {actual}")
