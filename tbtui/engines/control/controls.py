"""Who may command a run, when several people look at it: one client at a time. Pure.

- Anybody who can reach the run may look at it.
- At most one client *has the controls*: the app that runs the run (from the start), or a viewer
  that has joined it. A viewer that joins gets them if nobody has them.
- Of those who stay (the app, viewers) only the one with the controls may command. Another one
  takes them when a person says so; the one who had them sees who took them, and may take them back.
- A script's single command needs no controls, and takes none. It is refused only while the
  controls are held exclusively.
- Who leaves lets go of the controls.

All of them are the same user (or root), so this keeps people out of each other's way; it is no
protection from them.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, eq=False, slots=True)
class Client:
    """The app in the run's process, a viewer, or a script."""

    name: str
    stays: bool
    """An app or a viewer; else it sends single commands."""


class Controls:
    """Which client has the controls."""

    def __init__(self) -> None:
        self._holder: Client | None = None
        self._exclusive = False

    @property
    def holder(self) -> str:
        """Name of the client that has them; empty: none has."""
        return "" if self._holder is None else self._holder.name

    @property
    def exclusive(self) -> bool:
        return self._exclusive

    def held_by(self, client: Client) -> bool:
        return self._holder is client

    def refusal(self, client: Client) -> str:
        """Why it may not command now; empty: it may."""
        if self._holder is client:
            return ""
        if client.stays:
            return f"{self.holder} has the controls" if self._holder else "nobody has the controls"
        return f"{self.holder} has the controls for itself" if self._exclusive else ""

    def take(self, client: Client, *, exclusive: bool = False) -> None:
        self._holder, self._exclusive = client, exclusive

    def release(self, client: Client) -> bool:
        """Take them from a client that leaves; returns whether it had them."""
        if self._holder is not client:
            return False
        self._holder, self._exclusive = None, False
        return True
