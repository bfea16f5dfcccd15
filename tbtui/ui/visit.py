"""A run on the screen, and whoever can be asked about it."""

from __future__ import annotations

from dataclasses import dataclass

from tbtui.ui.host import RunEnd, RunHost
from tbtui.ui.live import LiveRun


@dataclass(eq=False, slots=True)
class Visit:
    """The app's own run, or another one that somebody opened from it."""

    run: LiveRun
    host: RunHost
    end: RunEnd | None = None
    """How the host ended; None while it goes on."""

    @property
    def over(self) -> str:
        """Why nothing can be asked of the run, whoever has the controls; empty where it can."""
        if self.run.replay is not None:
            return "This is a recorded run: nothing can be asked of it."
        if self.end is not None:
            return "The run is over."
        return "" if self.host.steerable else f"You only look: {self.host.read_only}."

    @property
    def refusal(self) -> str:
        """Why nothing can be asked of the run now; empty where it can."""
        if not self.over and self.host.read_only:
            return f"You only look: {self.host.read_only}."
        return self.over

    @property
    def badge(self) -> str:
        """What the status line says of another run than one's own."""
        name = self.run.directory.name
        if self.run.replay is not None:
            return f"replay {name}"
        if self.host.read_only and self.end is None:
            return f"watching {name}"
        return f"attached {name}"
