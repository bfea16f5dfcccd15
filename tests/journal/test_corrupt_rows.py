"""A journal in which single rows are not what was written: bit rot, or half a row."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tbtui.console import HumanLines
from tbtui.journal.database import JournalError
from tbtui.journal.reader import JournalReader
from tbtui.journal.rundir import RunDirectory
from tbtui.journal.search import search
from tbtui.journal.summaries import read_history, summarise
from tbtui.journal.timeline import Timeline
from tbtui.journal.writer import JournalWriter
from tbtui.view.reading import state_at_end
from tests.events import HALF_WRITTEN, entries_of, spoil
from tests.view.story import one_step_run

SPOILT = {"half": HALF_WRITTEN, "empty": "", "another's": '{"x": 1}', "no text": b'{"run": "\xff"}'}


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    run = RunDirectory.create(tmp_path / "runs" / "r")
    with JournalWriter(run) as journal:
        for event in one_step_run():
            journal.append(event)
    return run


@pytest.mark.parametrize("how", SPOILT)
def test_whichever_row_is_spoilt_it_is_named_and_the_others_are_shown(
    run: RunDirectory, tmp_path: Path, how: str
) -> None:
    whole = entries_of(run)
    for entry in whole:
        copy = RunDirectory(tmp_path / "copy")
        shutil.copytree(run.path, copy.path)
        spoil(copy, entry.seq, SPOILT[how])
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


def test_a_search_goes_on_past_it_and_says_so(run: RunDirectory) -> None:
    (observed,) = [e for e in entries_of(run) if e.event.kind == "turn_observed"]
    spoil(run, observed.seq, '{"observation": "The file')
    hits = []
    with pytest.raises(JournalError, match=rf"row {observed.seq} \(turn_observed\) is corrupt"):
        for progress in search(run, "The file"):
            hits += progress.hits
    assert [hit.where for hit in hits] == ["said"]
