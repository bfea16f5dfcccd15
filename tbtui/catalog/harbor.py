"""What the installed Harbor makes of a task: its reading of task.toml, and its refusal.

Harbor's own model is used, not a copy of its rules: versions differ. Only the parts of Harbor
that describe tasks are imported, when the first task is read: 0.1 s more than pydantic takes.
"""

from __future__ import annotations

import importlib.metadata
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from harbor.models.task.config import TaskConfig

REFUSALS = (OSError, ValueError, RuntimeError)
"""What Harbor's `Task.is_valid_dir` takes for a refusal."""


def harbor_version() -> str:
    """`Harbor 0.24.0`."""
    return f"Harbor {importlib.metadata.version('harbor')}"


def read_config(document: Mapping[str, Any]) -> TaskConfig:
    """Harbor's reading of a parsed task.toml.

    Raises:
        pydantic.ValidationError: Harbor does not accept it.
    """
    from harbor.models.task.config import TaskConfig

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # deprecations, which don't matter to who uses the task
        return TaskConfig.model_validate(document)


def refusal(path: Path) -> str | None:
    """Why Harbor does not load the task in directory `path`; None where it does.

    Takes 2 to 8 ms, because Harbor resolves every file of the task.
    """
    from harbor.models.task.task import Task

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            Task(path)
    except REFUSALS as error:
        said = str(error).partition("\n")[0] or type(error).__name__
        place = str(path.resolve())
        return said.replace(f"{place}/", "").replace(f"Task directory {place}", "it")
    return None
