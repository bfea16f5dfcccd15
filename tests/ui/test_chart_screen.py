"""The chart screen: metrics of the shown run and of marked ones, drawn, read off and written."""

from __future__ import annotations

import math
import shutil
import sqlite3
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from textual.widgets import Input

from tbtui.journal.events import StepFinished
from tbtui.journal.rundir import RunDirectory
from tbtui.journal.writer import JournalWriter
from tbtui.ui.app import TbtuiApp
from tbtui.ui.drawing.charts import Plot, plot
from tbtui.ui.drawing.text import visible
from tbtui.ui.panes.charts import ChartPane, MetricList
from tbtui.ui.screens.charts import ChartScreen
from tbtui.ui.screens.cockpit import Cockpit
from tbtui.ui.user import User
from tests.events import run_started
from tests.ui.opening import Opener, pane, press, replaying, screen_of, window
from tests.ui.picture import PastHost, settle
from tests.ui.synthetic import START, write_run

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(tmp_path_factory.mktemp("runs") / "own", 150.0).run.path


@pytest.fixture
def logs_dir(tmp_path: Path, recorded: Path) -> Path:
    for name in ("own", "other"):
        shutil.copytree(recorded, tmp_path / "logs" / name)
    return tmp_path / "logs"


@pytest.fixture
def opened(opened: Opener, logs_dir: Path) -> Opener:
    """Opens the app over the first of them."""
    directory = RunDirectory(logs_dir / "own")
    return partial(opened, directory=directory, clock=lambda: START + 150.0, user=User())


@pytest.mark.parametrize("size", [(80, 24), (160, 45)])
async def test_two_metrics_are_drawn_below_each_other(
    opened: Opener, size: tuple[int, int]
) -> None:
    async with opened(size) as pilot:
        await press(pilot, "M", "down", "space")
        text = pane(pilot, "chart-plots").text
        assert len(screen_of(pilot, ChartScreen).request.metrics) == 2
        assert "eval/pass_rate" in text
        ticks = text.splitlines()[-1].split()
        assert len(set(ticks)) == len(ticks)
        assert text.count("┤") >= 4
        assert len(text.splitlines()) <= size[1] - 2
        await press(pilot, "escape")
        assert isinstance(pilot.app.screen, Cockpit)


async def test_any_metric_of_the_list_is_drawn_over_any_axis(opened: Opener) -> None:
    async with opened((160, 45)) as pilot:
        await press(pilot, "M", "slash", *"rss", "enter", "space")
        screen = screen_of(pilot, ChartScreen)
        assert screen.request.metrics == ("eval/pass_rate", "resources/engine/rss_mb")
        assert "rss_mb" in pane(pilot, "chart-plots").text
        await press(pilot, "enter")
        assert screen.request.metrics == ("eval/pass_rate",)
        seen = []
        for _ in range(5):
            seen.append(screen.request.axis)
            await press(pilot, "x")
        assert seen == ["step", "time", "rollouts", "tokens", "position"]


async def test_the_cursor_tells_values_and_zoom_keeps_it_in_sight(opened: Opener) -> None:
    async with opened((160, 45)) as pilot:
        await press(pilot, "M", "right")
        plot = screen_of(pilot, ChartScreen).query_one(ChartPane)
        assert plot.cursor == 0.0
        assert "step 0" in plot.text
        await press(pilot, "right", "right")
        assert plot.cursor is not None
        assert plot.cursor > 0
        await press(pilot, "plus")
        chart = screen_of(pilot, ChartScreen).chart
        assert chart is not None
        assert chart.low <= plot.cursor <= chart.high
        assert chart.high - chart.low < chart.last - chart.first
        await press(pilot, "0", "escape")
        assert plot.cursor is None
        assert screen_of(pilot, ChartScreen).request.window is None


async def test_smoothing_log_band_and_outliers_are_said(opened: Opener) -> None:
    async with opened((160, 45)) as pilot:
        await press(pilot, "M", "s", "s", "l", "b", "o")
        title = str(pane(pilot, "chart-plots").border_title)
        assert "smoothing 0.6 · log y · outliers shown" in title
        assert "band" not in title


async def test_entropy_by_position_of_a_step_is_called_an_estimate(opened: Opener) -> None:
    async with opened((160, 45)) as pilot:
        await press(pilot, "M", "p")
        title = str(pane(pilot, "chart-plots").border_title)
        assert "entropy by token position: mean -log p" in pane(pilot, "chart-plots").text
        assert ", unbiased estimate from " in title
        assert " answers at temperature 1 " in title
        last = title
        await press(pilot, "left_square_bracket")
        assert str(pane(pilot, "chart-plots").border_title) != last
        await press(pilot, "p")
        assert "eval/pass_rate" in pane(pilot, "chart-plots").text


