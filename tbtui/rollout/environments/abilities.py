"""What an environment can do beyond Harbor's `BaseEnvironment`; Harbor's own can do none of it.

A caller checks for an ability with `isinstance`, and does without it where it is missing.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol, runtime_checkable

from tbtui.rollout.environments.commands import ScriptEnd


@runtime_checkable
class Freezable(Protocol):
    """An environment that can freeze its processes better than by signals."""

    async def freeze(self) -> None:
        """Stop every process; nothing happens if they are stopped."""

    async def thaw(self) -> None:
        """Let every process go on; nothing happens if none is stopped."""


@runtime_checkable
class Terminals(Protocol):
    """A sandbox whose programs can be talked to while they run."""

    async def open_program(
        self, argv: Sequence[str], *, user: str | int | None = None
    ) -> socket.socket:
        """Starts a program; its standard input and output are the returned socket's other end.

        The socket is the caller's; it reads EOF when the program has ended.

        Raises:
            SandboxError: the sandbox is gone or can't start it.
        """
        ...


@runtime_checkable
class WatchesScripts(Protocol):
    """An environment that sees a test script end and can check whether its files were changed."""

    script_end: ScriptEnd | None
    """How the last test script ended; None before the first."""

    async def changed_file(self, sources: Sequence[Path], target: str) -> str | None:
        """The first file below `target` that isn't as in the directories uploaded there.

        Where two directories have a file the last one counts. What was added is not looked at: a
        test runner leaves caches.

        Raises:
            SandboxError: the environment can't be asked.
        """
        ...


@runtime_checkable
class KnowsItsRoom(Protocol):
    """An environment with a disk of its own that only its programs can fill."""

    async def has_room(self, sources: Sequence[Path]) -> bool:
        """Whether its disk takes what is below these directories, and a few small files."""
        ...


@runtime_checkable
class EndsProcesses(Protocol):
    """An environment that can kill all that runs in it, by means that are not in it."""

    async def end_processes(self) -> None:
        """Kill every process but the environment's own first one.

        Raises:
            SandboxError: one of them does not go.
        """
        ...


@runtime_checkable
class NoticesLoss(Protocol):
    """An environment whose `exec` raises SandboxLostError when it is gone.

    A command that only fails there shows that it is not: what the command needs was removed.
    """

    notices_loss: bool
