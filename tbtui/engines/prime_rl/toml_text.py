"""TOML as Prime-RL reads it, from and to nested tables."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tbtui.config import ConfigError


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

    What a terminal might obey is escaped: it is printed, too, and texts come from tasks and files.

    Raises:
        TypeError: a value that TOML hasn't got, such as None.
    """
    import tomli_w

    text = tomli_w.dumps(document)
    # Outside strings all is printable, and inside every character may be escaped.
    return "".join(c if c.isprintable() or c == "\n" else f"\\U{ord(c):08x}" for c in text)
