"""The journal through its real file: what is written is what is read, even after a kill."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tbtui.journal.database import JournalError
from tbtui.journal.events import (
    AgentCommand,
    Noted,
    Outcome,
    PhaseSeconds,
    RunPaused,
    TrialFinished,
    TurnObserved,
    TurnParsed,
    TurnStarted,
)
from tbtui.journal.reader import JournalReader
from tbtui.journal.rundir import RunDirectory, RunDirectoryError
from tbtui.journal.samples import SampleRecord, shared_prefix
from tbtui.journal.writer import JournalWriter

HOSTILE = "[/bold] \x1b[31m\x00 \ud7ff 🦀 \u202e" + "x" * 100_000


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    return RunDirectory.create(tmp_path / "run")


def test_events_come_back_as_they_were_written(run: RunDirectory) -> None:
    events = [
        RunPaused(),
        TurnStarted(trial="a", turn=1),
        TurnParsed(
            trial="a",
            turn=1,
            analysis=HOSTILE,
            plan="",
            commands=(AgentCommand(keystrokes="ls\n", duration_sec=0.1),),
            task_complete=False,
        ),
        TurnObserved(trial="a", turn=1, observation=HOSTILE, seconds=0.5),
        TrialFinished(
            trial="a",
            outcome=Outcome.SANDBOX_LOST,
            reason="gone",
            verdict=None,
            reward=None,
            turns=1,
            seconds=PhaseSeconds(sampling=0.25),
        ),
    ]
    times = itertools.count(100.0)
    with JournalWriter(run, clock=lambda: next(times)) as writer:
        assert [writer.append(event) for event in events] == [1, 2, 3, 4, 5]
    reader = JournalReader(run)
    entries = reader.read(0)
    assert [entry.event for entry in entries] == events
    assert [entry.time for entry in entries] == [100.0, 101.0, 102.0, 103.0, 104.0]
    assert [entry.seq for entry in reader.read_trial("a", after=2)] == [3, 4, 5]
    assert reader.last_seq() == 5


def test_a_reader_follows_a_growing_journal_in_bites(run: RunDirectory) -> None:
    with JournalWriter(run) as writer:
        reader = JournalReader(run)
        assert reader.read(0) == []
        for turn in range(5):
            writer.append(TurnStarted(trial="a", turn=turn))
        first = reader.read(0, limit=3)
        assert [entry.seq for entry in first] == [1, 2, 3]
        assert [entry.seq for entry in reader.read(first[-1].seq)] == [4, 5]


calls = st.lists(
    st.tuples(
        st.booleans(),
        st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=6),
        st.lists(st.integers(0, 1000), max_size=6),
    ),
    min_size=1,
    max_size=5,
)


@settings(max_examples=20)
@given(calls)
def test_tokens_are_stored_once_and_restored_exactly(
    tmp_path_factory: pytest.TempPathFactory, calls: list[tuple[bool, list[int], list[int]]]
) -> None:
    run = RunDirectory.create(tmp_path_factory.mktemp("runs") / "run")
    written = []
    history: tuple[int, ...] = ()
    with JournalWriter(run) as writer:
        for turn, (extends, prompt, completion) in enumerate(calls, 1):
            ids = (*history, *prompt) if extends else tuple(prompt)
            written.append(
                SampleRecord(
                    trial="a",
                    turn=turn,
                    prompt_ids=ids,
                    completion_ids=tuple(completion),
                    logprobs=-np.arange(len(completion), dtype=np.float32) / 7,
                    pieces=tuple(f"[{c}]\x1b" for c in completion),
                    prompt_text=HOSTILE[:40],
                    stop_reason="stop",
                    weights_version=3,
                    temperature=1.0,
                    seconds=0.5,
                )
            )
            row = writer.add_sample(written[-1])
            history = ids + tuple(completion)
    reader = JournalReader(run)
    for record, wrote in zip(reader.samples("a"), written, strict=True):
        assert (record.prompt_ids, record.completion_ids) == (
            wrote.prompt_ids,
            wrote.completion_ids,
        )
        np.testing.assert_array_equal(record.logprobs, wrote.logprobs)
        assert (record.pieces, record.prompt_text) == (wrote.pieces, wrote.prompt_text)
    assert [piece for piece, _ in reader.sample_tokens(row)] == list(written[-1].pieces)
    reader.close()


def test_broken_text_does_not_break_the_journal(run: RunDirectory) -> None:
    broken = "a\ud800b\udfff"  # lone surrogates, which no file and no terminal takes
    record = SampleRecord(
        trial="a",
        turn=1,
        prompt_ids=(1,),
        completion_ids=(2, 3),
        logprobs=np.zeros(2, np.float32),
        pieces=("x", broken),
        prompt_text=broken,
        stop_reason="stop",
        weights_version=0,
        temperature=1.0,
        seconds=0.5,
    )
    with JournalWriter(run) as writer:
        writer.add_sample(record)
        writer.append(
            TurnParsed(
                trial="a",
                turn=1,
                analysis=broken,
                plan="\x00\N{CRAB}",
                commands=(AgentCommand(keystrokes=broken, duration_sec=0.1),),
                task_complete=False,
            )
        )
    reader = JournalReader(run)
    (read,) = reader.samples("a")
    assert (read.pieces, read.prompt_text) == (("x", "a?b?"), "a?b?")
    (entry,) = reader.read(0, 10)
    assert isinstance(entry.event, TurnParsed)
    assert (entry.event.analysis, entry.event.plan) == ("a?b?", "\x00\N{CRAB}")
    assert entry.event.commands[0].keystrokes == "a?b?"
    reader.close()


@given(st.lists(st.integers(0, 3)), st.lists(st.integers(0, 3)))
def test_the_shared_prefix_is_the_longest(one: list[int], other: list[int]) -> None:
    n = shared_prefix(one, other)
    assert one[:n] == other[:n]
    assert n == min(len(one), len(other)) or one[n] != other[n]


def test_a_killed_writer_loses_at_most_the_event_being_written(tmp_path: Path) -> None:
    program = textwrap.dedent(
        """
        import sys
        from pathlib import Path
        from tbtui.journal.events import Noted
        from tbtui.journal.rundir import RunDirectory
        from tbtui.journal.writer import JournalWriter
        writer = JournalWriter(RunDirectory.create(Path(sys.argv[1])))
        while True:
            print(writer.append(Noted(level="info", text="x" * 200)), flush=True)
        """
    )
    where = tmp_path / "run"
    with subprocess.Popen(
        [sys.executable, "-c", program, str(where)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        said = [int(process.stdout.readline()) for _ in range(200)]
        os.kill(process.pid, signal.SIGKILL)
    reader = JournalReader(RunDirectory.open(where))
    entries = reader.read(0, limit=100_000)
    assert [entry.seq for entry in entries] == list(range(1, len(entries) + 1))
    assert len(entries) >= said[-1]
    assert all(entry.event == Noted(level="info", text="x" * 200) for entry in entries)


def test_a_full_disk_is_one_clear_line(run: RunDirectory) -> None:
    with JournalWriter(run) as writer:
        writer.append(RunPaused())
        # The same refusal as a full disk gives, without filling one.
        writer._db.execute("PRAGMA max_page_count = 1")
        with pytest.raises(JournalError, match=r"run\.db: can't write the journal \(.*full\)"):
            writer.append(Noted(level="info", text="x" * 100_000))
    assert len(JournalReader(run).read(0)) == 1


def test_a_run_directory_is_never_reused(run: RunDirectory) -> None:
    with pytest.raises(RunDirectoryError, match="a run is already there"):
        RunDirectory.create(run.path)


def test_what_is_not_a_run_is_said(tmp_path: Path) -> None:
    with pytest.raises(RunDirectoryError, match=r"no run here \(run.db is missing\)"):
        RunDirectory.open(tmp_path)


def test_a_file_in_the_way_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunDirectoryError, match="choose a writable place"):
        RunDirectory.create(tmp_path / "file" / "run")


def test_a_journal_of_another_version_is_refused(run: RunDirectory) -> None:
    with JournalWriter(run) as writer:
        writer._db.execute("PRAGMA user_version = 99")
    with pytest.raises(JournalError, match="journal format 99, this tbtui reads"):
        JournalReader(run)
