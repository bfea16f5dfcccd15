"""The whole config as a TOML file that explains itself."""

from __future__ import annotations

import json
from typing import Any

from tbtui.config.settings import GROUPS, RunConfig
from tbtui.config.table import Setting, settings
from tbtui.config.values import to_json


def to_toml(config: RunConfig) -> str:
    """Every setting in force with its unit and meaning; those without a value as comments.

    Read back, it gives the same settings, and the same ones count as asked for but for defaults
    that were spelled out.
    """
    values = to_json(config)
    lines = []
    for heading, names in GROUPS.items():
        lines += ["", f"# {heading}"]
        for name in names:
            value = values[name]
            text = f"# {name} =" if value is None else f"{name} = {_toml(value)}"
            lines.append(f"{text}  # {_comment(settings()[name])}")
    return "\n".join(lines[1:]) + "\n"


def _comment(setting: Setting) -> str:
    unit = f" [{setting.about.unit}]" if setting.about.unit else ""
    return f"{setting.about.meaning}{unit}"


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{toml_string(k)} = {_toml(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    # Every JSON number and boolean is also TOML.
    return toml_string(value) if isinstance(value, str) else json.dumps(value)


def toml_string(text: str) -> str:
    """As TOML; in ASCII escapes what a terminal might obey, and TOML may refuse."""
    quoted = json.dumps(text, ensure_ascii=False)
    return "".join(each if each.isprintable() else f"\\U{ord(each):08x}" for each in quoted)
