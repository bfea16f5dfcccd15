"""What a trial leaves on disk: bounded, and less where `keep` says so.

In a trial's directory every file is cut at 16 MiB and all of them together hold at most 128 MiB
when the trial is over; what has to go is the largest first. Never touched are Harbor's
`result.json`, `config.json` and `lock.json`, and the agent's trajectory, which is bounded by the
number of turns: an observation has at most 10 kB, a completion `max_tokens`.

While a trial runs, the sandbox brings out at most 64 MiB of the terminal's raw bytes, the recording
is closed at 16 MiB, and a download ends at what the sandbox's disk may hold.
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

_RESULTS = frozenset(["result.json", "config.json", "lock.json", "exception.txt"])
_VERDICT = frozenset(["reward.txt", "reward.json", "test-stdout.txt"])
_CUT = b"\n[cut here: %d bytes were written]\n"

_log = logging.getLogger(__name__)


def tidy(folder: Path, keep: Keep, outcome: Outcome) -> None:
    """Bring the directory of a trial that has ended down to what is kept of it.

    `result.json` and the verdict's text always stay. A file that can't be removed is logged.
    """
    if keep == "none" or (keep == "failed" and outcome is Outcome.SOLVED):
        _remove(path for path, _ in _files(folder) if not _is_result(path))
    _bound(folder)
    for directory, _, _ in os.walk(folder, topdown=False):
        if not os.listdir(directory):  # noqa: PTH208  it is empty or it is not
            Path(directory).rmdir()


def _bound(folder: Path) -> None:
    total = 0
    for path, size in sorted(_files(folder), key=lambda file: file[1]):
        if path.name in _RESULTS or path.name.startswith("trajectory"):
            continue
        if total + min(size, MAX_FILE_BYTES) > MAX_TRIAL_BYTES:
            _remove([path])
            continue
        if size > MAX_FILE_BYTES:
            _cut(path, size)
        total += min(size, MAX_FILE_BYTES)


def _files(folder: Path) -> Iterator[tuple[Path, int]]:
    """Everything that is no directory, and its size; links are not followed."""
    for directory, _, names in os.walk(folder):
        for name in names:
            path = Path(directory, name)
            status = path.lstat()
            yield path, status.st_size if stat.S_ISREG(status.st_mode) else 0


def _is_result(path: Path) -> bool:
    return path.name in _RESULTS or (path.parent.name == "verifier" and path.name in _VERDICT)


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
