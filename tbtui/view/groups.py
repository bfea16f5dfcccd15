"""The groups of the trials on the screen: who is in each, its figures, its place; and where the
histories of one group's trials part, turn by turn. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from math import inf, sqrt
from typing import Literal, get_args

from tbtui.journal.events import Disposition
from tbtui.view.current import active_seconds, places
from tbtui.view.state import GroupView, RunState, TrialView
from tbtui.view.transcript import Transcript, TurnView
from tbtui.vocabulary import Purpose, TrialPhase

Order = Literal["attention", "queued", "task", "state", "age", "reward"]
ORDERS: tuple[Order, ...] = get_args(Order)
ORDER_WORDS: dict[Order, str] = {
    "attention": "",
    "queued": "as queued",
    "task": "by task",
    "state": "by state",
    "age": "longest first",
    "reward": "by reward",
}

HELD_OUT = "held out"
"""The group that the trials of an evaluation make which tries each task once."""
FEW_GROUPS = 8
"""So many rows are in sight in every window: attention has no reason to move them."""
_SLOW = 2.0
"""Times the mean duration of trials, from which on a running one is costly."""
_KNOWN = 8
"""Finished trials from which on there is such a mean."""

type GroupKey = tuple[Purpose, int, str, str]
"""Purpose, step, group and task; the last two are empty for `HELD_OUT`."""


@dataclass(frozen=True, slots=True)
class TrialGroup:
    """All trials of one group, each in its lasting place: its figures are of them, whichever a
    filter lists."""

    key: GroupKey
    name: str
    trials: tuple[TrialView, ...]
    scored: GroupView | None = None
    """None: no step has announced it, as of evaluations."""
    dimmed: frozenset[str] = frozenset()
    """Those that are not listed."""

    @property
    def listed(self) -> tuple[TrialView, ...]:
        if not self.dimmed:
            return self.trials
        return tuple(trial for trial in self.trials if trial.trial not in self.dimmed)

    @property
    def step(self) -> int:
        return self.key[1]

    @property
    def held_out(self) -> bool:
        return self.key[0] == "eval"

    @property
    def many_tasks(self) -> bool:
        """Whether its trials are of different tasks, so that their rewards are no sample of one."""
        return not self.key[3]

    @property
    def disposition(self) -> Disposition | None:
        """The group's part in its step: trained, constant or short; None: not scored yet."""
        return None if self.scored is None else self.scored.disposition

    @property
    def complete(self) -> bool:
        return not any(trial.live for trial in self.trials)

    @property
    def rewards(self) -> list[float]:
        """Rewards of the finished trials that count."""
        return [t.reward for t in self.trials if t.reward is not None and t.left_out is None]

    @property
    def mean(self) -> float | None:
        rewards = self.rewards
        return sum(rewards) / len(rewards) if rewards else None

    @property
    def spread(self) -> float | None:
        """Standard deviation of the rewards; None: there are fewer than two."""
        return standard_deviation(self.rewards)

    @property
    def advantages(self) -> tuple[float, float] | None:
        """The smallest and the largest; None: nothing of it is trained on, or not yet."""
        known = [t.advantage for t in self.trials if t.advantage is not None]
        return (min(known), max(known)) if known and self.disposition == "trained" else None

    @property
    def slowest(self) -> TrialView | None:
        """The trial that holds the group up: one that somebody holds, else the running one that
        was started first; None: none is running."""
        held = [t for t in self.trials if t.live and (t.hold.paused or t.pending)]
        running = [t for t in self.trials if t.live and t.started_at is not None]
        return min(held or running, key=lambda t: t.started_at or inf, default=None)


def standard_deviation(rewards: Sequence[float]) -> float | None:
    """Population standard deviation of the rewards; None for fewer than two."""
    if len(rewards) < 2:
        return None
    mean = sum(rewards) / len(rewards)
    return sqrt(sum((reward - mean) ** 2 for reward in rewards) / len(rewards))