async def test_at_another_temperature_a_profile_is_not_called_entropy(
    opened: Opener, logs_dir: Path
) -> None:
    with closing(sqlite3.connect(RunDirectory(logs_dir / "own").database)) as db, db:
        db.execute("UPDATE samples SET temperature = 0.7 WHERE id % 2")
    async with opened((160, 45)) as pilot:
        await press(pilot, "M", "p")
        text = pane(pilot, "chart-plots").text
        assert "mean -log p by token position" in text
        assert "entropy" not in text
        title = str(pane(pilot, "chart-plots").border_title)
        assert "answers at temperature 0.7 and 1 " in title
        assert "estimate" not in title


async def test_metrics_that_nobody_here_has_named_are_drawn(tmp_path: Path) -> None:
    names = ("reward/all/mean", "[bold red]z[/]", "温度 °C", 'x["0"]', "n" * 200)
    directory = RunDirectory.create(tmp_path / "logs" / "foreign")
    with JournalWriter(directory) as journal:
        journal.append(run_started())
        for step in range(1, 7):
            metrics = {name: float(step + place) for place, name in enumerate(names)}
            metrics["loss"] = math.nan if step > 2 else math.inf
            journal.append(StepFinished(step=step, weights_version=step, metrics=metrics))
    app = TbtuiApp(PastHost(directory), live=False, user=User())
    async with window(app, (80, 24)) as pilot:
        await press(pilot, "M")
        assert screen_of(pilot, ChartScreen).request.metrics == ("reward/all/mean",)
        listed = screen_of(pilot, ChartScreen).query_one(MetricList).listed
        assert set(names) <= set(listed)
        assert "loss" not in listed
        for _ in listed:
            chosen = screen_of(pilot, ChartScreen).query_one(MetricList).chosen
            if chosen in names and screen_of(pilot, ChartScreen).request.metrics != (chosen,):
                await press(pilot, "enter")
            if chosen in names:
                text = pane(pilot, "chart-plots").text
                assert visible(chosen)[:12] in text
                assert "nothing recorded" not in text
                assert text.count("•") == 6
            await press(pilot, "1", "down")


async def test_runs_that_are_marked_are_drawn_beside_the_shown_one(opened: Opener) -> None:
    async with opened((160, 45)) as pilot:
        await press(pilot, "R", "home", "x", "x", "M")
        text = pane(pilot, "chart-plots").text
        assert "━ own" in text
        assert "━ other" in text
        assert "2 runs" in text
        # From the charts the list leads back to them.
        await press(pilot, "R", "M")
        assert sum(isinstance(each, ChartScreen) for each in pilot.app.screen_stack) == 1


async def test_the_chart_is_written_to_a_file(opened: Opener, tmp_path: Path) -> None:
    async with opened((160, 45)) as pilot:
        await press(pilot, "M", "E")
        pilot.app.screen.query_one("#path", Input).value = str(tmp_path / "x.png")
        await press(pilot, "enter")
        pilot.app.screen.query_one("#path", Input).value = str(tmp_path / "x.csv")
        await press(pilot, "enter")
    assert (tmp_path / "x.csv").read_text().startswith("run,metric,step,value,low,high\nown,")


async def test_a_chosen_metric_is_among_the_cockpits_curves(opened: Opener) -> None:
    async with opened((160, 45)) as pilot:
        await press(pilot, "M", "slash", *"time/total", "enter", "w", "escape", "escape", "4")
        assert "time/total" in pane(pilot, "curve").text


async def test_the_cursor_moves_over_lines_that_are_drawn_once(
    opened: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[int] = []

    def counted(*args: Any, **options: Any) -> Plot:
        drawn.append(1)
        return plot(*args, **options)

    monkeypatch.setattr("tbtui.ui.panes.charts.plot", counted)
    async with opened((160, 45)) as pilot:
        await press(pilot, "M")
        assert drawn
        before, without = len(drawn), pane(pilot, "chart-plots").text
        seen = set()
        for _ in range(3):
            await press(pilot, "left")
            seen.add(pane(pilot, "chart-plots").text)
        assert len(seen) == 3
        assert all("│" in text and text != without for text in seen)
        assert len(drawn) == before
        await press(pilot, "escape")
        assert pane(pilot, "chart-plots").text == without
        await press(pilot, "l")
        assert len(drawn) > before


async def test_in_a_replay_a_chart_goes_as_far_as_the_clock(logs_dir: Path) -> None:
    directory = RunDirectory(logs_dir / "own")
    app, replayed = replaying(directory, user=User())

    def steps() -> list[float]:
        chart = screen_of(pilot, ChartScreen).chart
        assert chart is not None
        (line,) = chart.panels[0].lines
        return [point.x for point in line.recorded]

    async def at(seconds: float) -> list[float]:
        replayed.playback.go_to(START + seconds)
        await settle(app)
        # What looks every two seconds looks now.
        screen_of(pilot, ChartScreen)._read_again()
        await press(pilot, "s")
        return steps()

    async with window(app) as pilot:
        await press(pilot, "M")
        late = await at(149.0)
        early = await at(80.0)
        assert max(early) <= replayed.state.step < max(late)
        assert 0 < len(early) < len(late)
        assert early == late[: len(early)]
        assert await at(149.0) == late
        await press(pilot, "p")
        chart = screen_of(pilot, ChartScreen).chart
        assert chart is not None
        assert max(chart.steps) == max(late)
