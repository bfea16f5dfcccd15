"""A run's directory: its files, its lock, how a run is found and renamed, and notes on it."""

from __future__ import annotations

import contextlib
import difflib
import fcntl
import itertools
import logging
import os
import stat
import time
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tbtui.errors import UserError
from tbtui.paths import PathError, expanded, open_plain, require_plain, state_dir

log = logging.getLogger(__name__)

AGENT_STREAM = "agent-stream.jsonl"
_LOCK_ATTEMPTS = 5
_LOCK_WAIT_SEC = 0.02
_LONGEST_PID = 19
"""Digits."""


class RunDirectoryError(UserError):
    """The run directory can't be used; the message is one line for a person."""


@dataclass(frozen=True, slots=True)
class RunDirectory:
    """`run.db`, `config.toml`, `log.txt`, `trials/`, `checkpoints/` under one path."""

    path: Path

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def database(self) -> Path:
        return self.path / "run.db"

    @property
    def config(self) -> Path:
        return self.path / "config.toml"

    @property
    def log(self) -> Path:
        return self.path / "log.txt"

    @property
    def lock(self) -> Path:
        return self.path / "run.lock"

    @property
    def output(self) -> Path:
        """What a detached run prints."""
        return self.path / "output.txt"

    @property
    def control_socket(self) -> Path:
        """Where a live run takes commands."""
        return self.path / "control.sock"

    @property
    def review_rules(self) -> Path:
        """Rules for the review of steps, of a run whose settings name no such file."""
        return self.path / "review_rules.toml"

    @property
    def agent_examples(self) -> Path:
        """The examples that the prompt of `agent=shell` shows, of a run that shows any."""
        return self.path / "agent-examples.txt"

    @property
    def trials(self) -> Path:
        return self.path / "trials"

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    def snapshots(self, trial: str) -> Path:
        """States of a trial's sandbox that its forks can begin from."""
        return self.path / "snapshots" / trial

    def recording(self, trial: str) -> Path:
        """The trial's terminal, asciicast v2, growing while it runs."""
        return self.trials / trial / "recording.cast"

    def agent_stream(self, trial: str) -> Path:
        """The lines of JSON that the trial's agent has printed, where it prints such."""
        return self.trials / trial / AGENT_STREAM

    @classmethod
    def create(cls, path: Path) -> RunDirectory:
        """Make a new run directory.

        Raises:
            RunDirectoryError: it exists and is not empty, or can't be written.
        """
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            # What a run has seen is its user's own; to share it, `chmod -R g+rX`.
            path.mkdir(mode=0o700, exist_ok=True)
            if any(path.iterdir()):
                raise RunDirectoryError(
                    f"{path}: a run is already there; give another logs_dir or run_name"
                )
            run = cls(path.resolve())
            run.trials.mkdir()
            run.checkpoints.mkdir()
        except OSError as error:
            raise _unmade(path, error) from error
        return run

    @classmethod
    def open(cls, path: Path) -> RunDirectory:
        """An existing run.

        Raises:
            RunDirectoryError: there is no journal.
        """
        run = cls(path.resolve())
        if not run.database.is_file():
            raise RunDirectoryError(f"{path}: no run here (run.db is missing)")
        return run


def find_run(run: str, *logs_dirs: Path) -> RunDirectory:
    """A run by its directory, or by its name in the first of `logs_dirs` that has one.

    Raises:
        RunDirectoryError: there is none, and the nearest name is suggested; or one mayn't look.
    """
    try:
        places = [expanded(each) for each in logs_dirs]
        for path in (Path(run), *(place / run for place in places)):
            database = expanded(path / "run.db")
            if database.is_file():
                return RunDirectory(database.parent.resolve())
    except PathError as error:
        raise RunDirectoryError(str(error)) from error
    found = (database for place in places for database in place.glob("*/run.db"))
    databases = sorted(found, key=os.path.getmtime)
    where = " or ".join(map(str, places))
    if not databases:
        raise RunDirectoryError(f"{run}: no such run, and none at all in {where}")
    names = [path.parent.name for path in databases]
    near = difflib.get_close_matches(run, names, n=1, cutoff=0.4)
    hint = f"did you mean {near[0]!r}?" if near else f"the latest one there is {names[-1]!r}"
    raise RunDirectoryError(f"{run}: no such run, here or in {where}; {hint}")


def reserve(logs_dir: Path, name: str) -> Path:
    """Make an empty directory for a run, of this name or, where that is taken, of `NAME-2`, ...

    No two processes get the same one, however close together they ask.

    Raises:
        RunDirectoryError: it can't be made.
    """
    for number in itertools.count(1):
        path = logs_dir / (name if number == 1 else f"{name}-{number}")
        try:
            logs_dir.mkdir(parents=True, exist_ok=True)
            path.mkdir(mode=0o700)
        except FileExistsError as error:
            if not path.exists():
                # It is `logs_dir` that is there, and no directory.
                raise _unmade(path, error) from error
        except OSError as error:
            raise _unmade(path, error) from error
        else:
            return path
    raise AssertionError


