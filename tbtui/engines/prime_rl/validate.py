"""Prime-RL's verdict on a configuration, by its own classes, where they can be had.

They run in a process of their own: importing them takes seconds and brings verifiers along, and
those of a checkout belong to the environment that its `uv sync` made.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

CHECKOUT_VARIABLE = "PRIME_RL_DIR"
CLASSES = Path("packages/prime-rl-configs/src")
"""In a checkout."""
LIMIT_SEC = 120.0


@dataclass(frozen=True, slots=True)
class Validation:
    """What Prime-RL says of a configuration."""

    by: str | None
    """The classes that checked it; None: none could, and `unchecked` says why."""
    errors: tuple[str, ...] = ()
    """One line each, `key: what is wrong`."""
    unchecked: str = ""


@dataclass(frozen=True, slots=True)
class _Classes:
    name: str
    python: str
    path: tuple[str, ...] = ()


def validate(toml: Mapping[str, Any], checkout: Path | None = None) -> Validation:
    """Check a configuration for Prime-RL's `rl`.

    `checkout` (else `$PRIME_RL_DIR`) is a directory with Prime-RL's repository, whose own
    environment is used if `uv sync` has made it; without one, an installed `prime-rl-configs`.
    """
    directory = checkout or (Path(text) if (text := os.environ.get(CHECKOUT_VARIABLE)) else None)
    if directory is not None and not (directory / CLASSES).is_dir():
        return Validation(None, unchecked=f"{directory} is no checkout of Prime-RL: no {CLASSES}")
    classes = _of_checkout(directory) if directory is not None else _installed()
    if classes is None:
        return Validation(
            None,
            unchecked=f"Prime-RL's classes aren't here; set {CHECKOUT_VARIABLE} to its checkout",
        )
    return _ask(classes, toml)


def _of_checkout(directory: Path) -> _Classes:
    own = directory / ".venv/bin/python"
    commit = _commit(directory)
    name = f"{directory}" + (f" at {commit}" if commit else "")
    if own.is_file():
        return _Classes(name, str(own))
    return _Classes(name, sys.executable, (str((directory / CLASSES).absolute()),))


def _commit(directory: Path) -> str | None:
    try:
        answer = subprocess.run(
            ["git", "-C", str(directory), "rev-parse", "--short", "HEAD"],
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return answer.stdout.strip()


def _installed() -> _Classes | None:
    if find_spec("prime_rl") is None or find_spec("prime_rl.configs") is None:
        return None
    return _Classes("the installed prime-rl-configs", sys.executable)


_PROGRAM = """
import contextlib, json, sys
with contextlib.redirect_stdout(sys.stderr):
    import pydantic
    from prime_rl.configs.rl import RLConfig
    errors = []
    try:
        RLConfig.model_validate(json.load(sys.stdin))
    except pydantic.ValidationError as error:
        errors = [[e["loc"], e["msg"]] for e in error.errors(include_url=False)]
    except Exception as error:
        # Plugins are looked up while their tables are read, and raise what they like.
        errors = [[[], f"{type(error).__name__}: {error}"]]
json.dump(errors, sys.stdout)
"""


def _ask(classes: _Classes, toml: Mapping[str, Any]) -> Validation:
    path = os.pathsep.join((*classes.path, *filter(None, [os.environ.get("PYTHONPATH")])))
    try:
        answer = subprocess.run(
            [classes.python, "-c", _PROGRAM],
            # Prime-RL reads TOML, whose dates are the only values that JSON lacks.
            input=json.dumps(toml, default=str),
            capture_output=True,
            text=True,
            timeout=LIMIT_SEC,
            env=os.environ | {"PYTHONPATH": path},
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return Validation(None, unchecked=f"{classes.name}: {error}")
    if answer.returncode:
        last = (answer.stderr.strip().splitlines() or ["no word"])[-1]
        return Validation(None, unchecked=f"{classes.name}: its classes can't be used: {last}")
    errors = json.loads(answer.stdout)
    return Validation(classes.name, tuple(_line(location, text) for location, text in errors))


def _line(location: list[str | int], message: str) -> str:
    where = ""
    for step in location:
        where += f"[{step}]" if isinstance(step, int) else f".{step}" if where else step
    text = " ".join(message.removeprefix("Value error, ").split())
    return f"{where}: {text}" if where else text
