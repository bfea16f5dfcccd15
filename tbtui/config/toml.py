"""TOML files: what a file holds, a config that explains itself, and any other tables as text."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tbtui.config.settings import GROUPS, RunConfig
from tbtui.config.table import Setting, settings
from tbtui.config.values import ConfigError, to_json
from tbtui.paths import read_plain

TOO_DEEP = "it is nested too deeply"


def read_toml(path: Path) -> dict[str, Any]:
    """The tables of a file.

    Raises:
        ConfigError: it can't be read, or is no TOML.
    """
    import tomllib  # few runs have a file

    try:
        return tomllib.loads(read_plain(path.resolve()).decode())
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8 text") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: {error}") from error
    except ValueError as error:  # Python reads no longer ones
        raise ConfigError(f"{path}: a number in it has too many digits") from error
    except RecursionError as error:
        raise ConfigError(f"{path}: {TOO_DEEP}") from error


def toml_text(tables: Mapping[str, Any]) -> str:
    """A file with these tables: their values in the order given, and then the tables below them.

    Raises:
        TypeError: a value that TOML can't express, such as None.
    """
    import tomli_w

    return _printable(tomli_w.dumps(tables))


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
            text = f"# {name} =" if value is None else f"{name} = {_inline(value)}"
            lines.append(f"{text}  # {_comment(settings()[name])}")
    return _printable("\n".join(lines[1:]) + "\n")


def _comment(setting: Setting) -> str:
    unit = f" [{setting.about.unit}]" if setting.about.unit else ""
    return f"{setting.about.meaning}{unit}"


def _inline(value: Any) -> str:
    """A value on one line; tomli-w has none but its own layout for lists and tables."""
    match value:
        case dict():
            entries = (f"{_inline(name)} = {_inline(each)}" for name, each in value.items())
            return "{" + ", ".join(entries) + "}"
        case list():
            return "[" + ", ".join(map(_inline, value)) + "]"
        case _:
            # Every text, number and boolean of JSON's is TOML's too.
            return json.dumps(value, ensure_ascii=False)


def _printable(text: str) -> str:
    """With escapes for what a terminal might obey and TOML may refuse: settings are printed, too,
    and texts come from tasks and files.

    Outside strings all is printable, and inside every character may be escaped.
    """
    return "".join(c if c.isprintable() or c == "\n" else f"\\U{ord(c):08x}" for c in text)
