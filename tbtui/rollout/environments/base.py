"""What environments share: their errors, commands that they recognise, and what they can do beyond
Harbor's `BaseEnvironment`."""

from __future__ import annotations

import re
import shlex
import socket
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from tbtui.errors import UserError

if TYPE_CHECKING:  # it takes most of a second
    from harbor.environments.base import BaseEnvironment

PANE_LOG = "terminal.pane"
"""In an agent's log directory: all that the trial's terminal was given to show."""

# Errors, of which none is ever a verdict on the agent


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


# Commands that are not simply handed to a shell
#
# Terminus-2 sends every key stroke and reads every screen through `exec`. `tmux send-keys -t x --
# 'ls -l' Enter` means the same with and without a shell, and without one it costs one process less.
#
# Harbor ignores the exit status of a test script and reads the reward file, whichever process wrote
# it. An environment that runs the script where its own first process or its engine sees it end
# keeps what it saw, and compares the tests with those that were uploaded.

# Programs, not shell builtins, so that skipping the shell changes nothing.
_PROGRAMS = frozenset(["tmux", "chmod", "rm"])

_PLAIN_PATH = r"/[A-Za-z0-9_@%+=:,./-]+"
# As `harbor.utils.scripts.build_execution_command` writes it, for paths that need no quotes.
_COMMAND = re.compile(rf"\((?P<script>{_PLAIN_PATH}\.sh)\) > (?P<output>{_PLAIN_PATH}) 2>&1")


def direct_argv(command: str) -> list[str] | None:
    """The argument list of a command that needs no shell, or None.

    Only what `shlex.join` writes is recognised: anything that a shell would expand, redirect or
    combine is left to the shell.
    """
    try:
        argv = shlex.split(command)
    except ValueError:  # a quotation that doesn't end
        return None
    if not argv or argv[0] not in _PROGRAMS or shlex.join(argv) != command:
        return None
    return argv


@dataclass(frozen=True, slots=True)
class ScriptRun:
    """A test script, and the file that gets all it prints."""

    script: str
    output: str


def script_run(command: str) -> ScriptRun | None:
    """The test script that `command` runs as Harbor does, or None."""
    found = _COMMAND.fullmatch(command)
    return ScriptRun(found["script"], found["output"]) if found else None


@dataclass(frozen=True, slots=True)
class ScriptEnd:
    """How the process of a test script ended."""

    signal: int = 0
    """That killed it; 0: it ended by itself."""
    not_started: str = ""
    """Why there never was such a process: no interpreter, no script."""
    memory: bool = False
    """Meanwhile something was killed for want of memory, in the environment or on the machine."""


# Abilities, of which Harbor's own environments have none: a caller checks for one with
# `isinstance`, and does without it where it is missing


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
class HasLoopback(Protocol):
    """An environment with a network of its own in which a socket can be made from outside."""

    async def listen(self, port: int) -> socket.socket | None:
        """A TCP socket that listens on 127.0.0.1 there; None: its loopback is the host's.

        It keeps belonging to that network: what connects to it comes from there, with no other
        network between, and nothing in the environment serves it.

        Raises:
            OSError: the port is taken there.
            SandboxError: there is no way in.
        """
        ...


@runtime_checkable
class LendsNetwork(Protocol):
    """An environment that can be given a network for a while."""

    def with_network(self) -> AbstractAsyncContextManager[None]:
        """It has a network while the block lasts, whatever its task says. Raises SandboxError."""
        ...


@runtime_checkable
class KeepsAgents(Protocol):
    """An environment whose image can have an agent's program in it."""

    has_agent: bool
    """It was started from such an image."""

    async def install_agent(
        self, set_up: Callable[[BaseEnvironment], Awaitable[None]], *, network: bool
    ) -> None:
        """Make the image that this environment will be started from, unless it is there.

        Args:
            set_up: installs the agent in an environment.
            network: that one has a network meanwhile.

        Raises:
            SandboxError: it can't be made; and whatever `set_up` raises.
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
class WatchesPrograms(Protocol):
    """An environment that knows, by means that are not in it, which of its programs changed."""

    async def mark_programs(self) -> None:
        """Take the programs that are there now for unchanged."""
        ...

    async def changed_programs(self) -> str:
        """The first program or library that was changed since; empty: none was."""
        ...


@runtime_checkable
class KnowsDamage(Protocol):
    """An environment that knows, by means that are not in it, how its own programs have kept more
    from running in it."""

    async def damage(self) -> str:
        """What they have done, after "has": `used up its disk`; empty: nothing.

        Raises:
            SandboxError: the environment can't be asked.
        """
        ...


@runtime_checkable
class NoticesLoss(Protocol):
    """An environment whose `exec` raises SandboxLostError when it is gone.

    A command that only fails there shows that it is not: what the command needs was removed.
    """

    notices_loss: bool
