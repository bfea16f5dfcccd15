"""Why trials can't run as asked."""

from __future__ import annotations

from tbtui.errors import UserError


class EnvironmentUnavailable(UserError):
    """Trials can't run as asked; the message is one line that ends with the remedy."""


class ExtraMissing(EnvironmentUnavailable):
    """Python packages are wanted that are not installed."""
