"""`tbtui fleet`: every live and recent run, here and on other machines."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import typer

from tbtui.ctl.fleet import Fleet, act, all_rows, command_for, local_copy, local_rows, make_fleet
from tbtui.paths import cache_dir, config_dir, state_dir
from tbtui.terminal import on_terminal
from tbtui.ui.fleet import FleetApp, Shown, ordered, table_lines
from tbtui.ui.user import User
from tbtui.view.runs import RunSummary, row_document


def fleet(
    logs_dirs: Sequence[Path],
    hosts: Sequence[str],
    *,
    recent_hours: float | None,
    here: bool,
    as_json: bool,
    no_ui: bool,
) -> None:
    """Show the fleet: in an app, as a table, or as JSON. Raises `FleetError`."""
    made = make_fleet(logs_dirs, hosts, recent_hours, here=here)
    if not (as_json or no_ui) and on_terminal():
        _FleetShown(made).show()
        return
    rows = local_rows(made) if here else asyncio.run(all_rows(made))
    if as_json:
        sys.stdout.write(json.dumps({"runs": [row_document(row) for row in rows]}) + "\n")
        return
    _print(ordered(rows))


def _print(rows: Sequence[RunSummary]) -> None:
    if not rows:
        typer.echo("no live or recent run")
        return
    for line in table_lines(rows, shutil.get_terminal_size().columns):
        typer.echo(line.rstrip())


class _FleetShown(Shown):
    """What the app asks of the fleet."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet

    def show(self) -> None:
        FleetApp(self, user=User.load(config_dir(), state_dir())).run()

    async def rows(self) -> list[RunSummary]:
        return await all_rows(self._fleet)

    async def act(self, row: RunSummary, *words: str) -> str:
        return await act(self._fleet, row, *words)

    def open(self, row: RunSummary) -> None:
        live = row.live
        command = command_for(self._fleet, row, "attach" if live else "replay", terminal=True)
        subprocess.run(command, check=False)

    async def chart_command(self, rows: Sequence[RunSummary]) -> list[str]:
        place = cache_dir() / "fleet"
        first, *others = [await local_copy(self._fleet, row, place) for row in rows]
        beside = [word for each in others for word in ("--beside", str(each.path))]
        return [sys.executable, "-m", "tbtui", "replay", str(first.path), *beside]

    def run(self, command: Sequence[str]) -> None:
        subprocess.run(command, check=False)
