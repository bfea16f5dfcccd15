"""What a chart draws: smoothing, thinning, axes, windows; and how it is written to files."""

from __future__ import annotations

import csv
import io
import math
import xml.etree.ElementTree as ET
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tbtui.errors import UserError
from tbtui.journal.events import StepFinished
from tbtui.journal.metrics import SPENT, Point
from tbtui.journal.reader import JournalReader
from tbtui.journal.rundir import RunDirectory
from tbtui.journal.writer import JournalWriter
from tbtui.view.chart_files import chart_file_name, chart_text, write_chart
from tbtui.view.charts import (
    Chart,
    ChartReader,
    ChartRequest,
    Line,
    next_axis,
    panel,
    panned,
    smoothed,
    thinned,
    x_in_words,
    zoomed,
)
from tests.events import run_started


def line(*values: float) -> Line:
    points = tuple(Point(float(x), y, y, y) for x, y in enumerate(values))
    return Line("r", "m", points, points, points)


def finished(step: int, **metrics: float) -> StepFinished:
    return StepFinished(step=step, weights_version=step, metrics=metrics)


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    directory = RunDirectory.create(tmp_path / "r")
    with JournalWriter(directory) as journal:
        journal.append(run_started())
        for step in range(1, 101):
            journal.append(finished(step, a=float(step), b=0.5))
    return directory


def chart_of(run: RunDirectory, **request: Any) -> Chart:
    wanted = replace(ChartRequest(metrics=("a", "b")), **request)
    return ChartReader().read([run], wanted, 50)


def test_smoothing_is_debiased() -> None:
    points = tuple(Point(float(x), y, y, y) for x, y in enumerate((1.0, 1.0, 4.0)))
    found = [point.y for point in smoothed(points, 0.5)]
    # The mean of the values so far with weights 1, 2, 4: newest heaviest.
    assert found == pytest.approx([1.0, 1.0, (1 + 2 + 16) / 7])
    assert smoothed(points, 0.0) == points


def test_a_column_is_the_mean_with_the_range_of_its_points() -> None:
    points = tuple(Point(float(x), float(x % 2), float(x % 2), float(x % 2)) for x in range(1000))
    found = thinned(points, 0.0, 1000.0, 10)
    assert len(found) == 10
    assert {(point.y, point.low, point.high) for point in found} == {(0.5, 0.0, 1.0)}
    inside = thinned(points, 500.0, 504.0, 10)
    assert [point.x for point in inside] == [499, 500, 501, 502, 503, 504, 505]


def test_outliers_do_not_stretch_the_axis_and_are_counted() -> None:
    request = ChartRequest(("m",))
    values = (1.0, 2.0, 1.5, 1.2, 1.8, 1.1, 1.9, 1.4, 1.6, 500.0)
    clipped = panel("m", [line(*values)], request)
    assert clipped.high < 3
    assert clipped.clipped == f"1 above {clipped.high:.3g}"
    whole = panel("m", [line(*values)], replace(request, clip=False))
    assert whole.high == 500
    assert not whole.clipped


def test_an_interval_is_in_sight_however_wide_it_is() -> None:
    points = tuple(Point(x, 0.3, 0.1, 0.6) for x in (0.0, 1.0))
    shown = panel("m", [Line("r", "m", points, points, points)], ChartRequest(("m",)))
    assert shown.low <= 0.1
    assert shown.high == 0.6


def test_few_values_and_single_steps_are_no_outliers() -> None:
    request = ChartRequest(("m",))
    assert panel("m", [line(0.0, 0.0, 9.0)], request).high == 9
    assert panel("m", [line(*[0.0] * 20, 1.0)], request).high == 1


def test_a_logarithmic_axis_leaves_out_what_it_can_not_show() -> None:
    shown = panel("m", [line(0.0, 0.01, 100.0)], ChartRequest(("m",), log=True))
    assert shown.log
    assert (shown.low, shown.high) == pytest.approx((0.01, 100.0))
    assert shown.below == 1
    assert not panel("m", [line(0.0, -1.0)], ChartRequest(("m",), log=True)).log


def test_rounding_errors_look_like_none() -> None:
    shown = panel("m", [line(1e-14, -2e-14, 3e-14)], ChartRequest(("m",)))
    assert shown.high >= 1e-6


def test_a_window_is_zoomed_around_the_cursor_and_stays_on_the_axis(run: RunDirectory) -> None:
    chart = chart_of(run)
    assert (chart.first, chart.last) == (0, 100)
    near = chart_of(run, window=zoomed(chart, 0.5, 80.0).window)
    assert (near.low, near.high) == (40, 90)
    assert panned(near, 1.0).window == (50, 100)
    assert zoomed(near, 4.0, 80.0).window is None
    assert near.panels[0].high == 90


def test_a_chart_is_read_again_when_the_journal_has_grown(run: RunDirectory) -> None:
    reader = ChartReader()
    request = ChartRequest(("a",))
    before = reader.read([run], request, 50)
    stands = reader.stands([run])
    assert reader.read([run], request, 50).panels[0].lines[0].recorded is (
        before.panels[0].lines[0].recorded
    )
    with JournalWriter(run, continues=True) as journal:
        journal.append(finished(101, a=7.0))
    assert reader.stands([run]) != stands
    assert reader.read([run], request, 50).panels[0].lines[0].recorded[-1].y == 7.0


