"""Which trial is selected, in the cockpit and in a review."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING

from tbtui.view.current import last_attempt
from tbtui.view.state import TrialView

if TYPE_CHECKING:
    from tbtui.view.review import ReviewedGroup, ReviewedTrial

LINGER_SEC = 1.5
"""While following, a finished trial is shown this long before a running one takes over."""


class Selection:
    """The selected trial, and its place in the grid for when the trial is gone.

    Until a trial is chosen, it follows: some running trial is selected. From the
    first choice on it never moves by itself.
    """

    def __init__(self) -> None:
        self.trial: str | None = None
        self.following = True
        self._instead: str | None = None
        """What is selected while the chosen trial isn't shown."""
        self._index = 0
        self._anew = False
        """Whether it is settled from the first trial on."""

    def choose(self, trial: str) -> None:
        """Select this trial, which ends following."""
        self.trial = trial
        self.following = False
        self._instead = None

    @property
    def shown(self) -> str | None:
        """The selected trial, or what stands in for it."""
        return self._instead or self.trial

    def follow(self) -> None:
        self.following = True

    def forget(self) -> None:
        """Follow from the first trial on again, once it is settled: what it has come to was of the
        past. Until then it stays selected, for it is what is shown."""
        self._anew = self.following

    def settle(
        self,
        shown: Sequence[TrialView],
        known: Mapping[str, TrialView],
        now: float,
        current: Sequence[TrialView] = (),
    ) -> TrialView | None:
        """The selected trial among `shown`, of all that are `current`.

        A chosen one never changes because others come, go or change places. A retried trial hands
        over to its successor. Where it isn't shown, the one at the same place stands in: until it
        is shown again, if it is current; for good, if its whole batch has left.
        """
        if not shown:
            return None
        if self._anew and self.following:
            self.trial, self._index = None, 0
        self._anew = False
        self.trial = self.trial and last_attempt(self.trial, known)
        self._instead = self._instead and last_attempt(self._instead, known)
        places = {trial.trial: index for index, trial in enumerate(shown)}
        if self.trial in places:
            self._index, self._instead = places[self.trial], None
        elif self._instead in places:
            self._index = places[self._instead]
        else:
            self._index = min(self._index, len(shown) - 1)
        if self.following:
            self._index = _running(shown, self._index, now)
        here = shown[self._index].trial
        if self.following or all(trial.trial != self.trial for trial in current):
            self.trial = here
        elif here != self.trial:
            self._instead = here
        return shown[self._index]


def _running(shown: Sequence[TrialView], index: int, now: float) -> int:
    """Return the place of a running trial: this one, or the next after it that has a terminal, in
    its group if there is one."""
    here = shown[index]
    if here.started_at is not None and (
        here.finished_at is None or abs(now - here.finished_at) < LINGER_SEC
    ):
        return index
    later = [(index + step) % len(shown) for step in range(1, len(shown))]
    running = [
        place
        for place in later
        if shown[place].live and shown[place].turn > 0 and not shown[place].hold.paused
    ]
    among = (here.group, here.step)
    siblings = (place for place in running if (shown[place].group, shown[place].step) == among)
    return next(siblings, next(iter(running), index))


class ReviewCursor:
    """The chosen group of a review and the chosen trial of each group."""

    def __init__(self) -> None:
        self.groups: list[ReviewedGroup] = []
        self._group = ""
        self._trials: dict[str, str] = {}
        """Group -> its chosen trial."""

    def follow(self, groups: Sequence[ReviewedGroup], trials: Mapping[str, TrialView]) -> None:
        """Take the groups as they are now."""
        self.groups = list(groups)
        # A chosen trial that is attempted again hands over to the fresh attempt.
        self._trials = {group: last_attempt(name, trials) for group, name in self._trials.items()}
        if groups and self._group not in {each.group for each in groups}:
            self._group = groups[0].group

    def begin(self) -> None:
        """Begin at the first suspect trial, or else at the first trial."""
        self._trials.clear()
        every = [(group, trial) for group in self.groups for trial in group.trials]
        suspect = next((each for each in every if each[1].suspicions and each[1].undecided), None)
        if suspect is not None:
            self.choose(suspect[0].group, suspect[1].name)
        elif self.groups:
            self.choose(self.groups[0].group)

    @property
    def group(self) -> ReviewedGroup | None:
        return next((each for each in self.groups if each.group == self._group), None)

    @property
    def trial(self) -> ReviewedTrial | None:
        if (group := self.group) is None or not group.trials:
            return None
        chosen = self._trials.get(group.group)
        return next((each for each in group.trials if each.name == chosen), group.trials[0])

    @property
    def key(self) -> Hashable:
        return self._group, self.trial.name if self.trial is not None else ""

    def choose(self, group: str, trial: str | None = None) -> None:
        self._group = group
        if trial is not None:
            self._trials[group] = trial

    def move_group(self, steps: int) -> None:
        if (group := self.group) is not None:
            place = self.groups.index(group) + steps
            self.choose(self.groups[min(len(self.groups) - 1, max(0, place))].group)

    def move_trial(self, steps: int) -> None:
        group, trial = self.group, self.trial
        if group is not None and trial is not None:
            place = group.trials.index(trial) + steps
            self.choose(group.group, group.trials[min(len(group.trials) - 1, max(0, place))].name)

    def next_suspect(self) -> bool:
        """Go to the next suspect trial, one that is undecided if there is any;
        round and round. False: there is none."""
        every = [(group, trial) for group in self.groups for trial in group.trials]
        suspect = [place for place, (_, trial) in enumerate(every) if trial.suspicions]
        undecided = [place for place in suspect if every[place][1].undecided]
        if not (wanted := undecided or suspect):
            return False
        here = next((place for place, (_, each) in enumerate(every) if each is self.trial), -1)
        group, trial = every[next((place for place in wanted if place > here), wanted[0])]
        self.choose(group.group, trial.name)
        return True
