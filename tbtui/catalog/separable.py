"""Tells which tasks would bear a verifier with an environment of its own.

There an agent can leave nothing behind that forges the verdict. A task bears it if its tests look
at files below its working directory alone, which then go along as artifacts. What is found is
advice: a test may look at more than its text says, so whatever looks like more counts as more.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path

from harbor.models.task.config import VerifierEnvironmentMode
from harbor.models.task.verifier_mode import resolve_task_verifier_mode

from tbtui.catalog.harbor import read_config
from tbtui.catalog.load import TaskInfo

_NAMED = 3
_TEXT_BYTES = 1_000_000
_WORKDIR = re.compile(r"^\s*WORKDIR\s+(/\S*)\s*$", re.MULTILINE | re.IGNORECASE)
_PATH = re.compile(r"(?<![\w.:/<~$}])/[A-Za-z][\w.+-]*(?:/[\w.+-]+)*")
# What every environment has, and what the verifier makes itself.
_ANYWHERE = re.compile(
    r"/(?:tests|logs/verifier|tmp|dev/null|usr/bin/env|(?:usr/)?bin/(?:ba|da|z)?sh)(?:/|$)"
)
# Of what runs or is installed, who is logged in, what the network has: not in a file of the task.
_MORE_THAN_FILES = re.compile(
    r"localhost|127\.0\.0\.1|0\.0\.0\.0|https?://|\bsocket\b|\brequests\b|\burllib\b|\bcurl\b"
    r"|\bwget\b|\bnc\b|\bssh\b|\bpgrep\b|\bpsutil\b|\bps\b|\bkill\b|\bsystemctl\b|\bservice\b"
    r"|\btmux\b|\bcrontab\b|\bwhich\b|command -v|\bapt\b|apt-get|\bdpkg\b|\bdocker\b|~/|\bHOME\b"
    r"|expanduser|Path\.home|getpwnam|getgrnam|os\.environ|\bgit config --global\b",
)


def advice(tasks: Sequence[TaskInfo]) -> Iterator[str]:
    """One line on the tasks that would bear it, if there are any."""
    found = [task.name for task in tasks if bears_separate_verifier(task)]
    if not found:
        return
    named = ", ".join(found[:_NAMED]) + (", ..." if len(found) > _NAMED else "")
    yield (
        f"{len(found)} of {len(tasks)} tasks would bear a verifier out of the agent's reach"
        ' (environment_mode = "separate" under [verifier] in task.toml, and the working directory'
        f" among its artifacts): {named}"
    )


def bears_separate_verifier(task: TaskInfo) -> bool:
    """Whether the tests of a task, as far as their text tells, look below its working directory
    alone. False where the verifier has an environment of its own already."""
    config = read_config(tomllib.loads((task.path / "task.toml").read_text(encoding="utf-8")))
    if config.steps or resolve_task_verifier_mode(config) is VerifierEnvironmentMode.SEPARATE:
        return False
    if config.metadata.get("verifier_needs_processes") is True:
        return False
    workdir = config.environment.workdir or _image_workdir(task.path)
    if workdir is None or workdir == "/":
        return False
    return all(
        _looks_below(workdir, path) for path in (task.path / "tests").rglob("*") if path.is_file()
    )


def _image_workdir(task: Path) -> str | None:
    try:
        text = (task / "environment" / "Dockerfile").read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None
    named = _WORKDIR.findall(text)
    return named[-1] if named else None


def _looks_below(workdir: str, path: Path) -> bool:
    try:
        content = path.read_bytes()[:_TEXT_BYTES]
    except OSError:
        return False
    if b"\0" in content:  # data
        return True
    text = content.decode("utf-8", "replace")
    if _MORE_THAN_FILES.search(text):
        return False
    inside = workdir.rstrip("/")
    return all(
        name == inside or name.startswith(f"{inside}/") or _ANYWHERE.match(name)
        for name in _PATH.findall(text)
    )