def _unmade(path: Path, error: OSError) -> RunDirectoryError:
    return RunDirectoryError(
        f"{path}: can't make the run directory ({os.strerror(error.errno or 0)}); "
        f"choose a writable place with logs_dir=..."
    )


class RunLock(contextlib.AbstractContextManager["RunLock"]):
    """The right to write a run. The kernel takes it back when its process dies, however it dies.

    Raises `RunDirectoryError` when another process (or another lock of this one) has it.
    """

    def __init__(self, run: RunDirectory) -> None:
        try:
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            require_plain(run.lock)
            self._file = os.open(run.lock, flags, 0o600)  # else another user could hold it
        except OSError as error:
            raise RunDirectoryError(f"{run.lock}: can't be opened ({error.strerror})") from error
        try:
            self._take(run)
            os.ftruncate(self._file, 0)
            os.pwrite(self._file, str(os.getpid()).encode(), 0)
        except OSError as error:
            os.close(self._file)
            raise RunDirectoryError(
                f"{run.lock}: can't be locked ({os.strerror(error.errno or 0)})"
            ) from error
        except BaseException:
            os.close(self._file)
            raise

    def _take(self, run: RunDirectory) -> None:
        for _ in range(_LOCK_ATTEMPTS):
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            # Somebody may only be looking, in `writer`.
            time.sleep(_LOCK_WAIT_SEC)
        raise RunDirectoryError(_is_live(run, writer(run)))

    def release(self) -> None:
        os.close(self._file)

    def __exit__(self, *error: object) -> None:
        self.release()


def writer(run: RunDirectory) -> int | None:
    """The pid of the process that writes the run now (0: it didn't say yet); None: no process does.

    Raises:
        RunDirectoryError: one mayn't look.
    """
    try:
        with open_plain(run.lock) as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                pid = file.read(_LONGEST_PID)
                return int(pid) if pid.isdigit() else 0
    except FileNotFoundError:
        pass
    except OSError as error:
        raise RunDirectoryError(f"{run.lock}: can't be read ({error.strerror})") from error
    return None


_OWN = ("config.toml", "log.txt", "output.txt", "metrics.jsonl", "review_rules.toml", "notes.txt",
        "control.sock")  # fmt: skip
_WRITTEN = ("trials", "checkpoints", "logs", "trackers", "snapshots", "demos", "tensorboard")


def require_writable_within(run: RunDirectory) -> None:
    """Raise `RunDirectoryError` where going on with the run would write somewhere else, or wait: at
    a link, a FIFO or a device in the place of a file; or where it may not write. Takes 10 ms for a
    thousand trials."""
    for needed in (run.path, run.database, run.log):
        if needed.exists() and not os.access(needed, os.W_OK, effective_ids=True):
            raise RunDirectoryError(f"{needed}: can't be written; go on with a copy of the run")
    ours = [run.path / name for name in _WRITTEN]
    for place in (run.path, *ours):
        for root, directories, files in os.walk(place):
            for name in (*directories, *files):
                entry = os.path.join(root, name)  # noqa: PTH118  there are many
                mode = os.lstat(entry).st_mode
                if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISSOCK(mode)):
                    raise RunDirectoryError(
                        f"{entry}: a link, or no file at all, so a run that goes on would write"
                        " elsewhere; put the file or directory itself there"
                    )
            if place == run.path:
                break  # other programs keep links in directories of their own
    for place in ours:
        if place.exists() and not place.is_dir():
            raise RunDirectoryError(f"{place}: not a directory")


def is_of_a_run(path: Path) -> bool:
    """Whether that is a file of a run's own, wherever the run is: its journal, its settings, what
    its trials and checkpoints left."""
    place = path.parent.resolve()
    for above in (place, *place.parents):
        if (above / "run.db").is_file():
            first, *_ = (place / path.name).relative_to(above).parts
            return first in _WRITTEN or first in _OWN or first.startswith("run.")
    return False


def is_live(run: RunDirectory) -> bool:
    """A process writes the run now, as far as one may look."""
    try:
        return writer(run) is not None
    except RunDirectoryError:
        return False


def journal_stands(run: RunDirectory) -> Hashable:
    """Another value than before where the journal has grown, or somebody has begun or ceased to
    write it."""
    sizes = []
    for path in (run.database, run.database.with_name(f"{run.database.name}-wal")):
        with contextlib.suppress(OSError):
            found = path.stat()
            if found.st_size:
                sizes.append((found.st_size, found.st_mtime_ns))
    return is_live(run), *sizes


