"""Where the bundled tasks and themes lie: in a checkout, or inside an installed wheel."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

Resource = Literal["tasks", "themes"]

_PACKAGE = Path(__file__).resolve().parent


def bundled_dir(resource: Resource) -> Path:
    """Directory of a bundled resource.

    A wheel holds them as `tbtui/bundled/<resource>`; in a checkout they lie at the repository's
    top level, beside the package.

    Raises:
        FileNotFoundError: neither place has it, so the installation is incomplete.
    """
    installed = _PACKAGE / "bundled" / resource
    if installed.is_dir():
        return installed
    checkout = _PACKAGE.parent
    # An unrelated `tasks` directory in site-packages must not be mistaken for ours.
    if (checkout / "pyproject.toml").is_file() and (checkout / resource).is_dir():
        return checkout / resource
    raise FileNotFoundError(
        f"bundled {resource} not found in {installed} or {checkout / resource}: reinstall tbtui"
    )


def tasks_dir() -> Path:
    """Directory that holds the bundled datasets (`starter/`, `workshop/`)."""
    return bundled_dir("tasks")


def themes_dir() -> Path:
    """Directory that holds the bundled theme files."""
    return bundled_dir("themes")
