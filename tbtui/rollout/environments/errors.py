"""What can go wrong with an environment. None of these is ever a verdict on the agent."""

from __future__ import annotations

from tbtui.errors import UserError


class SandboxError(RuntimeError):
    """An operation on the box failed."""


class SandboxStartError(SandboxError):
    """The box could not be made; the text names the step and the remedy where one is known."""


class SandboxLostError(SandboxError):
    """The box is gone: killed, out of memory, or stopped from outside."""


class ExecTimeoutError(SandboxError):
    """A command ran past its `timeout_sec` and was killed with its process group."""


class EnvironmentUnavailable(UserError):
    """Trials can't run as asked; the message is one line that ends with the remedy."""


class ExtraMissing(EnvironmentUnavailable):
    """Python packages are wanted that are not installed."""
