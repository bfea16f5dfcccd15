"""Prime-RL's repository on this machine: where it is, its commits, and its own verdict on a
configuration."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tbtui.config import ConfigError, RunConfig

CHECKOUT_VARIABLE = "PRIME_RL_DIR"
CLASSES = Path("packages/prime-rl-configs/src")
"""In a checkout."""
KNOWN_PAIRS: Mapping[str, str] = MappingProxyType({"559b447": "a60a606"})
"""Commits of Prime-RL whose settings and files are known here, and the verifiers of each."""
_SHORT = 7
_GIT_SEC = 10.0
_VALIDATION_SEC = 120.0


@dataclass(frozen=True, slots=True)
class Checkout:
    """Prime-RL's repository. Commits are short; None: Git does not know them."""

    directory: Path
    commit: str | None
    verifiers: str | None
    """The commit that is checked out in `deps/verifiers`."""
    pinned_verifiers: str | None
    """The one that `commit` wants there."""

    @property
    def programs(self) -> Path:
        """Directory of the programs that `uv sync` installs."""
        return self.directory / ".venv" / "bin"

    @property
    def python(self) -> Path:
        return self.programs / "python"

    @property
    def rl(self) -> Path:
        """The launcher."""
        return self.programs / "rl"

    def environment(self) -> dict[str, str]:
        """Environment variables for its programs, as in its activated environment."""
        own = {name: value for name, value in os.environ.items() if name != "PYTHONHOME"}
        path = os.pathsep.join((str(self.programs), *filter(None, [own.get("PATH")])))
        return own | {"VIRTUAL_ENV": str(self.programs.parent), "PATH": path}

    def __str__(self) -> str:
        return f"{self.directory}" + (f" at {self.commit}" if self.commit else "")


def find_checkout(config: RunConfig) -> Checkout:
    """Find the checkout that `prime_rl_dir` or `PRIME_RL_DIR` names.

    Raises:
        ConfigError: neither is given, it is no checkout, or nothing is installed in it; or this is
            not Linux.
    """
    if sys.platform != "linux":
        raise ConfigError(
            f"engine=prime-rl needs Linux, this is {sys.platform}: leave it out, or run it there"
        )
    given = config.prime_rl_dir or os.environ.get(CHECKOUT_VARIABLE)
    if not given:
        raise ConfigError(
            "prime_rl_dir: Prime-RL is not found; clone github.com/PrimeIntellect-ai/prime-rl with"
            f" its submodules, run `uv sync --all-extras` there, and give its directory here or as"
            f" {CHECKOUT_VARIABLE}"
        )
    directory = Path(given).expanduser().absolute()
    if not (directory / CLASSES).is_dir():
        what = f"no {CLASSES} in it" if directory.is_dir() else "no such directory"
        raise ConfigError(f"prime_rl_dir={directory}: no checkout of Prime-RL ({what})")
    checkout = Checkout(
        directory,
        _git(directory, "rev-parse", "HEAD"),
        # Without a repository of its own, Git would answer for the one around it.
        _git(directory / "deps/verifiers", "rev-parse", "HEAD")
        if (directory / "deps/verifiers/.git").exists()
        else None,
        _git(directory, "rev-parse", "HEAD:deps/verifiers"),
    )
    if not os.access(checkout.rl, os.X_OK):
        raise ConfigError(
            f"prime_rl_dir={directory}: Prime-RL is not installed in it (no .venv/bin/rl); run"
            " `uv sync --all-extras` there"
        )
    return checkout


def commit_warnings(checkout: Checkout) -> Iterator[str]:
    """Warnings about a checkout's commits, a line each."""
    known = ", ".join(f"{ours} with verifiers {theirs}" for ours, theirs in KNOWN_PAIRS.items())
    if checkout.commit is None:
        yield (
            f"{checkout.directory}: Git does not know its commit; tbtui knows {known}, and what"
            " another one has changed may be refused or missed"
        )
        return
    if checkout.commit not in KNOWN_PAIRS:
        yield (
            f"{checkout}: tbtui knows {known}; settings and files that have changed since may be"
            " refused or missed"
        )
    wanted = checkout.pinned_verifiers
    if wanted is not None and checkout.verifiers not in (None, wanted):
        yield (
            f"{checkout}: wants verifiers {wanted}, but {checkout.verifiers} is checked out; run"
            " `git submodule update --init --recursive` and `uv sync --all-extras` there"
        )


def _git(directory: Path, *words: str) -> str | None:
    try:
        answer = subprocess.run(
            ["git", "-C", str(directory), *words],
            capture_output=True,
            text=True,
            timeout=_GIT_SEC,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return answer.stdout.strip()[:_SHORT]


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
    """Check a configuration for Prime-RL's `rl`, by its own classes in a process of their own.

    Importing them takes seconds and brings verifiers along, and those of a checkout belong to the
    environment that its `uv sync` made.

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
    commit = _git(directory, "rev-parse", "HEAD")
    name = f"{directory}" + (f" at {commit}" if commit else "")
    if own.is_file():
        return _Classes(name, str(own))
    return _Classes(name, sys.executable, (str((directory / CLASSES).absolute()),))


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
            timeout=_VALIDATION_SEC,
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
