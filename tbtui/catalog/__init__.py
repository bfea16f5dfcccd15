"""Tasks: finding them, checking them, and splitting them into training and held-out.

Nothing heavy is imported here: it comes before a run starts.
"""

from __future__ import annotations

from collections.abc import Sequence

from tbtui.errors import UserError


class CatalogError(UserError):
    """The catalog can't be used as asked; the message is one line for the person who asked."""


def nearest(name: str, names: Sequence[str]) -> str:
    """`; did you mean 'x'?` for the most similar of `names`, or an empty string."""
    import difflib  # few names are wrong, and it takes longer to import than to say so

    matches = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    return f"; did you mean {matches[0]!r}?" if matches else ""
