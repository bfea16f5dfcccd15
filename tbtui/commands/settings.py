"""`tbtui settings`: every setting, or those whose name has a word in it."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator, Sequence

import typer

from tbtui.config import GROUPS, settings, settings_markdown
from tbtui.config.table import Setting
from tbtui.config.values import require_setting

_WIDEST = 100
_INDENT = "    "


def print_settings(names: Sequence[str], width: int) -> None:
    """All of them, or those that `names` are or are part of.

    For a person in `width` columns; all of them in Markdown where the output is no terminal.

    Raises:
        ConfigError: one is no part of any name, and the nearest is suggested.
    """
    if not names and not sys.stdout.isatty():
        typer.echo(settings_markdown(), nl=False)
        return
    wanted = [name for part in names for name in _found(part)] if names else list(settings())
    for heading, members in GROUPS.items():
        rows = [settings()[name] for name in members if name in wanted]
        if rows:
            typer.echo(heading)
        for row in rows:
            for line in _lines(row, min(width, _WIDEST)):
                typer.echo(line)


def _found(part: str) -> list[str]:
    """A setting's own name means that alone."""
    name = part.partition("=")[0].partition(".")[0]
    if name in settings():
        return [name]
    return [each for each in settings() if name and name in each] or [require_setting(name).name]


def _lines(row: Setting, width: int) -> Iterator[str]:
    default = f"={row.default_text}" if row.default_text else ""
    kind = " ".join(filter(None, (row.type_text, row.bounds)))
    unit = f", {row.about.unit}" if row.about.unit else ""
    yield from textwrap.wrap(
        f"{row.name}{default}  ({kind}{unit})",
        width,
        initial_indent="  ",
        subsequent_indent=_INDENT,
        break_on_hyphens=False,
    )
    why = row.about.why[:1].upper() + row.about.why[1:]
    yield from textwrap.wrap(
        f"{row.about.meaning}. {why}.",
        width,
        initial_indent=_INDENT,
        subsequent_indent=_INDENT,
        break_on_hyphens=False,
        break_long_words=False,
    )
