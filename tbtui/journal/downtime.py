"""For how long a run that was resumed had no process."""

from __future__ import annotations

from dataclasses import dataclass, field

from tbtui.journal.events import Entry, RunContinued, RunPhase, RunPhaseChanged, RunStarted

Gap = tuple[float, float]
"""From the last event of a process to the first one of the next."""


@dataclass(slots=True)
class Downtime:
    """Fold every event of the journal in.

    That a run goes on is journalled when its policy is loaded: what another process wrote before
    that begins with a phase, too.
    """

    seconds: float = 0.0
    gaps: tuple[Gap, ...] = ()
    """Of the last time that it went on."""
    _latest: float = 0.0
    _process: tuple[str, int] = ("", 0)
    _starts: list[Gap] = field(default_factory=list)
    """Before each phase that may be a process's first one."""

    def see(self, entry: Entry) -> None:
        match event := entry.event:
            case RunPhaseChanged():
                if event.phase is not RunPhase.STARTING:
                    self._starts.clear()
                elif self._latest:
                    self._starts.append((self._latest, entry.time))
            case RunStarted():
                self._starts.clear()
                self._process = (event.host, event.pid)
            case RunContinued():
                # One that has lost its policy goes on in the same process.
                again = (event.host, event.pid) == self._process
                self.gaps = () if again else tuple(self._starts) or ((self._latest, entry.time),)
                self.seconds += sum(max(0.0, until - since) for since, until in self.gaps)
                self._starts.clear()
                self._process = (event.host, event.pid)
            case _:
                pass
        self._latest = entry.time
