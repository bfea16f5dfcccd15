"""`tbtui tasks new`: a small task that works, made with Harbor's template, to begin with."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

import tomli_w

from tbtui.catalog import CatalogError
from tbtui.catalog.tasks import TASK_FILE

_HARBOR = "from harbor.cli.main import app; app()"
_WIDE = 10_000
"""Columns for what Harbor says: the last line is the whole error, and not the end of it."""
_INSTRUCTION = """\
Write a file `/app/report.txt` that has one line: how many lines `/app/input.txt` has.
"""
_DOCKERFILE = """\
FROM debian:bookworm-slim
WORKDIR /app
COPY input.txt /app/input.txt
"""
_SOLUTION = """\
#!/bin/bash
set -euo pipefail
grep -c '' /app/input.txt > /app/report.txt
"""
_TEST = """\
#!/bin/bash
# The verdict starts at 0, so that a crash of the checks counts as a failure. The right answer
# stands here, and is not read from the box that the agent worked in.
mkdir -p /logs/verifier
echo 0 > /logs/verifier/reward.txt
answer=$(cat /app/report.txt 2> /dev/null)
if [[ $answer == 3 ]]; then
  echo 1 > /logs/verifier/reward.txt
else
  echo "FAIL: /app/report.txt has ${answer@Q}"
fi
"""


def new_task(name: str, into: Path, *, pytest: bool, shared: bool) -> Path:
    """Make the task's directory `into/NAME` and return it.

    Harbor's `init` writes the files that its current template has. Unless `pytest`, whose template
    fetches its test runner from the network, instruction, environment, tests and solution are a
    small example that passes `tasks check`, that its solution solves, and nothing else does.

    Args:
        shared: the verifier runs in the agent's box, not in one of its own.

    Raises:
        CatalogError: the name can't be one, the directory is there or can't be written, or Harbor
            refuses; nothing is left of it then.
    """
    target = into / name
    if "/" in name or name in ("", ".", "..") or name.startswith("-"):
        raise CatalogError(f"{name!r} is no name of a task: a directory's name, without /")
    if target.exists():
        raise CatalogError(f"{target} is there already: give another name, or --into DIR")
    try:
        into.mkdir(parents=True, exist_ok=True)
        # In a directory of its own: a dataset.toml beside it would be changed.
        with tempfile.TemporaryDirectory(dir=into, prefix=".tbtui-") as place:
            made = _init(name, Path(place), pytest=pytest)
            if not pytest:
                _write_example(made)
            if not shared:
                _separate(made / TASK_FILE)
            made.rename(target)
    except OSError as error:
        raise CatalogError(f"{target} can't be made: {error.strerror}") from error
    return target


def _init(name: str, place: Path, *, pytest: bool) -> Path:
    words = ["init", "--task", f"local/{name}", "--output-dir", "."]
    words += [] if pytest else ["--no-pytest"]
    result = subprocess.run(
        [sys.executable, "-c", _HARBOR, *words],
        cwd=place,
        env={**os.environ, "COLUMNS": str(_WIDE)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if result.returncode != 0:
        said = (result.stderr or result.stdout).strip().splitlines()[-1:] or ["no reason"]
        raise CatalogError(f"Harbor's init ended with {result.returncode}: {said[0]}")
    return place / name


def _write_example(task: Path) -> None:
    for file, text in (
        ("instruction.md", _INSTRUCTION),
        ("environment/Dockerfile", _DOCKERFILE),
        ("environment/input.txt", "apple\nbirch\ncedar\n"),
        ("tests/test.sh", _TEST),
        ("solution/solve.sh", _SOLUTION),
    ):
        path = task / file
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        path.chmod(0o755 if path.suffix == ".sh" else 0o644)
    # Nothing here needs one; in the sandbox a public network is the host's own.
    document = tomllib.loads((task / TASK_FILE).read_text())
    document.setdefault("environment", {})["network_mode"] = "no-network"
    (task / TASK_FILE).write_text(tomli_w.dumps(document))
    # Newer templates have an image of the verifier's own, whose tests are not these.
    (task / "tests" / "Dockerfile").unlink(missing_ok=True)


def _separate(file: Path) -> None:
    """Give the verifier a box of its own, with the working directory as its artifact."""
    document = tomllib.loads(file.read_text())
    document["artifacts"] = document.get("artifacts") or ["/app"]
    document.setdefault("verifier", {})["environment_mode"] = "separate"
    file.write_text(tomli_w.dumps(document))
