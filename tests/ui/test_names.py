"""Names of trials, tasks and data sets where there is little room: they stay apart."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest
from rich.cells import cell_len

from tbtui.journal.rundir import RunDirectory
from tbtui.ui.application import TbtuiApp
from tbtui.ui.drawing.rows import row, split_row
from tbtui.ui.drawing.text import Name, clip_name
from tbtui.ui.panes.tiles import GLYPH, NARROWEST, tile_layout
from tests.ui.opening import SimulatedHost, pane, run_at, window
from tests.ui.picture import PastHost
from tests.ui.synthetic import START, Simulation


@pytest.mark.parametrize(
    ("name", "width", "shown"),
    [
        ("nested-02/1", 11, "nested-02/1"),
        ("nested-02/1", 9, "nes…-02/1"),
        ("append-04/15", 11, "appe…-04/15"),
        ("append-04/15 #2", 10, "app…/15 #2"),
        ("count-lines-in-a-log-01", 13, "coun…a-log-01"),
        ("terminal-bench@2.0", 12, "term…nch@2.0"),
        ("nested-02/1", 2, "n…"),
        ("nested-02/1", 0, ""),
        ("漢字漢字漢字/12", 9, "漢…字/12"),
    ],
)
def test_a_name_is_cut_in_its_middle(name: str, width: int, shown: str) -> None:
    assert clip_name(name, width) == shown
    assert cell_len(shown) <= width


def test_a_row_cuts_names_in_the_middle_and_other_text_at_the_end() -> None:
    assert row(9, (Name("nested-02/1"), None)).text == "nes…-02/1"
    assert row(9, ("nested-02/1", None)).text == "nested-0…"
    assert split_row(14, [(Name("nested-02/1"), None)], [("0:41", None)]).text == "nes…-02/1 0:41"


@pytest.mark.parametrize("size", [(80, 17), (118, 24), (126, 35), (126, 60)])
@pytest.mark.parametrize("count", [64, 256])
def test_a_label_is_cut_only_where_all_tiles_are_seen_for_it(
    count: int, size: tuple[int, int]
) -> None:
    label = len("append-04/15")
    layout = tile_layout(count, *size, label)
    rows = -(-count // layout.columns)
    if layout.width < GLYPH + label + 1:
        assert rows * layout.height <= size[1]
    assert layout.width <= NARROWEST or rows * layout.height <= size[1] or layout.columns == 1


@pytest.mark.parametrize("size", [(60, 16), (80, 24), (160, 45), (240, 70)])
async def test_the_groups_of_many_trials_can_be_told_apart(
    tmp_path: Path, size: tuple[int, int]
) -> None:
    run = run_at(tmp_path / "many", 30.0, groups=16, group_size=16)
    app = TbtuiApp(PastHost(run), live=False, clock=lambda: START + 30.0)
    async with window(app, size) as pilot:
        listed = app.frames.frame().listed
        assert len(listed) >= 256
        shown = re.findall(r" [▸▾] (\S+)", pane(pilot, "trials").text)
        assert len(set(shown)) == 16
        # Of the row with the cursor it is the label of the selected trial.
        tasks = {name.rpartition("/")[0] or name for name in shown}
        assert size[0] == 60 or tasks == {trial.task for trial in listed}


async def test_data_sets_with_long_names_can_be_told_apart(tmp_path: Path) -> None:
    names = ("terminal-bench-pro-public", "terminal-bench-pro-hard")
    simulation = Simulation(RunDirectory.create(tmp_path / "two"))
    simulation.tasks = [
        msgspec.structs.replace(task, dataset=names[task.name[-1] < "5"])
        for task in simulation.tasks
    ]
    simulation.advance(START + 39.0)
    host = SimulatedHost(simulation)
    app = TbtuiApp(host, live=False, clock=lambda: simulation.now)
    async with window(app) as pilot:
        shown = re.findall(r"▾ (\S+)", pane(pilot, "tasks").text)
    simulation.close()
    assert shown == [clip_name(name, len(shown[0])) for name in sorted(names)]
    assert len(set(shown)) == 2
    assert all(len(each) >= 14 for each in shown)
