"""One hand on the controls: who may command a run, when several people look at it. Pure.

- Anybody who can reach the run may look at it.
- At most one hand *has the controls*: the app that runs the run (from the start), or a viewer
  that has joined it. A viewer that joins gets them if nobody has them.
- Of those who stay (the app, viewers) only the one with the controls may command. Another one
  takes them when a person says so; who had them is told who took them, and may take them back.
- A script's single command needs no controls, and takes none. It is refused only while the
  controls are held exclusively.
- Who leaves lets go of the controls.

All of them are the same user (or root), so this keeps people out of each other's way; it is no
protection from them.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, eq=False, slots=True)
class Hand:
    """Somebody who may want the controls."""

    name: str
    stays: bool
    """An app or a viewer; else it sends single commands."""


class Controls:
    """Who has them."""

    def __init__(self) -> None:
        self._holder: Hand | None = None
        self._exclusive = False

    @property
    def holder(self) -> str:
        """Empty: nobody."""
        return "" if self._holder is None else self._holder.name

    @property
    def exclusive(self) -> bool:
        return self._exclusive

    def held_by(self, hand: Hand) -> bool:
        return self._holder is hand

    def refusal(self, hand: Hand) -> str:
        """Why it may not command now; empty: it may."""
        if self._holder is hand:
            return ""
        if hand.stays:
            return f"{self.holder} has the controls" if self._holder else "nobody has the controls"
        return f"{self.holder} has the controls for itself" if self._exclusive else ""

    def take(self, hand: Hand, *, exclusive: bool = False) -> None:
        self._holder, self._exclusive = hand, exclusive

    def release(self, hand: Hand) -> bool:
        """Whether it had them."""
        if self._holder is not hand:
            return False
        self._holder, self._exclusive = None, False
        return True
