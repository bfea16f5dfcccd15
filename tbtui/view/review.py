"""A step that waits for somebody's look before it is trained."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tbtui.journal.events import GroupUnderReview, ReviewClosed


@dataclass(slots=True)
class ReviewView:
    """A review that is open: what would be trained if it were accepted now."""

    step: int
    since: float
    groups: tuple[GroupUnderReview, ...]
    undecided: tuple[str, ...]
    """Trials that nobody has decided upon, and for whose sake it waits."""
    until: float | None = None
    """When it closes by itself; later by as long as the run is paused."""
    paused_at: float | None = None
    """Since when its time stands still."""

    def pause(self, now: float) -> None:
        if self.paused_at is None:
            self.paused_at = now

    def resume(self, now: float) -> None:
        if self.until is not None and self.paused_at is not None:
            self.until += now - self.paused_at
        self.paused_at = None

    def left(self, now: float) -> float | None:
        """Seconds until it closes by itself; None: it waits for ever."""
        at = now if self.paused_at is None else self.paused_at
        return None if self.until is None else max(0.0, self.until - at)


@dataclass(frozen=True, slots=True)
class ClosedReview:
    """How a review ended."""

    closed: ReviewClosed
    time: float

    @property
    def words(self) -> str:
        """`accepted by ada`."""
        match self.closed.how:
            case "accepted":
                return f"accepted by {self.closed.actor}"
            case "rules":
                return "decided by its rules"
            case "timeout":
                return "nobody came in time"
