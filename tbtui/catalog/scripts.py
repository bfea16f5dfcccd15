"""Checks a task's shell scripts: how they would be started, their line ends, their syntax."""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
from collections.abc import Iterator
from pathlib import Path

from tbtui.catalog.defects import READABLE, Defect, is_file
from tbtui.catalog.load import TaskInfo

_SHELL = re.compile(rb"\b(?:ba|da|k|z|)sh\b")
_LATER_INTERPRETER = re.compile(rb"^#![ \t]*(\S[^\r\n]*)", re.MULTILINE)
_HEAD_BYTES = 2000
_REWARD_FILE = re.compile(rb"reward\.(?:txt|json)")
_SCRIPT_BYTES = 1_000_000


class ScriptChecker:
    """Checks scripts one task at a time; the same text, which many tasks have, is parsed once."""

    def __init__(self) -> None:
        self._parsed: dict[bytes, asyncio.Task[str]] = {}

    async def check(self, task: TaskInfo) -> list[Defect]:
        """Defects of the task's test.sh and solve.sh, those of its steps included."""
        found: list[Defect] = []
        paths = _script_paths(task)
        for script in paths:
            try:
                content = (task.path / script).read_bytes()
            except OSError as error:
                message = f"can't be read: {error.strerror}"
                found.append(task.defect(script, message, READABLE))
                continue
            form = list(_form(task, script, content))
            found += form
            if _is_shell(content) and all(each.severity == "warning" for each in form):
                found += await self._syntax(task, script, content)
        return [*found, *_whole(task, paths)]

    async def _syntax(self, task: TaskInfo, script: str, content: bytes) -> list[Defect]:
        key = hashlib.sha256(content).digest()
        if key not in self._parsed:
            self._parsed[key] = asyncio.create_task(_complaint(content))
        complaint = await self._parsed[key]
        if not complaint:
            return []
        located = re.search(r": line (\d+): (.*)", complaint)
        return [
            task.defect(
                script,
                f"shell syntax: {located[2] if located else complaint}",
                "correct the script",
                line=int(located[1]) if located else None,
            )
        ]


async def _complaint(content: bytes) -> str:
    """What bash says of the text; empty: nothing."""
    process = await asyncio.create_subprocess_exec(
        *("bash", "-n"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        env={"LC_ALL": "C", "PATH": os.environ.get("PATH", os.defpath)},
    )
    _, stderr = await process.communicate(content)
    return stderr.decode(errors="replace").splitlines()[0] if process.returncode else ""


def _script_paths(task: TaskInfo) -> list[str]:
    places = ["", *(f"steps/{step}/" for step in task.steps)]
    names = [f"{place}tests/test.sh" for place in places]
    names += [f"{place}solution/solve.sh" for place in places]
    return [name for name in names if is_file(task.path / name)]


def _is_shell(content: bytes) -> bool:
    """Without a #! line the shell that is asked to start it runs it: bash, in Harbor."""
    first = content.partition(b"\n")[0]
    return not first.startswith(b"#!") or _SHELL.search(first) is not None


def _form(task: TaskInfo, script: str, content: bytes) -> Iterator[Defect]:
    first, _, rest = content.partition(b"\n")
    has_interpreter = first.startswith(b"#!")
    if first.endswith(b"\r") and (has_interpreter or rest.count(b"\n") == rest.count(b"\r\n")):
        # Lines that end so further down may be meant: in a here-document.
        yield task.defect(script, "has Windows line ends", "save it with Unix line ends", line=1)
    if not has_interpreter:
        later = _LATER_INTERPRETER.search(content[:_HEAD_BYTES])
        if later is not None and _SHELL.search(later[1]) is None:
            line = content[: later.start()].count(b"\n") + 1
            yield task.defect(
                script,
                f"bash runs it, not {later[1].decode(errors='replace').strip()}: that #! line is"
                " not the first",
                "put it on line 1",
                line=line,
                severity="warning",
            )
    if not os.access(task.path / script, os.X_OK):
        yield task.defect(
            script,
            "is not executable",
            "chmod +x it (Harbor does so itself; other runners do not)",
            severity="warning",
        )


def _whole(task: TaskInfo, paths: list[str]) -> Iterator[Defect]:
    verifiers = [script for script in paths if script.endswith("test.sh")]
    if verifiers and not _mentions_reward(task.path):
        yield task.defect(
            verifiers[0],
            "nothing in tests/ mentions reward.txt or reward.json",
            "write the verdict to /logs/verifier/reward.txt, whatever happens",
            severity="warning",
        )
    if not any(script.endswith("solve.sh") for script in paths):
        yield task.defect(
            "solution",
            "no solution/solve.sh",
            "add one, so that the task can be proved solvable",
            severity="warning",
        )


def _mentions_reward(path: Path) -> bool:
    trees = [path / "tests", *path.glob("steps/*/tests")]
    return any(_REWARD_FILE.search(_text(file)) for tree in trees for file in _files(tree))


def _files(tree: Path) -> Iterator[Path]:
    """Scripts first: the verdict is mostly written there."""
    return iter(sorted(tree.rglob("*"), key=lambda path: path.suffix != ".sh"))


def _text(path: Path) -> bytes:
    """Content of a file that can be read and is small enough to be a script; else nothing."""
    try:
        if not path.is_file() or path.stat().st_size >= _SCRIPT_BYTES:
            return b""
        return path.read_bytes()
    except OSError:
        return b""
