"""What the cockpit's panes say of what is rare: no last step, equal groups, tiny numbers."""

from __future__ import annotations

import shutil
from contextlib import closing
from pathlib import Path

import pytest

from tbtui.journal.events import (
    AnyEvent,
    EvalFinished,
    GroupScored,
    SettingsChanged,
    StepFinished,
    TrialPhase,
    TrialPhaseChanged,
    TrialScore,
)
from tbtui.journal.reader import JournalReader
from tbtui.journal.rundir import RunDirectory
from tbtui.journal.writer import JournalWriter
from tbtui.ui.notifications import title
from tbtui.ui.theme.glyphs import LEGEND, SUSPECT_MARK, trial_glyph
from tests.ui.opening import Opener, app_of, pane
from tests.ui.picture import settle
from tests.ui.synthetic import START

SECONDS = 40.0
"""What the run that all tests of screens share is long."""


def write_on(run: RunDirectory, *events: AnyEvent) -> None:
    """These events come next, a second after one another."""
    moments = iter(range(1, len(events) + 1))
    with JournalWriter(run, lambda: START + SECONDS + next(moments), continues=True) as writer:
        for event in events:
            writer.append(event)


@pytest.fixture
def run(run_directory: RunDirectory, tmp_path: Path) -> RunDirectory:
    """A run that may be written on."""
    return RunDirectory(shutil.copytree(run_directory.path, tmp_path / "run"))


@pytest.fixture
def odd_run(run: RunDirectory) -> RunDirectory:
    """A run without a last step; of its second step two groups taught nothing, and trials start."""
    with closing(JournalReader(run)) as reader:
        trials = sorted(reader.live_trials(reader.last_seq()))
    states = [TrialPhase.SETUP] * 3 + [TrialPhase.VERIFYING]
    score = TrialScore(reward=1.0, advantage=0.0, tokens=9)
    scored = [
        GroupScored(
            step=2,
            group=f"g{number}",
            task="copy-01",
            disposition=disposition,
            baseline=1.0,
            trials={"t": score},
        )
        for number, disposition in enumerate(("constant", "trained", "constant"))
    ]
    metrics = {"optim/kl_sample_train_v2": 4e-14, "optim/surprise": 0.3}
    write_on(
        run,
        SettingsChanged(before={"max_steps": 6}, settings={"max_steps": None}),
        *(
            TrialPhaseChanged(trial=trial, phase=phase)
            for trial, phase in zip(trials, states, strict=False)
        ),
        *scored,
        StepFinished(step=2, weights_version=2, metrics=metrics),
    )
    return run


async def test_what_is_rare_is_told_truly(opened: Opener, odd_run: RunDirectory) -> None:
    clock = START + SECONDS + 9
    async with opened((140, 45), directory=odd_run, clock=lambda: clock) as pilot:
        state = app_of(pilot).live_run.state
        assert "step 2 · sampling" in pane(pilot, "status").text
        assert title(state, "").startswith(f"tbtui {state.run}: step 2, ")
        (sandboxes,) = [row for row in pane(pilot, "queue").text.splitlines() if "sandb" in row]
        assert sandboxes.split() == ["sandboxes", "3◌", "·", "13"]
        timeline = pane(pilot, "timeline").text
        assert " =2 " in timeline
        # Of both steps in sight: four groups of step 1, three of step 2.
        assert "= groups without signal 2/7" in timeline
        (kl,) = [row for row in pane(pilot, "curve").text.splitlines() if row.startswith(" KL")]
        assert kl.split()[:2] == ["KL", ".00"]
        assert "◌" in pane(pilot, "trials").text
        palette = app_of(pilot).palette
        verified = [t for t in state.live_trials() if t.phase is TrialPhase.VERIFYING]
        assert [trial_glyph(each, palette).char for each in verified] == ["▞"]
        await pilot.resize_terminal(80, 24)
        await settle(app_of(pilot))
        assert "of 0" not in pane(pilot, "summary").text
        assert "/0" not in pane(pilot, "summary").text


def test_every_mark_means_one_thing() -> None:
    marks = [mark for mark, _ in LEGEND]
    assert len(set(marks)) == len(marks)
    assert SUSPECT_MARK not in marks


async def test_an_evaluation_alone_changes_the_held_out_column(
    opened: Opener, run: RunDirectory
) -> None:
    async with opened(directory=run) as pilot:
        assert "◇.31" not in pane(pilot, "tasks").text
        write_on(
            run,
            EvalFinished(
                step=1,
                weights_version=1,
                temperature=1.0,
                pass_rate=0.31,
                scored=8,
                unscored=0,
                by_kind={"copy": 0.31},
            ),
        )
        app_of(pilot).tick()
        await settle(app_of(pilot))
        (copy,) = [row for row in pane(pilot, "tasks").text.splitlines() if "copy" in row]
        assert ".31" in copy