def grouped(trials: Iterable[TrialView], state: RunState) -> list[TrialGroup]:
    """The groups of these trials, whole, in the order in which their first trials come.

    The trials of an evaluation that tries each task once are one group, `HELD_OUT`.
    """
    listed: dict[GroupKey, list[TrialView]] = {}
    for trial in trials:
        listed.setdefault(_key(trial), []).append(trial)
    batches = {(key[0], key[1]) for key in listed}
    known = state.trials
    names = (name for name, each in known.items() if (each.purpose, each.step) in batches)
    members: dict[GroupKey, list[TrialView]] = {key: [] for key in listed}
    for name in places(names, known):
        members.setdefault(_key(known[name]), []).append(known[name])
    repeated = {key[1] for key, some in members.items() if key[0] == "eval" and len(some) > 1}
    groups: dict[GroupKey, tuple[list[TrialView], list[TrialView]]] = {}
    for key, some in members.items():
        once = key[0] == "eval" and key[1] not in repeated
        if once or key in listed:
            shown, whole = groups.setdefault(("eval", key[1], "", "") if once else key, ([], []))
            shown += listed.get(key, ())
            whole += some
    return [_group(key, *some, state) for key, some in groups.items()]


def _key(trial: TrialView) -> GroupKey:
    return trial.purpose, trial.step, trial.group, trial.task


def _group(
    key: GroupKey, listed: Sequence[TrialView], places: Sequence[TrialView], state: RunState
) -> TrialGroup:
    names, known = ({trial.trial for trial in some} for some in (listed, places))
    # An earlier attempt has no place any more, and may be listed all the same.
    trials = (*places, *(trial for trial in listed if trial.trial not in known))
    scored, dimmed = state.groups.get(key[2]), frozenset(known - names)
    return TrialGroup(key, _name(key, trials), trials, scored, dimmed)


def _name(key: GroupKey, trials: Sequence[TrialView]) -> str:
    """Its task; of forks with the turn, as `tbtui fork` names it, of a probe with the arm: of one
    task there are many."""
    if key[0] == "fork":
        return f"{key[3]}@{trials[0].fork_turn}"
    if key[0] == "probe":
        return f"{key[3]} {key[2].partition('-')[0]}"
    return key[3] or HELD_OUT


def ordered(
    groups: Sequence[TrialGroup], order: Order, state: RunState, now: float
) -> list[TrialGroup]:
    """The groups in this order; those that it ranks alike stay as they are."""
    match order:
        case "queued":
            return list(groups)
        case "attention":
            if len(groups) <= FEW_GROUPS:
                return list(groups)
            slow = _slow(state)
            return sorted(groups, key=lambda group: _attention_rank(group, slow, now))
        case _:
            return sorted(groups, key=_RANKS[order])


def _slow(state: RunState) -> float:
    """Seconds from which on a running trial is costly."""
    known = state.durations
    if len(known) < _KNOWN:
        return inf
    return _SLOW * sum(each.seconds for each in known) / len(known)


def _attention_rank(group: TrialGroup, slow: float, now: float) -> int:
    """What may need somebody first, then what is odd, costly, alive, waits, is over."""
    live = [trial for trial in group.trials if trial.live]
    if any(trial.hold.paused or trial.pending for trial in live):
        return 0
    if any(trial.infrastructure for trial in group.trials):
        return 1
    if not live:
        return 6 if group.disposition == "constant" else 5
    running = [trial for trial in live if trial.phase is not TrialPhase.QUEUED]
    if any(active_seconds(trial, now) > slow for trial in running):
        return 2
    return 3 if running else 4


def _state_rank(trial: TrialView) -> tuple[int, float]:
    """What may need somebody first, then what runs, what waits, what is over."""
    if trial.live and (trial.hold.paused or trial.pending):
        rank = 0
    elif trial.live:
        rank = 2 if trial.phase is TrialPhase.QUEUED else 1
    elif trial.infrastructure:
        rank = 3
    else:
        rank = 4 if trial.reward is None else 5 if trial.reward < 1 else 6
    return rank, trial.queued_at


def _age_rank(trial: TrialView) -> tuple[bool, float]:
    """Running trials, the oldest first; then the others."""
    running = trial.live and trial.started_at is not None
    return not running, trial.started_at if running and trial.started_at else trial.queued_at


