"""What can go wrong with an environment. None of these is ever a verdict on the agent."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from tbtui.errors import UserError


class SandboxError(RuntimeError):
    """An operation on the box failed."""


class SandboxStartError(SandboxError):
    """The box could not be made; the text names the step and the remedy where one is known."""


class SandboxLostError(SandboxError):
    """The box is gone: killed, out of memory, or stopped from outside."""


class ExecTimeoutError(SandboxError):
    """A command ran past its `timeout_sec` and was killed with its process group."""


@runtime_checkable
class NoticesLoss(Protocol):
    """An environment whose `exec` raises SandboxLostError when it is gone.

    A command that only fails there shows that it is not: what the command needs was removed.
    """

    notices_loss: bool


class EnvironmentUnavailable(UserError):
    """Trials can't run as asked; the message is one line that ends with the remedy."""


class ExtraMissing(EnvironmentUnavailable):
    """Python packages are wanted that are not installed."""
