"""Keeps Harbor's digests of a task within the task's directory.

Harbor digests a task twice before a trial: `Task.checksum` walks through every link, and the lock's
digest reads what links to files mean. A task may have a link below `environment/` that leads
anywhere on this machine, to a whole disk or into a cycle.
"""

from __future__ import annotations

import os
from pathlib import Path

from harbor.models.task.task import Task
from harbor.publisher.packager import Packager

from tbtui.paths import leads_inside

_all_files = Packager.collect_files
_checksum: property = vars(Task)["checksum"]


def keep_digests_inside() -> None:
    """Have Harbor digest what lies in a task's directory, in this process. Idempotent.

    Digests of tasks without a link out of their directory are Harbor's own, as they were.
    """
    setattr(Packager, "collect_files", staticmethod(_files_inside))  # noqa: B010  on purpose
    setattr(Task, "checksum", property(_checksum_inside))  # noqa: B010


def _files_inside(task_dir: Path) -> list[Path]:
    files: list[Path] = _all_files(task_dir)
    if not _leads_out(task_dir):
        return files
    return [file for file in files if leads_inside(file, task_dir)]


def _checksum_inside(task: Task) -> str:
    if not _leads_out(task.task_dir):
        return str(_checksum.__get__(task))
    digest, _ = Packager.compute_content_hash(task.task_dir)
    return str(digest)


def _leads_out(task_dir: Path) -> bool:
    """Whether some link in the directory leads out of it. None is followed to find out."""
    return any(
        os.path.islink(path) and not leads_inside(Path(path), task_dir)  # noqa: PTH114  many
        for directory, folders, files in os.walk(task_dir)
        for path in (os.path.join(directory, name) for name in (*folders, *files))  # noqa: PTH118
    )
