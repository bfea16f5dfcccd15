"""Which trial a name means on the command line: the names are those on the screen."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from tbtui.ctl.reading import RunReading
from tbtui.ctl.targets import choose_trial
from tbtui.errors import UserError
from tbtui.journal.reader import Entry
from tbtui.journal.rundir import RunDirectory
from tbtui.view.fold import Fold
from tests.events import run_started, trial_finished, trial_queued


@pytest.fixture
def reading() -> RunReading:
    fold = Fold()
    events = (
        run_started(),
        trial_queued("s1-a", label="copy-01/1"),
        trial_finished("s1-a", 1.0),
        trial_queued("s1-b", label="copy-01/2"),
        trial_finished("s1-b", 0.0),
        trial_queued("s2-b", label="copy-01/2", step=2),
        trial_finished("s2-b", 1.0),
        trial_queued("s1-c", label="copy-01/3"),
        trial_finished("s1-c", 1.0),
        trial_queued("s2-c", label="copy-01/3", step=2),
        trial_queued("s2-d", label="move-01/1", step=2),
        trial_queued("e2-d", label="move-01/1", step=2, purpose="eval"),
    )
    fold.apply_all([Entry(seq, float(seq), event) for seq, event in enumerate(events, 1)])
    directory, reader = RunDirectory(Path("/runs/r")), cast("Any", None)
    return RunReading(directory, reader, fold.state, pid=None, now=0.0)


@pytest.mark.parametrize(
    ("name", "trial"),
    [
        ("s1-b", "s1-b"),
        ("copy-01/1", "s1-a"),  # ended, and no other has its label
        ("copy-01/2", "s2-b"),  # ended: of the latest step
        ("copy-01/3", "s2-c"),  # live
    ],
)
def test_a_trial_has_the_name_that_is_on_the_screen(
    reading: RunReading, name: str, trial: str
) -> None:
    assert choose_trial(name, reading).trial == trial


def test_a_name_of_two_live_trials_names_both(reading: RunReading) -> None:
    with pytest.raises(UserError, match=r"move-01/1: several trials: s2-d, e2-d"):
        choose_trial("move-01/1", reading)


def test_where_there_is_no_such_trial_those_of_its_run_are_listed(reading: RunReading) -> None:
    listed = "see: tbtui ctl trial list --run /runs/r --ended"
    with pytest.raises(UserError, match=f"zzz: no such trial, or long gone from .*; {listed}$"):
        choose_trial("zzz", reading)
