"""The cockpit's tree of tasks where the run has several data sets."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from textual.pilot import Pilot

from tbtui.journal.rundir import RunDirectory
from tbtui.ui.application import TbtuiApp
from tbtui.ui.user import User, read_preferences
from tests.ui.opening import SimulatedHost, app_of, pane
from tests.ui.picture import settle
from tests.ui.synthetic import START, Simulation

_NAME = re.compile(r".(\s*[▾▸◇ ]*[\w-]+)")
"""Behind the mark of what is chosen."""


@pytest.fixture
def host(tmp_path: Path) -> Iterator[SimulatedHost]:
    """A run whose every kind has its first tasks in one data set, the others in another."""
    simulation = Simulation(RunDirectory.create(tmp_path / "two"))
    simulation.tasks = [
        msgspec.structs.replace(task, dataset="starter" if task.name[-1] < "5" else "workshop")
        for task in simulation.tasks
    ]
    simulation.advance(START + 39.0)
    yield SimulatedHost(simulation)
    simulation.close()


def rows(pilot: Pilot[int]) -> list[str]:
    """The names of the tree's rows, with how far in each stands."""
    found = [_NAME.match(line) for line in pane(pilot, "tasks").text.splitlines()]
    return [each[1] for each in found if each is not None]


async def test_data_sets_fold_filter_and_sort(host: SimulatedHost, tmp_path: Path) -> None:
    remembered = tmp_path / "app.json"
    user = User(remembered_in=remembered)
    user.preferences.toured = True
    app = TbtuiApp(host, live=False, clock=lambda: host.simulation.now, user=user)
    async with app.run_test(size=(160, 45), notifications=True) as pilot:
        await settle(app)
        app.screen.query_one("#tasks").focus()
        await pilot.pause()
        shown = rows(pilot)
        assert shown[:3] == ["▾ starter", "  ▸ append", "  ▸ copy"]
        assert shown.count("  ▸ copy") == 2
        assert "▾ workshop" in shown
        # A kind of one data set is opened and chosen, and not its namesake.
        await pilot.press("down", "down", "right", "enter")
        await settle(app)
        assert (app.listing.filter.kind, app.listing.filter.dataset) == ("copy", "starter")
        shown = rows(pilot)
        assert "      copy-01" in shown
        assert not [name for name in shown if name.endswith("copy-05")]
        await pilot.press("up", "up", "space", "enter")
        await settle(app)
        assert rows(pilot)[:2] == ["▸ starter", "▾ workshop"]
        assert (app.listing.filter.kind, app.listing.filter.dataset) == ("", "starter")
        assert {app.live_run.state.tasks[each.task].dataset for each in listed(pilot)} == {
            "starter"
        }
        await pilot.press("S")
        await settle(app)
        assert "lowest pass rate first" in str(pane(pilot, "tasks").border_title)
    kept = read_preferences(remembered)
    assert (kept.folded, kept.unfolded, kept.tree_order) == (["starter"], ["starter/copy"], "worst")


def listed(pilot: Pilot[int]) -> list[object]:
    return list(app_of(pilot).frames.frame().listed)
