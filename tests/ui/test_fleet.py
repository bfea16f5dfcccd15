"""The fleet's screen: its rows, its keys from the table, what they do and which are shown."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion
from textual.pilot import Pilot

from tbtui.ui.fleet import FleetApp, FleetScreen
from tbtui.ui.input.keys import read_key_table
from tbtui.ui.panes.key_bar import KeyLine
from tbtui.ui.screens.help import HelpDialog
from tbtui.ui.user import User
from tbtui.view.runs import GpuUse, RunSummary
from tests.ui.opening import rest
from tests.ui.styled_text import StyledTextExtension, styled_text

SIZES = ((80, 24), (160, 45))


def row(name: str, **facts: Any) -> RunSummary:
    """A row of a run that is over."""
    known: dict[str, Any] = {"status": "finished", "path": f"/runs/{name}", "started_at": 1.0}
    return RunSummary(name=name, **known | {"step": 20, "rollouts": 640} | facts)


ROWS = (
    row(
        "sweep-lr3-seed1", pid=7, status="live", step=12, max_steps=40, last_pass_rate=0.42,
        seconds=840.0, curve=(0.1, 0.2, 0.3, 0.42), policy="torch", model_name="Qwen/Qwen3-0.6B",
        phase="sampling", gpus=(GpuUse(utilisation=0.83),), waiting_for="trial nested-03/2",
        started_at=4.0,
    ),
    row(
        "sweep-lr3-seed2", pid=8, status="paused", step=9, max_steps=40, last_pass_rate=0.31,
        curve=(0.1, 0.31), alarms=1, alarm="no_signal: no group had anything to teach",
        seconds=700.0, waiting_for="you: paused", started_at=3.0,
    ),
    row(
        "night", host="gpu1", pid=9, status="live", silent_sec=200.0, last_pass_rate=0.66,
        curve=(0.2, 0.66), policy="tinker", model_name="Qwen/Qwen3-8B", cost_usd=8.1,
        started_at=2.0,
    ),
    row("first", last_pass_rate=0.87, curve=(0.1, 0.5, 0.87), seconds=300.0),
    RunSummary(status="unreachable", host="gpu2", reason="Connection refused"),
)  # fmt: skip


class Fleet:
    """A stand-in for the runs of some machines; notes what is asked of it."""

    def __init__(self, *rows: RunSummary) -> None:
        self._rows = rows
        self.acts: list[tuple[str, ...]] = []
        self.charted: list[str] = []

    async def rows(self) -> list[RunSummary]:
        return list(self._rows)

    async def act(self, row: RunSummary, *words: str) -> str:
        self.acts.append((row.name, *words))
        return f"{row.name}: done"

    def open(self, row: RunSummary) -> None:
        raise AssertionError("it needs a terminal")

    async def chart_command(self, rows: Sequence[RunSummary]) -> list[str]:
        self.charted = [row.name for row in rows]
        raise OSError("no terminal to draw on")

    def run(self, command: Sequence[str]) -> None:
        raise AssertionError("it needs a terminal")


def bar(pilot: Pilot[None]) -> str:
    return pilot.app.screen.query_one(KeyLine).render_line(0).text


def make_fleet_app(*rows: RunSummary, user: User | None = None) -> FleetApp:
    return FleetApp(Fleet(*(rows or ROWS)), user=user)


@pytest.mark.parametrize("size", SIZES)
async def test_it_looks_as_it_did(snapshot: SnapshotAssertion, size: tuple[int, int]) -> None:
    async with make_fleet_app().run_test(size=size) as pilot:
        await rest(pilot)
        await pilot.press("down", "down", "space", "up")
        await rest(pilot)
        text = snapshot.use_extension(StyledTextExtension)
        assert styled_text(pilot.app) == text


async def test_a_run_is_paused_resumed_and_stopped_by_a_second_press() -> None:
    fleet = Fleet(*ROWS)
    async with FleetApp(fleet).run_test() as pilot:
        await rest(pilot)
        for key in ("p", "down", "p", "down", "p", "down", "p"):
            await pilot.press(key)
            await rest(pilot)
        # The silent one comes first; on the unreachable machine there is nothing to pause.
        assert fleet.acts == [
            ("night", "ctl", "run", "pause"),
            ("sweep-lr3-seed1", "ctl", "run", "pause"),
            ("sweep-lr3-seed2", "ctl", "run", "resume"),
        ]
        await pilot.press("up", "s", "down", "s")  # of another run: no second press
        await rest(pilot)
        assert len(fleet.acts) == 3
        await pilot.press("s")
        await rest(pilot)
        assert fleet.acts[-1] == ("sweep-lr3-seed2", "ctl", "run", "stop")


async def test_curves_are_drawn_of_the_marked_runs_or_else_of_the_chosen_one() -> None:
    fleet = Fleet(*ROWS)
    async with FleetApp(fleet).run_test() as pilot:
        await rest(pilot)
        await pilot.press("x")
        await rest(pilot)
        assert fleet.charted == ["night"]
        await pilot.press("down", "down", "space", "space", "x")
        await rest(pilot)
        assert fleet.charted == ["sweep-lr3-seed1", "sweep-lr3-seed2"]
        assert "no terminal to draw on" in str(next(iter(pilot.app._notifications)).message)


async def test_a_key_is_shown_only_where_it_does_something() -> None:
    async with make_fleet_app(row("over")).run_test(size=(120, 24)) as pilot:
        await rest(pilot)
        assert "enter open" in bar(pilot)
        assert "pause" not in bar(pilot)
        assert "stop" not in bar(pilot)
    async with FleetApp(Fleet()).run_test(size=(120, 24)) as pilot:
        await rest(pilot)
        assert "open" not in bar(pilot)
        assert "q quit" in bar(pilot)


async def test_its_keys_are_a_persons_to_change_and_are_in_the_help(tmp_path: Path) -> None:
    (tmp_path / "keys.toml").write_text('fleet-curves = "ctrl+g"\nfleet-pause = "t"\n')
    keys, problems = read_key_table(tmp_path / "keys.toml")
    assert problems == ("fleet-pause: t is already theme (theme)",)
    fleet = Fleet(*ROWS)
    async with FleetApp(fleet, user=User(keys=keys)).run_test(size=(120, 40)) as pilot:
        await rest(pilot)
        assert "^g curves" in bar(pilot)
        await pilot.press("x", "ctrl+g")
        await rest(pilot)
        assert fleet.charted == ["night"]
        await pilot.press("question_mark")
        assert isinstance(pilot.app.screen, HelpDialog)
        await pilot.press("escape")
        assert isinstance(pilot.app.screen, FleetScreen)
        await pilot.press("escape")
    assert pilot.app.return_code == 0


async def test_a_click_chooses_the_run_under_it_in_a_list_that_has_scrolled() -> None:
    rows = [row(f"run-{number:02}", started_at=-float(number)) for number in range(40)]
    fleet = Fleet(*rows)
    async with FleetApp(fleet).run_test() as pilot:
        await rest(pilot)
        await pilot.click("#fleet", offset=(6, 3))
        await pilot.press("x")
        await rest(pilot)
        assert fleet.charted == ["run-02"]
        await pilot.press("pagedown")
        text = styled_text(pilot.app).splitlines()
        title, wanted = (
            next(place for place, line in enumerate(text) if words in line)
            for words in ("fleet", "run-24")
        )
        await pilot.click("#fleet", offset=(6, wanted - title - 1))
        await pilot.press("x")
        await rest(pilot)
        assert fleet.charted == ["run-24"]
