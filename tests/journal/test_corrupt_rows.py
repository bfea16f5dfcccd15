"""A journal in which single rows are not what was written: bit rot, or half a row."""

from __future__ import annotations

import contextlib
import itertools
import shutil
import sqlite3
from pathlib import Path

import pytest

from tbtui.console import HumanLines
from tbtui.journal.database import JournalError
from tbtui.journal.events import AnyEvent, GroupScored, TrialFinished, TrialQueued
from tbtui.journal.history import read_history
from tbtui.journal.reader import JournalReader
from tbtui.journal.rundir import RunDirectory
from tbtui.journal.search import search
from tbtui.journal.timeline import Timeline
from tbtui.view.reading import state_at_end
from tbtui.view.runs import summarise
from tests.events import HALF_WRITTEN, entries_of, spoil, write_journal
from tests.view.story import one_step_run

SPOILT = (HALF_WRITTEN, "", '{"x": 1}', b'{"run": "\xff"}')
"""Half of it, nothing, another's, and no text: each row in one of these ways, in turn."""


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    return write_journal(RunDirectory.create(tmp_path / "runs" / "r"), one_step_run())


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        (TrialQueued, "the journal lacks its beginning (trial_queued): no count of a step has it"),
        (TrialFinished, "the journal lacks the end (trial_finished) of 1 of the"),
    ],
)
def test_a_journal_that_lacks_a_trial_says_so(
    run: RunDirectory, kind: type[AnyEvent], says: str
) -> None:
    scored = next(e.event for e in entries_of(run) if isinstance(e.event, GroupScored))
    lacking = next(
        entry.seq
        for entry in entries_of(run)
        if isinstance(entry.event, kind) and getattr(entry.event, "trial", "") in scored.trials
    )
    spoil(run, lacking)
    reader, lines = JournalReader(run, lenient=True), HumanLines()
    shown = [line for each in reader.read(0) for line in lines.lines(each)]
    assert sum(says in line for line in shown) == 1
    assert sum(says in note.text for note in state_at_end(reader).notes) == 1


def test_whichever_row_is_spoilt_it_is_named_and_the_others_are_shown(
    run: RunDirectory, tmp_path: Path
) -> None:
    whole = entries_of(run)
    for entry, how in zip(whole, itertools.cycle(SPOILT), strict=False):
        copy = RunDirectory(tmp_path / "copy")
        shutil.copytree(run.path, copy.path)
        spoil(copy, entry.seq, how)
        row = f"row {entry.seq} ({entry.event.kind})"

        with pytest.raises(JournalError) as refused:
            JournalReader(copy).read(0)
        assert str(refused.value).startswith(f"{copy.database}: {row} is corrupt; put ")
        reader, lines = JournalReader(copy, lenient=True), HumanLines()
        assert state_at_end(reader).seq == len(whole)
        assert reader.trouble == f"{row} of {copy.database} is corrupt, and left out here"
        shown = [line for each in reader.read(0) for line in lines.lines(each)]
        assert sum(f"row {entry.seq} of the journal" in line for line in shown) == 1
        others = [each for each in whole if each.seq != entry.seq]
        assert [each for each in reader.read(0) if each.seq != entry.seq] == others

        # What looks for places needs no more than the rows that it finds.
        timeline = Timeline(copy)
        assert timeline.bounds() == (whole[0].time, whole[-1].time)
        for look in (timeline.event, timeline.milestone, timeline.failure):
            look(whole[0].time, 1)
        if entry.event.kind != "trial_queued":
            assert timeline.find_trials("move-07")[0][0] == "e1"
        assert timeline.find_trials("e1")[0][0] == "e1"
        summary = summarise(copy)
        assert summary.standing == "finished" or row in summary.reason
        read_history(copy)
        shutil.rmtree(copy.path)


@pytest.mark.parametrize("missing", [1, 20, -1])
def test_events_are_found_by_their_time_whichever_is_missing(
    run: RunDirectory, missing: int
) -> None:
    whole = entries_of(run)
    gone = whole.pop(missing)
    with contextlib.closing(sqlite3.connect(run.database, autocommit=True)) as db:
        db.execute("DELETE FROM events WHERE seq = ?", (gone.seq,))
    timeline = Timeline(run)
    assert all(timeline.seq_at(each.time) >= each.seq for each in whole)


def test_a_search_goes_on_past_it_and_says_so(run: RunDirectory) -> None:
    (observed,) = [e for e in entries_of(run) if e.event.kind == "turn_observed"]
    spoil(run, observed.seq, '{"observation": "The file')
    hits = []
    with pytest.raises(JournalError, match=rf"row {observed.seq} \(turn_observed\) is corrupt"):
        for progress in search(run, "The file"):
            hits += progress.hits
    assert [hit.where for hit in hits] == ["said"]
