"""What the app needs of whoever runs the engine; it knows no more of it than this."""

from __future__ import annotations

from typing import Protocol

from tbtui.journal.commands import Command
from tbtui.journal.commands import RunEnd as RunEnd
from tbtui.journal.rundir import RunDirectory


class RunHost(Protocol):
    """A run whose engine lives on an event loop (and thread) of its own."""

    @property
    def directory(self) -> RunDirectory:
        """Exists already; its journal appears when the engine starts."""
        ...

    @property
    def outlives(self) -> bool:
        """Leaving the app leaves the run alone: it was attached to, or is over."""
        ...

    @property
    def read_only(self) -> str:
        """Why nothing can be asked of the run, in a few words; empty when it can."""
        ...

    def start(self) -> None:
        """Start the engine. Returns at once."""
        ...

    def submit(self, command: Command) -> None:
        """Hand a command over from any thread. Returns at once; the journal tells the rest."""
        ...

    def interrupt(self) -> None:
        """Ask the engine to clean up and end, from any thread. Idempotent; returns at once."""
        ...

    async def ended(self) -> RunEnd:
        """Wait, on the caller's loop, until the engine has ended and cleaned up.

        Giving up the wait doesn't end the engine.
        """
        ...
