"""The one error whose message is for a person; it stands below every room that raises it."""

from __future__ import annotations


class UserError(Exception):
    """Something that was asked for can't be done.

    The message is one line that says what is wrong, where, and what to do. Commands print it and
    leave with status 2; a run that it ends is reported with it as it is. Subclasses tell apart what
    somebody handles otherwise.
    """
