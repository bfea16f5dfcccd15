"""Which trial is selected: it stays that trial while there is any way to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tbtui.view.state import TrialView

LINGER_SEC = 1.5
"""While following, a finished trial is shown this long before a running one takes over."""


class Selection:
    """A trial, and its place in the grid for when the trial is gone.

    Until somebody chooses, it follows what happens: some running trial is selected. From the
    first choice on it never moves by itself.
    """

    def __init__(self) -> None:
        self.trial: str | None = None
        self.following = True
        self._index = 0

    def choose(self, trial: str) -> None:
        """Somebody means this trial."""
        self.trial = trial
        self.following = False

    def follow(self) -> None:
        self.following = True

    def settle(
        self, shown: Sequence[TrialView], known: Mapping[str, TrialView], now: float
    ) -> TrialView | None:
        """The selected trial among `shown`.

        A chosen one never changes because others come or go. A retried trial hands over to its
        successor; when its whole batch has left the grid, the one at the same place takes over.
        """
        if not shown:
            return None
        while (
            self.trial is not None
            and self.trial in known
            and (successor := known[self.trial].successor) is not None
            and successor in known
        ):
            self.trial = successor
        for index, trial in enumerate(shown):
            if trial.trial == self.trial:
                self._index = index
                break
        else:
            self._index = min(self._index, len(shown) - 1)
        if self.following:
            self._index = _running(shown, self._index, now)
        self.trial = shown[self._index].trial
        return shown[self._index]


def _running(shown: Sequence[TrialView], index: int, now: float) -> int:
    """The place of a trial that runs: this one, or the next after it that has a terminal."""
    here = shown[index]
    if here.started_at is not None and (
        here.finished_at is None or now - here.finished_at < LINGER_SEC
    ):
        return index
    for step in range(1, len(shown)):
        place = (index + step) % len(shown)
        if shown[place].live and shown[place].turn > 0 and not shown[place].paused:
            return place
    return index