def require_no_writer(run: RunDirectory) -> None:
    """Raise `RunDirectoryError` while a process writes the run."""
    if (pid := writer(run)) is not None:
        raise RunDirectoryError(_is_live(run, pid))


def _is_live(run: RunDirectory, pid: int | None) -> str:
    return f"{run.path}: this run is live (process {pid or 'unknown'}); end that one first"


# Notes and names

_NOTES = "notes.txt"
_MOST_READ = 64 << 10
"""Bytes of the end of notes that are read."""
_LONGEST_NAME = 120


def notes_file(run: RunDirectory) -> Path:
    """The file of a run's notes: a line each, its time first; people may edit it."""
    return run.path / _NOTES


def read_notes(run: RunDirectory) -> list[str]:
    """The notes on a run, the latest last; none where they can't be read."""
    try:
        with open_plain(notes_file(run)) as file:
            size = os.fstat(file.fileno()).st_size
            file.seek(max(0, size - _MOST_READ))
            text = file.read(_MOST_READ).decode("utf-8", "replace")
    except OSError:
        return []
    return [line for line in text.splitlines() if line.strip()]


def add_note(run: RunDirectory, text: str) -> None:
    """Add a note; a live run may have notes, too.

    Raises:
        RunDirectoryError: it can't be written.
    """
    line = f"{time.strftime('%Y-%m-%d %H:%M')} {' '.join(text.split())}\n"
    path = notes_file(run)
    try:
        require_plain(path)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(path, flags, 0o600), "ab") as file:
            file.write(line.encode("utf-8", "replace"))
    except OSError as error:
        raise RunDirectoryError(f"{path}: can't be written ({error.strerror})") from error


def rename_run(run: RunDirectory, name: str) -> RunDirectory:
    """Give a run another name: that of its directory.

    A link with the old name stays, so that what names the run by it goes on working: checkpoints
    in the settings of runs that began from it, scripts, and processes that show it now.

    Raises:
        RunDirectoryError: the run is live, the name can't be a directory's or is taken, or the
            directory can't be renamed.
    """
    old = run.path.resolve()
    _require_name(name)
    new = old.parent / name
    if new == old:
        return RunDirectory(old)
    try:
        with RunLock(RunDirectory(old)):
            if new.is_symlink() and new.resolve() == old:
                # It had this name before.
                new.unlink()
            if new.exists() or new.is_symlink():
                raise RunDirectoryError(f"{new}: is there already; choose another name")
            old.rename(new)
            old.symlink_to(name)
    except OSError as error:
        raise RunDirectoryError(f"{old}: can't be renamed ({error.strerror})") from error
    return RunDirectory(new)


def _require_name(name: str) -> None:
    if not name or name.startswith((".", "-")) or "/" in name or not name.isprintable():
        raise RunDirectoryError(
            f"{name!r}: no name for a run; it is a directory's, without /, and doesn't begin"
            " with . or -"
        )
    if len(name.encode()) > _LONGEST_NAME:
        raise RunDirectoryError(f"{name[:20]}…: longer than {_LONGEST_NAME} bytes")


# Links that name this user's live runs on this machine, wherever their directories are


@contextlib.contextmanager
def registered(run: RunDirectory) -> Iterator[None]:
    """List the run among `live_runs` while the context lasts, where its directory allows that."""
    link = _live_directory() / f"{os.getpid()}-{run.name}"
    try:
        link.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        link.unlink(missing_ok=True)
        link.symlink_to(run.path)
    except OSError as error:
        log.warning("%s: can't be written (%s); only its path names this run", link, error)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            link.unlink(missing_ok=True)


def live_runs() -> list[RunDirectory]:
    """The live runs, by name."""
    found = {}
    for link in _live_links():
        run = RunDirectory(link.resolve())
        if is_live(run):
            # One that was killed and goes on in another process has left a second link.
            found[run.path] = run
        elif not _process_lives(link):
            with contextlib.suppress(OSError):
                link.unlink(missing_ok=True)
    return sorted(found.values(), key=lambda run: run.name)


def _live_links() -> list[Path]:
    try:
        return [link for link in _live_directory().iterdir() if link.is_symlink()]
    except OSError:
        return []


def _process_lives(link: Path) -> bool:
    """Whether the process that made it still lives: a run that begins has no lock yet."""
    pid, _, _ = link.name.partition("-")
    return pid.isdigit() and is_here(int(pid))


def is_here(pid: int) -> bool:
    """Whether there is such a process, as far as this one can see."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True


def _live_directory() -> Path:
    return state_dir() / "live"