def _reward_rank(group: TrialGroup) -> tuple[bool, float]:
    mean = group.mean
    return mean is None, -(mean or 0.0)


_RANKS: dict[Order, Callable[[TrialGroup], tuple[int | str, float]]] = {
    "state": lambda group: min(map(_state_rank, group.trials)),
    "age": lambda group: min(map(_age_rank, group.trials)),
    "reward": _reward_rank,
    # Groups of forks stay in their turns' order.
    "task": lambda group: (group.key[3] or group.name, group.step),
}


@dataclass(frozen=True, slots=True)
class TurnCell:
    """One turn of one sibling, compared with the same turn of the others."""

    turn: TurnView
    alike: int
    """Siblings whose history up to and with this turn is the same, itself included."""
    first: bool
    """It is the leftmost of those."""
    of: int
    """Siblings that have had this turn."""
    against: int | None = None
    """Index of the sibling from which it parts in this turn: the leftmost of those that go on
    alike in the largest number. None: it doesn't part, or the others part from it."""
    where: Literal["action", "answer"] = "action"
    """What differs: what the agent did, or only what the terminal answered."""

    @property
    def repeated(self) -> bool:
        """Shared by all, or to be read further left already."""
        return self.alike > 1 and (self.alike == self.of or not self.first)


def aligned(transcripts: Sequence[Transcript]) -> list[list[TurnCell]]:
    """The turns of each sibling, in the order given.

    A turn is the same as another one if the keystrokes (or what could not be read), the claim to
    be done and the terminal's answer are; what the agent thought about it may differ. A turn
    without an answer yet is compared with none.
    """
    turns = [[turn for turn in each.turns if turn.purpose == "turn"] for each in transcripts]
    cells: list[list[TurnCell]] = [[] for _ in transcripts]
    branch: list[Hashable] = [()] * len(transcripts)
    for place in range(max(map(len, turns), default=0)):
        here = [index for index, each in enumerate(turns) if len(each) > place]
        complete = {
            index: turns[index][place]
            for index in here
            if place + 1 < len(turns[index])
            or turns[index][place].observation
            or transcripts[index].finished is not None
        }
        before = list(branch)
        for index in here:
            turn = complete.get(index)
            branch[index] = (
                (before[index], index) if turn is None else (before[index], _whole(turn))
            )
        for index in here:
            same = [other for other in here if branch[other] == branch[index]]
            peers = [other for other in complete if before[other] == before[index]]
            against = _trunk(peers, branch)
            if index not in complete or against is None or branch[against] == branch[index]:
                against = None
            mine = turns[index][place]
            agreed = against is not None and _action(turns[against][place]) == _action(mine)
            cells[index].append(
                TurnCell(
                    mine,
                    alike=len(same),
                    first=same[0] == index,
                    of=len(here),
                    against=against,
                    where="answer" if agreed else "action",
                )
            )
    return cells


def _trunk(peers: Sequence[int], branch: Sequence[Hashable]) -> int | None:
    """The leftmost of the largest number of peers that go on alike; others part from them."""
    sizes = Counter(branch[peer] for peer in peers)
    return max(peers, key=lambda peer: sizes[branch[peer]], default=None)


def first_divergence(cells: Sequence[Sequence[TurnCell]]) -> int | None:
    """The place (from 0) of the first turn in which any two siblings part."""
    places = [
        place for each in cells for place, cell in enumerate(each) if cell.against is not None
    ]
    return min(places, default=None)


def first_difference(mine: Sequence[str], other: Sequence[str]) -> int | None:
    """Index of the first token in which two completions differ; None: they don't, or one of them
    is not known."""
    if not mine or not other:
        return None
    for index, (a, b) in enumerate(zip(mine, other, strict=False)):
        if a != b:
            return index
    return min(len(mine), len(other)) if len(mine) != len(other) else None


def _action(turn: TurnView) -> Hashable:
    keystrokes = tuple(command.keystrokes for command in turn.commands)
    return keystrokes, turn.task_complete, turn.text if turn.error else ""


def _whole(turn: TurnView) -> Hashable:
    return _action(turn), turn.observation
