"""What a trial leaves on disk: bounded, and less where `keep` says so.

In a trial's directory every file is cut at 16 MiB, and all of them together are at most 5,000 and
hold at most 128 MiB when the trial is over; what has to go is the largest first. Never cut, and
kept before any other, are Harbor's `result.json`, `config.json` and `lock.json`, and the agent's
trajectory, which is bounded by the number of turns: an observation has at most 10 kB, a completion
`max_tokens`. Each of them has its one place: files of the same name elsewhere may be the sandbox's.

While a trial runs, the sandbox brings out at most 64 MiB of the terminal's raw bytes, the recording
is closed at 16 MiB, and a download ends at `download_mb`, 256 MiB if nothing else is said, or at
1 GiB in Docker.
"""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from tbtui.journal.events import Outcome
from tbtui.rollout.messages import Keep

MAX_FILE_BYTES = 16 << 20
MAX_TRIAL_BYTES = 128 << 20
MAX_TRIAL_FILES = 5_000

_RESULTS = frozenset(["result.json", "config.json", "lock.json", "exception.txt"])
_TRAJECTORY = "agent/trajectory.json"
_VERDICT = frozenset(
    f"verifier/{name}" for name in ("reward.txt", "reward.json", "test-stdout.txt")
)
_CUT = b"\n[cut here: %d bytes were written]\n"

_log = logging.getLogger(__name__)


def tidy(folder: Path, keep: Keep, outcome: Outcome) -> None:
    """Bring the directory of a trial that has ended down to what is kept of it.

    `result.json` and the verdict's text always stay. A file that can't be removed is logged.
    """
    if keep == "none" or (keep == "failed" and outcome is Outcome.SOLVED):
        results = _RESULTS | _VERDICT
        _remove(path for path, _ in _files(folder) if _place(folder, path) not in results)
    _bound(folder)
    for directory, _, _ in os.walk(folder, topdown=False):
        if not os.listdir(directory):  # noqa: PTH208  it is empty or it is not
            Path(directory).rmdir()


def _bound(folder: Path) -> None:
    def is_whole(path: Path) -> bool:
        return _place(folder, path) in (*_RESULTS, _TRAJECTORY)

    def rank(file: tuple[Path, int]) -> tuple[bool, bool, int]:
        path, size = file
        place = _place(folder, path)
        # Beside directories that the sandbox fills lies what this side has written.
        return not is_whole(path), "/" in place and place not in _VERDICT, size

    total = files = left_out = 0
    for path, size in sorted(_files(folder), key=rank):
        kept = size if is_whole(path) else min(size, MAX_FILE_BYTES)
        if total + kept > MAX_TRIAL_BYTES or files == MAX_TRIAL_FILES:
            left_out += 1
            _remove([path])
            continue
        files += 1
        if kept < size:
            _cut(path, size)
        total += kept
    if left_out:
        _log.warning("%s: %d of %d files left out", folder, left_out, left_out + files)


def _files(folder: Path) -> Iterator[tuple[Path, int]]:
    """Everything that is no directory, and its size; links are not followed."""
    for directory, _, names in os.walk(folder):
        for name in names:
            path = Path(directory, name)
            status = path.lstat()
            yield path, status.st_size if stat.S_ISREG(status.st_mode) else 0


def _place(folder: Path, path: Path) -> str:
    """Where it lies in the trial's directory, or in that of one of its steps."""
    parts = path.relative_to(folder).parts
    return "/".join(parts[2:] if parts[0] == "steps" else parts)


def _remove(paths: Iterator[Path] | list[Path]) -> None:
    for path in list(paths):
        try:
            path.unlink()
        except OSError as error:
            _log.warning("not removed: %s", error)


def _cut(path: Path, size: int) -> None:
    note = _CUT % size
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        _log.warning("not cut: %s", error)
        return
    try:
        os.ftruncate(descriptor, MAX_FILE_BYTES - len(note))
        os.pwrite(descriptor, note, MAX_FILE_BYTES - len(note))
    finally:
        os.close(descriptor)
