"""What the app needs to write a review rule; it knows no more of the rules' file than this."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tbtui.journal.review_rule import Rule

AddRule = Callable[[Path, Rule], None]
"""Writes a rule to the end of a file, which is made if it isn't there. Called on a thread; raises
`RuleFileError`."""


class RuleFileError(Exception):
    """The rule can't be written; the message is one line for a person."""
