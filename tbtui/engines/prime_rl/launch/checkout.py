"""Finds Prime-RL's repository on this machine, and its commits."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from tbtui.config import ConfigError, RunConfig
from tbtui.engines.prime_rl.validate import CHECKOUT_VARIABLE, CLASSES

KNOWN_PAIRS: Mapping[str, str] = MappingProxyType({"559b447": "a60a606"})
"""Commits of Prime-RL whose settings and files are known here, and the verifiers of each."""
_SHORT = 7
_GIT_SEC = 10.0


@dataclass(frozen=True, slots=True)
class Checkout:
    """Commits are short; None: Git does not know them."""

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
        ConfigError: neither is given, it is no checkout, or nothing is installed in it.
    """
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
    """Warnings about its commits, a line each."""
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
