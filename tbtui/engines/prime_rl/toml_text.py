"""TOML as Prime-RL reads it, from and to nested tables."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from datetime import date, datetime, time
from pathlib import Path
from typing import Any

from tbtui.config import ConfigError

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


def read_toml(path: Path) -> dict[str, Any]:
    """The tables of a file.

    Raises:
        ConfigError: it can't be read, or is no TOML.
    """
    import tomllib

    try:
        with path.open("rb") as file:
            return tomllib.load(file)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8 text") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: {error}") from error


def toml_text(document: Mapping[str, Any]) -> str:
    """The file, its values in the order given and its tables after them.

    Raises:
        TypeError: a value that TOML hasn't got, such as None.
    """
    return "\n".join(_lines(document, ())).lstrip("\n") + "\n"


def _lines(table: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[str]:
    for key, value in table.items():
        if not (isinstance(value, Mapping) or _is_list_of_tables(value)):
            yield f"{_key(key)} = {_value(value)}"
    for key, value in table.items():
        inner = (*path, _key(key))
        if isinstance(value, Mapping):
            # A header is needed where the table has values of its own, or is there at all.
            if not value or not all(map(_is_nested, value.values())):
                yield f"\n[{'.'.join(inner)}]"
            yield from _lines(value, inner)
        elif _is_list_of_tables(value):
            for each in value:
                yield f"\n[[{'.'.join(inner)}]]"
                yield from _lines(each, inner)


def _is_nested(value: Any) -> bool:
    return isinstance(value, Mapping) or _is_list_of_tables(value)


def _is_list_of_tables(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(v, Mapping) for v in value)


def _key(key: str) -> str:
    return key if _BARE_KEY.fullmatch(key) else _string(key)


def _string(text: str) -> str:
    # JSON's escapes are TOML's; but JSON leaves DEL as it is, and escapes what is beyond 16 bits in
    # two halves where it has to be ASCII.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _value(value: Any) -> str:
    match value:
        case bool():
            return str(value).lower()
        case int() | float():
            return repr(value)
        case str():
            return _string(value)
        case datetime() | date() | time():
            return value.isoformat()
        case list() | tuple():
            return "[" + ", ".join(map(_value, value)) + "]"
        case Mapping():
            entries = ", ".join(f"{_key(key)} = {_value(each)}" for key, each in value.items())
            return "{ " + entries + " }" if entries else "{}"
        case _:
            raise TypeError(f"TOML has no {type(value).__name__}")