def test_a_run_that_can_not_be_read_does_not_hide_the_others(
    run: RunDirectory, tmp_path: Path
) -> None:
    broken = RunDirectory(tmp_path / "broken")
    broken.path.mkdir()
    broken.database.write_text("no database" * 500)
    chart = ChartReader().read([run, broken], ChartRequest(("a",)), 50)
    assert "broken" in chart.troubles[0]
    assert chart.panels[0].lines[0].recorded


def test_values_are_written_as_recorded_within_the_window(run: RunDirectory) -> None:
    chart = chart_of(run, smoothing=0.9, window=(10.0, 12.0))
    rows = list(csv.DictReader(io.StringIO(chart_text(chart, "csv"))))
    assert [(row["metric"], row["step"], row["value"]) for row in rows] == [
        *(("a", "10", "10"), ("a", "11", "11"), ("a", "12", "12")),
        *(("b", "10", "0.5"), ("b", "11", "0.5"), ("b", "12", "0.5")),
    ]


def test_the_picture_is_sound_and_says_what_was_done(run: RunDirectory) -> None:
    picture = ET.fromstring(chart_text(chart_of(run, smoothing=0.6), "svg"))
    words = [each.text or "" for each in picture.iter("{http://www.w3.org/2000/svg}text")]
    assert any("smoothing 0.6" in each for each in words)
    assert {"a", "b", "r", "step"} <= set(words)
    assert len(list(picture.iter("{http://www.w3.org/2000/svg}polyline"))) == 2


FOREIGN = (
    # wandb's and Prime-RL's ways to name things,
    *("reward/all/mean", "entropy/all/mean", "perf/throughput", "train/agg/all/agent/reward/mean"),
    # what SQLite's paths, JSON, Textual's markup or a shell would read otherwise,
    *("a b c", "x[0]", "[bold red]z[/]", "a.b.c", "$", "#", "it's", 'in "quotes"', "back\\slash"),
    *("tab\there", "größe/µs", "温度", "🙂", "n" * 300),
    # and names that are tbtui's for what is no metric of a step.
    *("policy/running", "groups/trained", "trials/queued", "gpu/0/power_watt", "eval/kind/x"),
    *("resources/engine/cpu", "resources/engine_lag_ms", "eval/pass_rate", "eval/pass@1"),
)


@pytest.fixture
def foreign(tmp_path: Path) -> RunDirectory:
    """A run whose metrics are named and valued as no trainer of tbtui's does."""
    directory = RunDirectory.create(tmp_path / "foreign")
    with JournalWriter(directory) as journal:
        journal.append(run_started())
        for step in range(1, 9):
            metrics = {name: float(step * 100 + place) for place, name in enumerate(FOREIGN)}
            metrics["sometimes nan"] = math.nan if step % 2 else 1.0
            metrics["sometimes inf"] = math.inf if step % 2 else -2.0
            metrics["never a number"] = math.nan
            if step in (3, 6):
                metrics["on some steps"] = float(step)
            journal.append(finished(step, **metrics))
    return directory


@pytest.mark.parametrize("name", FOREIGN, ids=ascii)
def test_a_metric_of_any_name_is_listed_and_read(foreign: RunDirectory, name: str) -> None:
    chart = ChartReader().read([foreign], ChartRequest((name,)), 50)
    assert name in chart.names
    place = FOREIGN.index(name)
    expected = [(float(step), float(step * 100 + place)) for step in range(1, 9)]
    assert [(x, y) for x, y, *_ in chart.panels[0].lines[0].recorded] == expected
    assert ET.fromstring(chart_text(chart, "svg")) is not None
    rows = list(csv.reader(io.StringIO(chart_text(chart, "csv"))))
    assert [row[1] for row in rows[1:]] == [name] * 8


def test_dollars_are_an_axis_of_runs_that_cost_some_and_have_cents() -> None:
    assert next_axis("tokens", ("a",)) == "position"
    assert next_axis("tokens", ("a", SPENT)) == "dollars"
    assert next_axis("dollars", ("a",)) == "position"
    assert next_axis("position", ()) == "step"
    assert x_in_words("dollars", 1.2) == "1.20"


def test_values_that_are_no_numbers_leave_gaps_and_the_run_readable(foreign: RunDirectory) -> None:
    request = ChartRequest(("sometimes nan", "sometimes inf"), smoothing=0.6)
    chart = ChartReader().read([foreign], request, 50)
    assert [point.x for point in chart.panels[0].lines[0].recorded] == [2, 4, 6, 8]
    assert [point.y for point in chart.panels[1].lines[0].recorded] == [-2.0] * 4
    assert "never a number" not in chart.names
    some = ChartReader().read([foreign], ChartRequest(("on some steps",)), 50)
    assert [(point.x, point.y) for point in some.panels[0].lines[0].shown] == [(3, 3), (6, 6)]
    with closing(JournalReader(foreign)) as reader:
        steps = [each.event for each in reader.read(0, 100) if isinstance(each.event, StepFinished)]
    assert len(steps) == 8
    assert steps[0].metrics.keys() == set(FOREIGN)


def test_a_file_is_never_replaced_unasked(run: RunDirectory, tmp_path: Path) -> None:
    path = tmp_path / chart_file_name("r", ("optim/a b",), "csv")
    assert path.name == "r-optim-a-b.csv"
    write_chart(chart_of(run), path)
    with pytest.raises(UserError, match="there already"):
        write_chart(chart_of(run), path)
    with pytest.raises(UserError, match="svg"):
        write_chart(chart_of(run), tmp_path / "x.png")
