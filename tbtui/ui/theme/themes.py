"""Themes: TOML files, read one by one; a broken one is reported and the others still work."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any

import msgspec
from textual.color import Color, ColorParseError
from textual.theme import Theme

from tbtui.view.state import COLOURED_SPENDINGS


def _colour(value: str) -> str:
    try:
        color = Color.parse(value)
    except ColorParseError as error:
        raise ValueError(f"{value!r} is not a colour; write #rrggbb or ansi_blue") from error
    return color.hex if color.ansi is not None else color.hex6


_SPENDINGS = len(COLOURED_SPENDINGS)


class _Colors(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A table of colours, each of them `#rrggbb`, by name, or one of the terminal's own sixteen
    (`ansi_blue`, `ansi_default`). Held as `#RRGGBB` or `ansi_blue`."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            try:
                colour = _colour(value) if isinstance(value, str) else tuple(map(_colour, value))
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from error
            msgspec.structs.force_setattr(self, name, colour)


class Colors(_Colors, frozen=True, forbid_unknown_fields=True):
    """What each colour means; the defaults are the dark theme's."""

    background: str = "#11151c"
    surface: str = "#171d27"
    raised: str = "#202836"
    line: str = "#2b3546"
    foreground: str = "#d3dae6"
    muted: str = "#a5afc0"
    faint: str = "#8690a1"
    accent: str = "#6cb6ff"
    on_accent: str = "#0b1220"
    attention: str = "#f5b83d"
    good: str = "#6bd49a"
    bad: str = "#f2777a"
    infrastructure: str = "#c39bf5"
    frozen: str = "#7fe0ee"
    held_out: str = "#6cb6ff"
    training: str = "#8490a5"
    spending: Annotated[
        tuple[str, ...],
        msgspec.Meta(min_length=len(COLOURED_SPENDINGS), max_length=len(COLOURED_SPENDINGS)),
    ] = (
        *("#586477", "#8d6fc4", "#5f7fb0", "#6cb6ff", "#3fb8a2"),
        *("#f5b83d", "#d98bd0", "#5c6a80"),
    )
    heat: Annotated[tuple[str, ...], msgspec.Meta(min_length=2)] = (
        *("#11151c", "#2d2a45", "#5b3060", "#97395f", "#cf5548", "#f2a03d"),
    )


class TerminalColors(_Colors, frozen=True, forbid_unknown_fields=True):
    """Colours inside a trial's terminal."""

    background: str = "#0c1016"
    foreground: str = "#c6cfdc"
    ansi: Annotated[tuple[str, ...], msgspec.Meta(min_length=16, max_length=16)] = (
        *("#3b4658", "#f2777a", "#6bd49a", "#e6c07b", "#6cb6ff", "#c39bf5", "#5ccfd6"),
        *("#c6cfdc", "#5c6a80", "#ff9d9f", "#92e6b6", "#f5d99a", "#9bcdff", "#d9befa"),
        *("#8be3e8", "#f2f5fa"),
    )


class ThemeFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One `themes/*.toml`."""

    name: Annotated[str, msgspec.Meta(min_length=1, max_length=40)] = "tbtui-dark"
    dark: bool = True
    colors: Colors = Colors()
    terminal: TerminalColors = TerminalColors()

    @property
    def sixteen(self) -> bool:
        """Some colours are the terminal's own; Textual is to leave them as they are."""
        return self.colors.background.startswith("ansi_")

    @classmethod
    def read(cls, values: dict[str, Any]) -> ThemeFile:
        """Check a parsed file. Raises `ValueError`: one line that names the key."""
        try:
            return msgspec.convert(values, cls)
        except msgspec.ValidationError as error:
            raise ValueError(_explained(error)) from error


# What msgspec appends: where in the file the trouble is.
_PLACE = re.compile(r" - at `(?:key in )?\$\.?(.*?)(?:\[\.\.\.\])?`$")
_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`")


def _explained(error: msgspec.ValidationError) -> str:
    text = str(error)
    place = _PLACE.search(text)
    where = [place[1]] if place and place[1] else []
    message = _PLACE.sub("", text)
    if unknown := _UNKNOWN.fullmatch(message):
        return f"{'.'.join([*where, unknown[1]])}: there is no such key"
    name, colon, rest = message.partition(": ")
    if colon and error.__cause__ is not None:
        # From `_Colors`: the place is the table, the text begins with the key.
        return f"{'.'.join([*where, name])}: {rest}"
    return f"{'.'.join(where) or 'file'}: {message}"


@dataclass(frozen=True, slots=True)
class Themes:
    """All usable themes by name, and one line about each that is not."""

    files: dict[str, ThemeFile]
    problems: tuple[str, ...]


def load_themes(*directories: Path) -> Themes:
    """Read every `*.toml` of the directories; later ones replace earlier ones of the same name."""
    files: dict[str, ThemeFile] = {}
    problems: list[str] = []
    for directory in directories:
        for path in sorted(directory.glob("*.toml")):
            try:
                file = ThemeFile.read(tomllib.loads(path.read_text("utf-8")))
            except OSError as error:
                problems.append(f"theme {path.name}: can't be read ({error.strerror})")
            except UnicodeDecodeError:
                problems.append(f"theme {path.name}: not UTF-8 text")
            except tomllib.TOMLDecodeError as error:
                problems.append(f"theme {path.name}: not TOML ({error})")
            except ValueError as error:
                problems.append(f"theme {path.name}: {error}")
            else:
                files[file.name] = file
    if not files:
        files[ThemeFile().name] = ThemeFile()
    return Themes(files, tuple(problems))


def textual_theme(file: ThemeFile) -> Theme:
    """Return Textual's theme with the same colours, for its own widgets and our style sheet."""
    colors = file.colors
    return Theme(
        name=file.name,
        primary=colors.accent,
        secondary=colors.accent,
        accent=colors.accent,
        warning=colors.attention,
        error=colors.bad,
        success=colors.good,
        foreground=colors.foreground,
        background=colors.background,
        surface=colors.surface,
        panel=colors.raised,
        dark=file.dark,
        ansi=file.sixteen,
        variables={
            "tb-line": colors.line,
            "tb-muted": colors.muted,
            "tb-faint": colors.faint,
            "tb-attention": colors.attention,
            "tb-terminal": file.terminal.background,
            "block-cursor-background": colors.accent,
            "block-cursor-foreground": colors.on_accent,
            "scrollbar": colors.line,
            "scrollbar-hover": colors.muted,
            "scrollbar-active": colors.accent,
            "scrollbar-background": colors.background,
            "scrollbar-background-hover": colors.background,
            "scrollbar-background-active": colors.background,
            "scrollbar-corner-color": colors.background,
            "footer-key-foreground": colors.accent,
            # Textual's own styles refer to these where a theme has the terminal's colours.
            "ansi-background": colors.background,
            "ansi-foreground": colors.foreground,
            "border-blurred": colors.line,
            "input-cursor-background": colors.foreground,
            "input-cursor-foreground": colors.background,
            "input-cursor-text-style": "none",
            "input-selection-background": colors.accent,
            "input-selection-foreground": colors.on_accent,
            "screen-selection-background": colors.accent,
            "screen-selection-foreground": colors.on_accent,
        },
    )


VARIABLE_DEFAULTS: Mapping[str, str] = MappingProxyType(
    {
        "tb-line": "#444444",
        "tb-muted": "#a8a8a8",
        "tb-faint": "#8c8c8c",
        "tb-attention": "#d0a030",
        "tb-terminal": "#101010",
    }
)
"""Our own variables, for Textual's built-in themes, which lack them."""
