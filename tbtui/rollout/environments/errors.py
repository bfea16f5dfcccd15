"""What can go wrong with a box. None of these is ever a verdict on the agent."""

from __future__ import annotations


class SandboxError(RuntimeError):
    """An operation on the box failed."""


class SandboxStartError(SandboxError):
    """The box could not be made; the text names the step and the remedy where one is known."""


class SandboxLostError(SandboxError):
    """The box died under us: killed, out of memory, or stopped by somebody else."""


class ExecTimeoutError(SandboxError):
    """A command ran past its `timeout_sec` and was killed with its process group."""
