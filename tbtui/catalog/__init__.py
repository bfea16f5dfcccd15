"""Tasks: finding their directory, checking them, and splitting them into training and held-out.

Nothing heavy is imported here: it comes before a run starts.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tbtui.errors import UserError
from tbtui.paths import PathError, data_dir, expanded
from tbtui.resources import tasks_dir as bundled_tasks

DEFAULT = "starter"
"""The bundled data set that is meant where none is named."""


class CatalogError(UserError):
    """The catalog can't be used as asked; the message is one line for the person who asked."""


def nearest(name: str, names: Sequence[str]) -> str:
    """`; did you mean 'x'?` for the most similar of `names`, or an empty string."""
    import difflib  # few names are wrong, and it takes longer to import than to say so

    matches = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    return f"; did you mean {str(matches[0])!r}?" if matches else ""


def fetched_tasks() -> Path:
    """Directory of the data sets that `tbtui tasks fetch` has put there."""
    return data_dir() / "tasks"


def find_tasks(given: Path | None) -> Path:
    """The directory that `tasks_dir=` means.

    An existing directory as it is; else a data set by its name (`workshop`,
    `terminal-bench@2.0`, or `terminal-bench` where one version of it was fetched).

    Raises:
        CatalogError: there is none, and the message names the nearest data set; or one mayn't look.
    """
    if given is None:
        return bundled_tasks() / DEFAULT
    try:
        path = expanded(given)
    except PathError as error:
        raise CatalogError(str(error)) from error
    if path.is_dir():
        return path
    name = str(given)
    if path.exists() or given.is_absolute() or len(given.parts) != 1:
        what = (
            "is not a directory (set tasks_dir to one)"
            if path.exists()
            else "does not exist (set tasks_dir to one that does)"
        )
        raise CatalogError(f"tasks directory {path.absolute()} {what}")
    known = named_tasks()
    if name in known:
        return known[name]
    versions = [each for each in known if each.partition("@")[0] == name]
    if len(versions) == 1:
        return known[versions[0]]
    if versions:
        raise CatalogError(f"tasks_dir={name}: there are {' and '.join(versions)}; give one")
    raise CatalogError(
        f"tasks directory {path.absolute()} does not exist, and no data set is called"
        f" {name!r}{nearest(name, list(known))} (set tasks_dir to one that does)"
    )


def named_tasks() -> dict[str, Path]:
    """The bundled and the fetched data sets by name."""
    found: dict[str, Path] = {}
    for home in (fetched_tasks(), bundled_tasks()):
        if home.is_dir():
            found |= {
                path.name: path
                for path in sorted(home.iterdir())
                if path.is_dir() and not path.name.startswith(".")
            }
    return found
