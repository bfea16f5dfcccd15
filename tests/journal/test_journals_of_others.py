"""Runs with odd names, in directories that one mayn't write or read, and with damage."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tbtui.journal.database import Database, JournalError
from tbtui.journal.events import Noted, TurnObserved
from tbtui.journal.history import read_history
from tbtui.journal.reader import JournalReader
from tbtui.journal.rundir import RunDirectory, RunDirectoryError, RunLock, find_run, is_live, writer
from tbtui.journal.search import search
from tbtui.journal.timeline import Timeline
from tbtui.journal.writer import JournalWriter
from tbtui.paths import PathError, expanded
from tbtui.view.runs import find_runs, summarise
from tests.events import damage, run_started, trial_finished, trial_queued
from tests.unprivileged import reachable_directory, unprivileged

pytestmark = pytest.mark.uid


def write(path: Path) -> RunDirectory:
    run = RunDirectory.create(path)
    with JournalWriter(run) as journal:
        journal.append(run_started(run="r", settings={"agent": "terminus-2"}))
        journal.append(trial_queued("a"))
        for turn in range(1, 30):
            journal.append(TurnObserved(trial="a", turn=turn, observation="saw " * 800, seconds=1))
        journal.append(trial_finished("a", 1.0))
    return run


def share(run: RunDirectory) -> None:
    """As `chmod -R a+rX,a-w` does; made, a run is its user's alone."""
    run.path.chmod(0o555)
    run.lock.chmod(0o644)


@pytest.fixture
def shared() -> Iterator[Path]:
    with reachable_directory() as directory:
        yield directory


@pytest.mark.parametrize("name", ["a#1", "b?mode=rwc", "c%23", "d e&immutable=1", "ü=1"])
def test_a_run_may_be_called_anything(tmp_path: Path, name: str) -> None:
    run = write(tmp_path / "runs" / name)
    assert summarise(run).standing == "killed"
    history = read_history(run)
    assert history is not None
    assert [each.solved for each in history.tasks] == [1]
    assert JournalReader(run).last_seq() == 32
    assert [path.name for path in (tmp_path / "runs").iterdir()] == [name]


def test_a_run_in_a_directory_that_cannot_be_written_is_read(shared: Path) -> None:
    run = write(shared / "r")
    share(run)
    with unprivileged():
        assert JournalReader(run).last_seq() == 32
        assert summarise(run).rollouts == 1
        assert sum(len(progress.hits) for progress in search(run, "saw")) == 29


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be two users")
def test_so_is_one_that_another_user_writes(shared: Path) -> None:
    run = RunDirectory.create(shared / "r")
    with JournalWriter(run) as journal:
        share(run)
        journal.append(Noted(level="info", text="one"))
        with unprivileged():
            reader = JournalReader(run)
            assert reader.last_seq() == 1
            assert writer(run) == os.getpid()
        journal.append(Noted(level="info", text="two"))
        with unprivileged():
            assert reader.last_seq() == 2


_KILLED = """
import os, signal, sys
from pathlib import Path
from tbtui.journal.events import Noted
from tbtui.journal.rundir import RunDirectory
from tbtui.journal.writer import JournalWriter
journal = JournalWriter(RunDirectory.create(Path(sys.argv[1])))
journal.append(Noted(level="info", text="one"))
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_and_one_whose_process_was_killed(shared: Path) -> None:
    run = RunDirectory(shared / "r")
    killed = subprocess.run([sys.executable, "-c", _KILLED, str(run.path)], check=False)
    assert killed.returncode == -signal.SIGKILL
    run.path.chmod(0o555)
    with unprivileged():
        assert JournalReader(run).last_seq() == 1


def test_what_one_may_not_look_at_is_one_line(shared: Path) -> None:
    open_run, closed = write(shared / "open"), write(shared / "closed")
    open_run.path.chmod(0o755)
    open_run.lock.chmod(0)
    closed.path.chmod(0)
    with unprivileged():
        with pytest.raises(RunDirectoryError, match=r"closed/run\.db: Permission denied"):
            find_run("closed", shared)
        with pytest.raises(RunDirectoryError, match=r"run\.lock: can't be read \(Permission"):
            writer(open_run)
        assert not is_live(open_run)
        assert summarise(open_run).standing == "unreadable"
        assert [run.name for run in find_runs([shared])] == ["open"]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("~nobody-of-this-name/x", "~nobody-of-this-name/x: no such user (~nobody-of-this-name)"),
        ("n" * 300, ": File name too long"),
        ("a\0b", r"'a\x00b': not a path (embedded null byte)"),
    ],
)
def test_what_is_no_path_is_one_line(tmp_path: Path, given: str, says: str) -> None:
    with pytest.raises(PathError) as refused:
        expanded(given)
    assert str(refused.value).endswith(says)
    with pytest.raises(RunDirectoryError):
        find_run(given, tmp_path)
    with pytest.raises(RunDirectoryError):
        list(find_runs([Path(given)]))


def test_the_run_that_is_hinted_at_is_the_latest(tmp_path: Path) -> None:
    for number, name in enumerate(("first", "second", "third")):
        os.utime(write(tmp_path / name).database, (number, number))
    os.utime(tmp_path / "first" / "run.db", (9, 9))
    with pytest.raises(RunDirectoryError, match="the latest one there is 'first'"):
        find_run("xyz", tmp_path)


@pytest.mark.parametrize(
    "read",
    [
        lambda run: JournalReader(run).read(0),
        lambda run: list(search(run, "saw")),
        read_history,
        lambda run: Timeline(run).milestone(0, 1),
        lambda run: Database(run).rows("SELECT body FROM events"),
    ],
    ids=["reader", "search", "history", "timeline", "database"],
)
def test_a_damaged_journal_is_one_kind_of_error(
    tmp_path: Path, read: Callable[[RunDirectory], object]
) -> None:
    run = write(tmp_path / "r")
    damage(run)
    with pytest.raises(JournalError, match=r"r/run\.db: can't be read \("):
        read(run)
    assert summarise(run).standing == "unreadable"


def test_a_lock_is_refused_in_words_where_it_cannot_be_looked_at(shared: Path) -> None:
    run = write(shared / "r")
    run.lock.chmod(0)
    with unprivileged(), pytest.raises(RunDirectoryError, match=r"run\.lock: can't be opened"):
        RunLock(run)
