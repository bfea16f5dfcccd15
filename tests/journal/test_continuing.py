"""A journal that is opened again, by one process at a time."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

from tbtui.journal.database import FORMAT, JournalError
from tbtui.journal.events import CheckpointSaved, Noted, TurnSampled
from tbtui.journal.reader import JournalReader
from tbtui.journal.rundir import RunDirectory, RunDirectoryError, RunLock, require_no_writer, writer
from tbtui.journal.samples import pack_floats, pack_ids, pack_texts
from tbtui.journal.writer import JournalWriter
from tests.events import sample_record, turn_sampled

pytestmark = pytest.mark.uid


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    return RunDirectory.create(tmp_path / "run")


def note(text: str) -> Noted:
    return Noted(level="info", text=text)


def test_one_with_the_table_of_checkpoints_that_journals_had_goes_on(run: RunDirectory) -> None:
    JournalWriter(run).close()
    with sqlite3.connect(run.database) as db:
        db.execute("CREATE TABLE checkpoints (step INTEGER PRIMARY KEY, path TEXT NOT NULL)")
    saved = CheckpointSaved(step=1, weights_version=1, path="checkpoints/step_0001")
    with JournalWriter(run) as journal:
        journal.append(saved)
    assert [record.event for record in JournalReader(run).read(0, 10)] == [saved]


def test_a_journal_goes_on_where_it_ended(run: RunDirectory) -> None:
    with JournalWriter(run) as journal:
        journal.append(note("one"))
        journal.add_sample(sample_record("a", prompt_ids=(1, 2)))
    with JournalWriter(run, continues=True) as journal:
        assert journal.append(note("two")) == 2
        journal.add_sample(sample_record("b", prompt_ids=(1, 2, 3), summary=True))
    reader = JournalReader(run)
    assert [entry.event for entry in reader.read(0)] == [note("one"), note("two")]
    (first,), (second,) = reader.samples("a"), reader.samples("b")
    assert (first.prompt_ids, first.summary) == ((1, 2), False)
    assert (second.prompt_ids, second.summary) == ((1, 2, 3), True)


def test_one_without_the_models_own_log_probabilities_is_read_and_goes_on(
    run: RunDirectory,
) -> None:
    """At another temperature than 1, what was recorded then is not the model's."""
    JournalWriter(run).close()
    with sqlite3.connect(run.database) as db:
        db.execute("ALTER TABLE samples DROP COLUMN model_logprobs")
        columns = "trial, turn, carried, new_prompt_ids, completion_ids, logprobs, pieces"
        columns += ", prompt_text, stop_reason, weights_version, temperature, seconds, summary"
        drawn = (pack_ids((1,)), pack_ids((2, 3)), pack_floats([-1.0, -2.0]))
        texts = (pack_texts(["a", "b"]), pack_texts([""]))
        for trial, temperature in (("own", 1.0), ("cold", 0.5)):
            row = (trial, 1, 0, *drawn, *texts, "stop", 0, temperature, 0.1, 0)
            marks = ", ".join("?" * len(row))
            db.execute(f"INSERT INTO samples ({columns}) VALUES ({marks})", row)
    for _ in range(2):
        reader = JournalReader(run)
        (own,), (cold,) = reader.samples("own"), reader.samples("cold")
        reader.close()
        assert own.model_logprobs is None
        assert own.of_model.tolist() == own.logprobs.tolist() == [-1.0, -2.0]
        assert np.isnan(cold.of_model).all()
        models = np.array([-0.25, np.nan], np.float32)
        with JournalWriter(run, continues=True) as journal:
            record = sample_record("new", ("c", "d"), temperature=0.5, model_logprobs=models)
            journal.add_sample(record)
    reader = JournalReader(run)
    for new in reader.samples("new"):
        np.testing.assert_array_equal(new.of_model, models)
    reader.close()


def test_a_journal_is_never_begun_over_another(run: RunDirectory) -> None:
    with JournalWriter(run), pytest.raises(RunDirectoryError, match="is live"):
        JournalWriter(run, continues=True)
    journal_of_nothing = RunDirectory.create(run.path.parent / "empty")
    with pytest.raises(JournalError, match="can't be read"):
        JournalWriter(journal_of_nothing, continues=True)
    # A refused one gives the lock back.
    assert writer(journal_of_nothing) is None


@pytest.mark.parametrize("continues", [False, True])
def test_a_live_run_is_named_with_its_process(run: RunDirectory, continues: bool) -> None:
    with JournalWriter(run):
        assert writer(run) == os.getpid()
        with pytest.raises(RunDirectoryError, match=f"is live .process {os.getpid()}."):
            require_no_writer(run)
        with pytest.raises(RunDirectoryError, match=f"process {os.getpid()}"):
            JournalWriter(run, continues=continues)
    assert writer(run) is None
    require_no_writer(run)
    # Neither look has taken the lock.
    with RunLock(run):
        assert writer(run) == os.getpid()


def test_a_killed_writer_leaves_its_journal_and_no_lock(run: RunDirectory) -> None:
    program = """
        import sys, time
        from pathlib import Path
        from tbtui.journal.events import Noted
        from tbtui.journal.rundir import RunDirectory
        from tbtui.journal.writer import JournalWriter
        journal = JournalWriter(RunDirectory(Path(sys.argv[1])))
        number = 0
        while True:
            number += 1
            journal.append(Noted(level="info", text=str(number)))
            print(number, flush=True)
    """
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program), str(run.path)], stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    said = 0
    while said < 50:
        said = int(process.stdout.readline())
    with pytest.raises(RunDirectoryError, match=f"process {process.pid}"):
        require_no_writer(run)
    process.send_signal(signal.SIGKILL)
    rest = process.stdout.read().split()
    process.wait()
    said = int(rest[-1]) if rest else said
    require_no_writer(run)
    with JournalWriter(run, continues=True) as journal:
        last = journal.append(note("after"))
    texts = [e.event.text for e in JournalReader(run).read(0, last) if isinstance(e.event, Noted)]
    assert texts[:said] == [str(number) for number in range(1, said + 1)]
    # At most the event that was being written is more than what was announced.
    assert len(texts) - 1 - said in (0, 1)
    assert texts[-1] == "after"


def test_another_format_is_refused_in_one_line(run: RunDirectory) -> None:
    JournalWriter(run).close()
    db = sqlite3.connect(run.database)
    db.execute(f"PRAGMA user_version = {FORMAT - 1}")
    db.commit()
    db.close()
    line = f"journal format {FORMAT - 1}, this tbtui reads {FORMAT}"
    with pytest.raises(JournalError, match=line) as refused:
        JournalWriter(run, continues=True)
    assert "\n" not in str(refused.value)
    with pytest.raises(JournalError, match=line):
        JournalReader(run)


def test_calls_that_were_answered_after_an_event_can_be_left_out(run: RunDirectory) -> None:
    def sampled(row: int) -> TurnSampled:
        return turn_sampled("a", sample=row)

    with JournalWriter(run) as journal:
        journal.append(sampled(journal.add_sample(sample_record("a", prompt_ids=(1,)))))
        end = journal.append(note("over"))
        journal.append(sampled(journal.add_sample(sample_record("a", prompt_ids=(1, 2, 3, 4)))))
    reader = JournalReader(run)
    assert reader.sampled("a", end) == 1
    assert [s.prompt_ids for s in reader.samples("a", limit=1)] == [(1,)]
    assert len(reader.samples("a")) == 2
