"""Which trials the grid shows, and in which order of their groups. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from tbtui.view.groups import ORDERS, GroupKey, Order, TrialGroup, grouped, ordered
from tbtui.view.state import RunState, TrialView
from tbtui.view.waiting import doing
from tbtui.vocabulary import TrialPhase, category_of

HOLD_SEC = 5.0
"""After the choice of a trial the groups stay in place for so long: the next key is aimed at
what is there now."""
EARLIER_TRIALS = 64
"""Trials of a task or kind that are shown when none of them is under way."""


@dataclass(frozen=True, slots=True)
class RewardRange:
    """Rewards from `low` up to but not including `high`."""

    label: str
    low: float
    high: float

    def __contains__(self, reward: float | None) -> bool:
        return reward is not None and self.low <= reward < self.high


@dataclass(frozen=True, slots=True)
class TrialSet:
    """Trials by their ids."""

    label: str
    trials: frozenset[str]


@dataclass(frozen=True, slots=True)
class Filter:
    """Conditions on a trial, all of which it has to meet."""

    words: str = ""
    """Each of them is part of its task, group, state, outcome, kind or purpose."""
    dataset: str = ""
    kind: str = ""
    task: str = ""
    rewards: RewardRange | None = None
    """Trials in the reward histogram, instead of those under way."""
    only: TrialSet | None = None
    """These trials, instead of those under way."""

    def __bool__(self) -> bool:
        return self != Filter()

    @property
    def in_words(self) -> str:
        """`copy · reward .50 · "failed"`."""
        where = self.task or " ".join(filter(None, (self.dataset, self.kind)))
        parts = [where] if where else []
        if self.rewards is not None:
            parts.append(f"reward {self.rewards.label}")
        if self.only is not None:
            parts.append(self.only.label)
        if self.words:
            parts.append(f"“{self.words}”")
        return " · ".join(parts)


@dataclass(slots=True)
class Listing:
    """The trials of the grid, group by group.

    A trial that somebody chose stays listed while the filter is the same, though it may have
    stopped to match: what is looked at doesn't vanish because it went on. Nor does its group change
    places: the others are sorted around it.
    """

    filter: Filter = Filter()
    order: Order = "attention"
    earlier: bool = False
    """Those listed now are no longer under way."""
    _kept: str = ""
    """The chosen trial, and the filter that it was listed under."""
    _under: Filter = Filter()
    _rows: list[GroupKey] = field(default_factory=list)
    """The groups as they were listed last, in order,"""
    _sorted_by: tuple[Order, Filter] | None = None
    """and what they were sorted by and chosen with."""
    _chosen: str | None = None
    """The trial that was chosen then,"""
    _chosen_at: float = 0.0
    """and since when."""

    def chosen_from(
        self, current: Sequence[TrialView], state: RunState, selected: str | None, now: float
    ) -> list[TrialView]:
        """Those of `current`, the trials under way, that are wanted, group by group, in order.

        `selected` is the trial that somebody chose; None: nobody has chosen any.
        """
        trials = list(current)
        self.earlier = False
        if self.filter:
            trials = self._wanted(trials, state)
            if self.filter == self._under and selected == self._kept and selected in state.trials:
                trial = state.trials[selected]
                if trial not in trials:
                    trials.append(trial)
            elif selected is not None and any(each.trial == selected for each in trials):
                self._kept, self._under = selected, self.filter
        groups = self._in_order(grouped(trials, state), state, selected, now)
        return [trial for group in groups for trial in group.listed]

    def _in_order(
        self, groups: list[TrialGroup], state: RunState, selected: str | None, now: float
    ) -> list[TrialGroup]:
        by_key = {group.key: group for group in ordered(groups, self.order, state, now)}
        rows = list(by_key)
        if selected != self._chosen:
            self._chosen, self._chosen_at = selected, now
        # Others may be sorted by now, or chosen: then nobody has seen them yet.
        if selected is not None and self._sorted_by == (self.order, self.filter):
            if abs(now - self._chosen_at) < HOLD_SEC:
                known = set(self._rows)
                held = [key for key in self._rows if key in by_key]
                rows = held + [key for key in rows if key not in known]
            else:
                self._pin(rows, next((g.key for g in groups if _holds(g, selected)), None))
        self._rows, self._sorted_by = rows, (self.order, self.filter)
        return [by_key[key] for key in rows]

    def _pin(self, rows: list[GroupKey], chosen: GroupKey | None) -> None:
        """Leave the chosen group where it was."""
        if chosen in self._rows and chosen is not None:
            place = sum(key in rows for key in self._rows[: self._rows.index(chosen)])
            rows.remove(chosen)
            rows.insert(place, chosen)

    def _wanted(self, current: list[TrialView], state: RunState) -> list[TrialView]:
        if (only := self.filter.only) is not None:
            self.earlier = True
            named = [trial for trial in state.trials.values() if trial.trial in only.trials]
            return self._matching(named, state)
        if self.filter.rewards is not None:
            of_step = rewarded(state)
            self.earlier = not any(trial in current for trial in of_step)
            return self._matching(of_step, state)
        trials = self._matching(current, state)
        if not trials and (self.filter.task or self.filter.kind or self.filter.dataset):
            self.earlier = True
            trials = self._matching(state.trials.values(), state)[-EARLIER_TRIALS:]
        return trials

    def _matching(self, trials: Iterable[TrialView], state: RunState) -> list[TrialView]:
        wanted, words = self.filter, self.filter.words.lower().split()
        return [
            trial
            for trial in trials
            if (not wanted.task or trial.task == wanted.task)
            and (not wanted.dataset or _dataset_of(trial, state) == wanted.dataset)
            and (not wanted.kind or kind_of(trial, state) == wanted.kind)
            and (wanted.rewards is None or trial.reward in wanted.rewards)
            and all(word in _words_of(trial, state) for word in words)
        ]

    def by_task(self, kind: str = "", task: str = "", dataset: str = "") -> None:
        """Show this data set, kind or task alone; the same again, or none of them, shows all."""
        now = self.filter.kind, self.filter.task, self.filter.dataset
        if now == (kind, task, dataset):
            kind = task = dataset = ""
        self.filter = replace(self.filter, kind=kind, task=task, dataset=dataset)

    def next_order(self) -> None:
        self.order = ORDERS[(ORDERS.index(self.order) + 1) % len(ORDERS)]


def _holds(group: TrialGroup, trial: str) -> bool:
    return any(each.trial == trial for each in group.trials)


def rewarded(state: RunState) -> list[TrialView]:
    """The trials that the reward histogram counts, as far as they are kept."""
    if (step := state.rewarded_step()) is None:
        return []
    return [
        trial
        for trial in state.trials.values()
        if (trial.purpose, trial.step) == ("train", step.step)
        and trial.finished_at is not None
        and trial.reward is not None
        and trial.left_out is None
    ]


def kind_of(trial: TrialView, state: RunState) -> str:
    task = state.tasks.get(trial.task)
    return task.kind if task is not None else category_of(None, None)


def _dataset_of(trial: TrialView, state: RunState) -> str:
    task = state.tasks.get(trial.task)
    return task.dataset if task is not None else ""


def _words_of(trial: TrialView, state: RunState) -> str:
    """All that a filter's words may name."""
    purpose = {"eval": "held out eval", "fork": "fork", "probe": "probe"}.get(
        trial.purpose, "training"
    )
    standing = "running" if trial.live and trial.phase is not TrialPhase.QUEUED else ""
    parts = [trial.label, trial.group, doing(trial), kind_of(trial, state), purpose, standing]
    parts.append(_dataset_of(trial, state))
    if trial.outcome is not None:
        parts += ["done", trial.outcome, "infrastructure" if trial.infrastructure else ""]
    if trial.left_out is not None:
        parts += ["left out", trial.left_out]
    return " ".join(parts).lower()
