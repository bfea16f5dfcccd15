"""Imports the modules that settings name as `module:Class`.

Two rooms that may not import each other need this: environments of trials, and renderers of chat.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

_GIVEN = "PYTHONPATH"


def import_named(module: str) -> ModuleType:
    """The module of this name, of what is installed or in `PYTHONPATH`.

    The working directory is searched only where `PYTHONPATH` names it: a program may be started in
    anybody's directory. Raises whatever importing the module does.
    """
    with _elsewhere():
        return importlib.import_module(module)


@contextmanager
def _elsewhere() -> Iterator[None]:
    """Take the working directory out of `sys.path`, where `python -m` has put it."""
    here = Path.cwd()
    given = {Path(each).absolute() for each in os.environ.get(_GIVEN, "").split(os.pathsep)}
    before = list(sys.path)
    if _GIVEN not in os.environ or here not in given:
        sys.path[:] = [each for each in before if Path(each).absolute() != here]
    try:
        yield
    finally:
        sys.path[:] = before
