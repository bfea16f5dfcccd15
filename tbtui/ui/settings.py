"""`app.toml`: what a person wants of the app on this machine, whatever is run."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Literal

import msgspec

FASTEST = 10
"""Frames a second at most; also what is normal."""
SLOW = 2
"""Frames a second over a slow link."""

Notify = Literal["desktop", "bell", "none"]


class AppSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A person's settings."""

    notify: Notify = "desktop"
    """When the run needs somebody: a notification of the terminal (OSC 9) and its bell, the bell
    alone, or nothing."""
    fps: str | int = "normal"
    """Frames a second: `low` for slow links, `normal`, or a number from 1 to 10."""

    def __post_init__(self) -> None:
        frames_per_second(str(self.fps))


def frames_per_second(text: str) -> int:
    """`low`, `normal`, or a number. Raises `ValueError`: one line that says what may be."""
    match text:
        case "low":
            return SLOW
        case "normal":
            return FASTEST
    if text.isdecimal() and 1 <= int(text) <= FASTEST:
        return int(text)
    raise ValueError(f"fps: {text!r} is none of low, normal and the numbers from 1 to {FASTEST}")


def read_settings(path: Path) -> tuple[AppSettings, tuple[str, ...]]:
    """A person's settings, and a line about why the file can't be used; then they are the app's."""
    try:
        return msgspec.convert(tomllib.loads(path.read_text("utf-8")), AppSettings), ()
    except FileNotFoundError:
        return AppSettings(), ()
    except OSError as error:
        problem = f"can't be read ({error.strerror})"
    except UnicodeDecodeError:
        problem = "not UTF-8 text"
    except tomllib.TOMLDecodeError as error:
        problem = f"not TOML ({error})"
    except msgspec.ValidationError as error:
        problem = str(error)
    return AppSettings(), (f"{path.name}: {problem}",)
