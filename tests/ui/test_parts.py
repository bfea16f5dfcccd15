"""The parts that need no screen: selection, layout, charts, reading, a watched run's end."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path

import pytest
from rich.style import Style

from tbtui.journal.events import TrialFinished, TrialPhase
from tbtui.journal.hold import PAUSED
from tbtui.journal.rundir import RunDirectory, RunLock
from tbtui.ui.drawing.charts import Series, bar, curve, reward_bins, tick_labels, ticks
from tbtui.ui.drawing.text import clip, number, rate, sparkline
from tbtui.ui.panes.tiles import NARROWEST, tile_layout
from tbtui.ui.panes.tokens import flow, heat_level, unlikely_tokens
from tbtui.ui.runs import LiveRun
from tbtui.ui.selection import LINGER_SEC, Selection
from tbtui.ui.services import WatchedRun
from tbtui.ui.terminal.recordings import Recordings
from tbtui.view.current import current_trials
from tbtui.view.state import RunState, TrialView
from tests.events import events_of
from tests.ui.synthetic import START, write_run


def trial(name: str, step: int = 1, **values: object) -> TrialView:
    view = TrialView(
        name, name, "copy-01", "g", step, "train", 1, 60.0, 0.0, started_at=1.0, turn=1
    )
    view.phase = TrialPhase.ACTING
    for key, value in values.items():
        setattr(view, key, value)
    return view


def test_a_chosen_selection_never_moves_by_itself() -> None:
    selection = Selection()
    shown = [trial(name) for name in "abcd"]
    known = {each.trial: each for each in shown}
    selection.choose("c")
    shown[2].finished_at = 5.0
    assert selection.settle(shown, known, 100.0) is shown[2]
    del shown[0]
    assert selection.settle(shown, known, 100.0).trial == "c"  # type: ignore[union-attr]
    # A retried trial hands over to its successor.
    known["c"].successor = "c2"
    known["c2"] = trial("c2")
    assert selection.settle([shown[0], known["c2"], shown[2]], known, 0).trial == "c2"  # type: ignore[union-attr]
    # The next batch: the same place.
    batch = [trial(name, 2) for name in "wxyz"]
    assert selection.settle(batch, {}, 0.0) is batch[1]
    assert selection.settle([], {}, 0.0) is None


def test_following_goes_to_a_running_trial_after_lingering() -> None:
    selection = Selection()
    shown = [trial(name) for name in "abc"]
    assert selection.settle(shown, {}, 1.0) is shown[0]
    shown[0].finished_at = 2.0
    assert selection.settle(shown, {}, 2.0 + LINGER_SEC / 2) is shown[0]
    assert selection.settle(shown, {}, 2.0 + LINGER_SEC) is shown[1]
    assert Selection().settle(shown, {}, 2.0 - 3600) is shown[1]  # the clock was set back
    shown[1].hold = PAUSED
    assert selection.settle(shown, {}, 9.0) is shown[1]


@pytest.mark.parametrize("count", [1, 2, 3, 8, 16, 32, 64])
@pytest.mark.parametrize("size", [(80, 17), (118, 24), (60, 10), (200, 50)])
def test_tiles_fit_side_by_side(count: int, size: tuple[int, int]) -> None:
    layout = tile_layout(count, *size)
    assert layout.columns * layout.width <= size[0]
    assert layout.height >= 1
    assert layout.width >= NARROWEST or layout.height == 1
    x, y = layout.place(count - 1)
    assert x + layout.width <= size[0]
    rows = -(-count // layout.columns)
    assert y == (rows - 1) * layout.height
    # They shrink until all are seen.
    if count <= (size[0] // 14) * size[1]:
        assert rows * layout.height <= size[1]
    else:
        assert layout.columns == size[0] // 14


def test_curves_stay_in_their_box_and_mark_points() -> None:
    style = Style(color="red")
    rows = curve([Series(((0, 0.0), (10, 1.0), (99, 2.0)), style, marks=True)], 20, 5, 10)
    assert len(rows) == 5
    assert all(sum(len(text) for text, _ in row) == 20 for row in rows)
    assert sum(text.count("•") for row in rows for text, _ in row) == 2
    assert curve([], 3, 1, 0) == [[("   ", None)]]


@pytest.mark.parametrize(
    ("ends", "labels"),
    [
        ((0.0, 1.0), ["0", ".2", ".4", ".6", ".8", "1.0"]),
        ((-0.05, 0.05), ["-.05", "0", ".05"]),
        ((0.0012, 0.0016), [".0012", ".0013", ".0014", ".0015", ".0016"]),
        ((0.0, 4e-14), ["0", "1e-14", "2e-14", "3e-14", "4e-14"]),
        ((0.99997, 1.00002), [".99997", ".99998", ".99999", "1.00000", "1.00001", "1.00002"]),
        ((0.0, 3000.0), ["0", "1,000", "2,000", "3,000"]),
        ((7.0, 7.0), ["7"]),
    ],
)
def test_the_numbers_of_an_axis_differ(ends: tuple[float, float], labels: list[str]) -> None:
    assert tick_labels(ticks(*ends, 5)) == labels


def test_numbers_bars_and_bins() -> None:
    assert [number(v) for v in (0, -0.0, -0.0004, 0.031, 0.61, 1, 12.4, 1234)] == [
        *(".00", ".00", ".00", ".031", ".61", "1.0", "12", "1,234")
    ]
    assert [rate(v) for v in (None, 0.0, 0.614, 1.0)] == ["  –", ".00", ".61", "1.0"]
    assert bar(0.5, 10) == "█" * 5
    assert bar(0.001, 10) == "▏"
    assert sparkline([0, 0, 1, 1], 2) == "▁█"
    assert sparkline([], 3) == "   "
    assert clip("漢字漢字", 5) == "漢字…"
    assert [(b.label, b.count) for b in reward_bins([0, 1, 1, 0.5], 6)] == [
        *(("0.0", 1), ("0.5", 1), ("1.0", 2))
    ]
    assert sum(b.count for b in reward_bins([i / 97 for i in range(98)], 6)) == 98


def test_tokens_flow_and_heat() -> None:
    rows = flow([("ab", -0.01), ("cdef\n", -3.0), ("\x1b[31m", -0.1)], 4)
    assert ["".join(p.text for p in row) for row in rows] == ["abcd", "ef⏎", "␛[31", "m"]
    assert heat_level(-0.0) == 0
    assert heat_level(-100.0) == 11
    assert unlikely_tokens([("a", -0.1), ("b", -2.0)]) == [1]


def test_the_current_batch_keeps_its_places() -> None:
    state = RunState()
    for each in (trial("old", 1, finished_at=1.0), trial("a", 2), trial("b", 2), trial("slow", 1)):
        state.trials[each.trial] = each
    state.trials["c"] = trial("c", 2)
    assert [t.trial for t in current_trials(state)] == ["a", "b", "slow", "c"]
    state.trials["a"].successor = "a2"
    state.trials["a"].finished_at = 3.0
    state.trials["a2"] = trial("a2", 2)
    assert [t.trial for t in current_trials(state)] == ["a2", "b", "slow", "c"]


def test_following_stops_when_its_time_is_up(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", 20.0).run
    ticks = iter(range(1000))
    live = LiveRun(run, lambda: START + 500, lambda: float(next(ticks)))
    live.follow(1.5)
    assert live.behind
    assert 0 < live.progress() < 1
    # What a trial did then has not lasted until now.
    assert live.now == live.state.time < START + 20
    # A trial's turns and story go no further than the rest of the screen.
    ended = {event.trial: event for event in events_of(run, TrialFinished)}
    running = next(each for each in live.state.live_trials() if each.trial in ended)
    assert live.stories.transcript(running).finished is None
    assert live.stories.story(running).ended == ""
    while live.behind:
        live.follow(100.0)
    assert live.stories.transcript(running).finished == ended[running.trial]
    assert live.now == START + 500


def test_a_recording_is_read_as_it_is_written(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "run")
    recordings = Recordings(run, time.monotonic)
    recordings.advance("t", ["t", "u"], 5.0)
    assert recordings.screen("t") is None
    path = run.recording("t")
    path.parent.mkdir()
    line = json.dumps([0.5, "o", "\x1b[31mhello \U0001f600"], ensure_ascii=False).encode() + b"\n"
    with path.open("wb", buffering=0) as file:
        file.write(b'{"version": 2, "width": 20, "height": 5}\n' + line[:-6])
        recordings.advance("t", [], 5.0)
        screen = recordings.screen("t")
        assert screen is not None
        assert screen.plain(0) == ""
        file.write(line[-6:])
        recordings.advance(None, ["t"], 5.0)
    assert screen.plain(0) == "hello \U0001f600"
    assert (screen.columns, screen.rows) == (20, 5)
    recordings.close()


async def test_one_that_is_left_or_recorded_ends_by_that_alone(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "run")
    recorded = WatchedRun(run)
    ended = asyncio.create_task(recorded.ended())
    await asyncio.sleep(0.05)
    assert not ended.done()
    with RunLock(run):
        live = WatchedRun(run)
        for host in (live, recorded):
            host.interrupt()
        assert (await live.ended()).reason == "left the recorded run"
    assert (await ended).status == "interrupted"
