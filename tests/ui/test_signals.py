"""Alarms, intervals and staleness on the screen: a glyph and a word, not colour alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from textual.pilot import Pilot

from tbtui.journal.events import (
    AnyEvent,
    RunPhase,
    RunPhaseChanged,
    StepFinished,
    StepStarted,
    TrialPhase,
    TrialPhaseChanged,
)
from tbtui.ui.application import TbtuiApp
from tbtui.ui.panes.grid import TrialGrid
from tbtui.ui.panes.pane import Pane
from tests.events import run_started, trial_finished, trial_queued
from tests.ui.opening import Opener, SimulatedHost
from tests.ui.picture import settle


def pane(pilot: Pilot[int], name: str) -> Pane:
    return pilot.app.screen.query_one(f"#{name}", Pane)


async def test_an_alarm_is_in_the_status_line_and_in_words_among_the_notes(
    opened: Opener,
) -> None:
    async with opened() as pilot:
        assert "⚑1 sampler mismatch" in pane(pilot, "status").text
        assert "⚑1" in str(pane(pilot, "notes").border_title)
        notes = pane(pilot, "notes").text
        assert "⚑" in notes
        assert "sampler mismatch at step 1" in notes
        assert "nats" in notes


async def test_in_a_small_window_the_count_stays_and_a_key_brings_the_words(
    opened: Opener,
) -> None:
    async with opened((80, 24)) as pilot:
        assert "⚑1" in pane(pilot, "status").text
        await pilot.press("6")
        assert "sampler mismatch" in pane(pilot, "notes").text


async def test_the_held_out_rate_has_its_interval_and_the_step_its_signals(
    opened: Opener,
) -> None:
    async with opened() as pilot:
        curve = pane(pilot, "curve").text
        assert ".19 .00–.38" in curve
        assert "-log p .34" in curve
        assert "KL .003" in curve
        assert "stale" not in curve


async def test_staleness_is_shown_where_there_is_any(
    steered: Opener, simulated: SimulatedHost
) -> None:
    simulated.simulation._write(
        StepFinished(step=1, weights_version=1, metrics={"async/staleness_max": 2.0})
    )
    async with steered((200, 60)) as pilot:
        assert "stale 2" in pane(pilot, "curve").text
        await pilot.resize_terminal(80, 24)
        await pilot.pause()
        assert isinstance(pilot.app, TbtuiApp)
        await settle(pilot.app)
        assert "stale 2" in pane(pilot, "summary").text


async def test_two_steps_under_way_are_told_apart(
    past_app: Callable[..., TbtuiApp], tmp_path: Path
) -> None:
    from tbtui.journal.rundir import RunDirectory
    from tbtui.journal.writer import JournalWriter

    run = RunDirectory.create(tmp_path / "ahead")
    with JournalWriter(run) as writer:
        for event in _sampled_ahead():
            writer.append(event)
    app = past_app(directory=run)
    async with app.run_test(size=(200, 60)) as pilot:
        await settle(app)
        status = pilot.app.screen.query_one("#status", Pane).text
        assert "step 1 of 2 · sampling 1/2 · ahead 1/2" in status
        title = str(pilot.app.screen.query_one(TrialGrid).border_title)
        assert title == "trials · 2 running · step 1 1/2 · step 2 1/2"
        assert "what step 1 waits for" in str(
            pilot.app.screen.query_one("#times", Pane).border_title
        )


def _sampled_ahead() -> Iterator[AnyEvent]:
    """Two steps of one group of two each; the first trial of each has ended."""
    yield run_started(run="ahead", tasks_dir="/tasks/starter", settings={"max_steps": 2})
    for step in (1, 2):
        yield StepStarted(step=step, groups={f"g{step}": "copy-01"})
    yield RunPhaseChanged(phase=RunPhase.SAMPLING, step=0)
    for step in (1, 2):
        for number in (1, 2):
            trial = f"g{step}-{number}"
            yield trial_queued(trial, label=f"copy-01/{number}", group=f"g{step}", step=step)
            yield TrialPhaseChanged(trial=trial, phase=TrialPhase.ACTING)
    for step in (2, 1):
        yield trial_finished(f"g{step}-1", 1.0)
