"""The journal through its real file: what is written is what is read, even after a kill."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tbtui.journal.database import JournalError
from tbtui.journal.events import (
    AgentCommand,
    Noted,
    PhaseSeconds,
    RunPaused,
    TurnObserved,
    TurnParsed,
    TurnStarted,
)
from tbtui.journal.reader import JournalReader
from tbtui.journal.rundir import RunDirectory, RunDirectoryError
from tbtui.journal.samples import shared_prefix
from tbtui.journal.writer import JournalWriter
from tests.events import sample_record, trial_finished, turn_parsed

HOSTILE = "[/bold] \x1b[31m\x00 \ud7ff 🦀 \u202e" + "x" * 100_000


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    return RunDirectory.create(tmp_path / "run")


def test_events_come_back_as_they_were_written(run: RunDirectory) -> None:
    events = [
        RunPaused(),
        TurnStarted(trial="a", turn=1),
        turn_parsed(
            "a", analysis=HOSTILE, commands=(AgentCommand(keystrokes="ls\n", duration_sec=0.1),)
        ),
        TurnObserved(trial="a", turn=1, observation=HOSTILE, seconds=0.5),
        trial_finished("a", None, reason="gone", seconds=PhaseSeconds(sampling=0.25)),
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
                sample_record(
                    "a",
                    turn=turn,
                    prompt_ids=ids,
                    completion_ids=tuple(completion),
                    logprobs=-np.arange(len(completion), dtype=np.float32) / 7,
                    pieces=tuple(f"[{c}]\x1b" for c in completion),
                    prompt_text=HOSTILE[:40],
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


def test_texts_longer_than_readers_take_lose_their_middle_or_end(run: RunDirectory) -> None:
    long = "\0" * (6 << 20) + "end"
    record = sample_record("a", ("x", long), prompt_text=long)
    with JournalWriter(run) as writer:
        writer.add_sample(record)
        writer.append(TurnObserved(trial="a", turn=1, observation=long, seconds=0.1))
    reader = JournalReader(run)
    (read,) = reader.samples("a")
    assert read.pieces[0] == "x"
    assert long.startswith(read.pieces[1])
    assert long.startswith(read.prompt_text)
    assert min(len(read.pieces[1]), len(read.prompt_text)) > 1 << 20
    (entry,) = reader.read(0, 10)
    assert isinstance(entry.event, TurnObserved)
    assert entry.event.observation.startswith("\0")
    assert entry.event.observation.endswith("end")
    reader.close()


def test_broken_text_does_not_break_the_journal(run: RunDirectory) -> None:
    broken = "a\ud800b\udfff"  # lone surrogates, which no file and no terminal takes
    record = sample_record("a", pieces=("x", broken), prompt_text=broken)
    with JournalWriter(run) as writer:
        writer.add_sample(record)
        writer.append(
            turn_parsed(
                "a",
                analysis=broken,
                plan="\x00\N{CRAB}",
                commands=(AgentCommand(keystrokes=broken, duration_sec=0.1),),
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
