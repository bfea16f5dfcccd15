"""Modules of others: imports those that settings name as `module:Class`, and says where what is
installed lacks a part that tbtui builds on.

Rooms that may not import each other need this: environments of trials and renderers of chat, and
the seams to Harbor and to Textual.
"""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

_GIVEN = "PYTHONPATH"


def import_named(module: str) -> ModuleType:
    """The module of this name, of what is installed or in `PYTHONPATH`.

    The working directory is searched only where `PYTHONPATH` names it: a program may be started in
    anybody's directory. Raises whatever importing the module does.
    """
    with _elsewhere():
        return importlib.import_module(module)


def missing_parts(
    methods: Mapping[str, tuple[Callable[..., Any], Collection[str]]],
    attributes: Mapping[str, tuple[type, Collection[str]]],
) -> list[str]:
    """What has lost a parameter, or an attribute that its constructor sets, for a person.

    Args:
        methods: by name, each with the parameters that are given to it.
        attributes: classes by name, each with the attributes that are read of it.
    """
    found = []
    for name, (method, wanted) in methods.items():
        missing = set(wanted) - set(inspect.signature(method).parameters)
        found += [f"{name} has no parameter `{parameter}`" for parameter in sorted(missing)]
    for name, (owner, read) in attributes.items():
        constructor: FunctionType = owner.__dict__["__init__"]
        missing = set(read) - set(constructor.__code__.co_names)
        found += [f"{name}.__init__ sets no `{attribute}`" for attribute in sorted(missing)]
    return found


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
