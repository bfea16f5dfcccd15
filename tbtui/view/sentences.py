"""Sentences for people about the facts of a journal.

The screen, lines and alerts say the same of an event. What a run's process writes down in words,
as the reason of its end, is composed here, too.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from tbtui.journal.events import (
    AlarmRaised,
    AlertSent,
    BudgetReached,
    EvalFinished,
    ForksStarted,
    GroupScored,
    TurnsValued,
    TurnValue,
)
from tbtui.journal.figures import SAMPLING_SPEED, TRAINING_SPEED
from tbtui.vocabulary import BudgetUnit


def reward_text(reward: float | None) -> str:
    return "none" if reward is None else f"{reward:g}"


def dollars(usd: float) -> str:
    """US dollars, in cents; less than ten cents with two significant digits."""
    if usd == 0 or usd >= 0.1:
        return f"${usd:,.2f}"
    return f"${usd:.2g}" if usd >= 1e-4 else "<$0.0001"


def alarm_words(alarm: AlarmRaised) -> str:
    """`no signal at step 12: no group taught anything for 5 steps; the run is paused`."""
    led_to = {"warn": "", "pause": "; the run is paused", "halt": "; the run ends"}
    return f"{alarm.alarm.words} at step {alarm.step}: {alarm.text}{led_to[alarm.action]}"


@dataclass(frozen=True, slots=True)
class HeldOut:
    """One evaluation."""

    step: int
    rate: float | None
    """Pass rate, over the tasks that have a scored trial; None: no task has."""
    tasks: int
    """Those that have; 0 where the journal says nothing of single tasks."""
    unscored_tasks: int
    trials: int
    mean_reward: float | None
    harbor_rate: float | None = None
    """As Harbor counts, where that is another rate."""

    @classmethod
    def of(cls, event: EvalFinished) -> HeldOut:
        return cls(
            event.step,
            event.pass_rate,
            len(event.by_task),
            event.unscored_tasks,
            event.scored + event.unscored,
            event.mean_reward,
            None if event.harbor_pass_rate == event.pass_rate else event.harbor_pass_rate,
        )

    @property
    def as_harbor_counts(self) -> str:
        """`; 0.50 as Harbor counts, by verdicts alone`; empty where the rate is the same."""
        if self.harbor_rate is None:
            return ""
        return f"; {self.harbor_rate:.2f} as Harbor counts, by verdicts alone"

    @property
    def coverage(self) -> str:
        """`of 4 of 11 tasks; 7 unscored`; empty where the rate is of all."""
        if not self.unscored_tasks or self.rate is None:
            return ""
        return f"of {self.tasks} of {self.tasks + self.unscored_tasks} tasks" + (
            f"; {self.unscored_tasks} unscored"
        )

    @property
    def share(self) -> str:
        """`4/11`: how many of the tasks the rate is of; empty where it is of all."""
        return f"{self.tasks}/{self.tasks + self.unscored_tasks}" if self.coverage else ""

    @property
    def words(self) -> str:
        """`0.25 of 4 of 11 tasks; 7 unscored`."""
        if self.rate is None:
            tasks = self.unscored_tasks
            return f"unscored ({tasks} task{'s' * (tasks != 1)})" if tasks else "unscored"
        return f"{self.rate:.2f} {self.coverage}".rstrip() + self.as_harbor_counts


def pass_rates_in_words(first: HeldOut, last: HeldOut) -> str:
    """`held-out pass rate 0.33 → 0.85`, or that of the one there is."""
    if last.trials == 1:
        # Nothing to take a rate of.
        reward = last.rate if last.mean_reward is None else last.mean_reward
        if reward is None:
            return "one trial, unscored"
        return f"one trial, reward {reward:g}{last.as_harbor_counts}"
    if first == last:
        return f"held-out pass rate {last.words}"
    if first.rate is not None and first.coverage == last.coverage:
        return f"held-out pass rate {first.rate:.2f} → {last.words}"
    return f"held-out pass rate {first.words} → {last.words}"


def summary_line(steps: int, before: EvalFinished | None, after: EvalFinished | None) -> str:
    """A summary of the run, from its first evaluation to its last, in one line for a person."""
    done = f"{steps} step{'' if steps == 1 else 's'}"
    if before is None or after is None:
        return f"{done}; nothing was evaluated"
    rates = pass_rates_in_words(HeldOut.of(before), HeldOut.of(after))
    return f"{done}, {rates}" if steps else rates


def speed_line(metrics: Mapping[str, float]) -> str | None:
    """What a run's first step says of its speed; None where there was nothing to train on."""
    if TRAINING_SPEED not in metrics or SAMPLING_SPEED not in metrics:
        return None
    return (
        f"speed: {metrics[SAMPLING_SPEED]:,.0f} tokens/s sampling,"
        f" {metrics[TRAINING_SPEED]:,.0f} training"
    )


def weight_words(factor: float, pinned: bool) -> str:
    """What somebody wants of a task: `muted`, `weight x 2`, `in every batch`."""
    words = "in every batch" if pinned else "muted" if factor == 0 else f"weight x {factor:g}"
    return f"{words}, weight x {factor:g}" if pinned and factor != 1 else words


def budget_text(unit: BudgetUnit, amount: float) -> str:
    """An amount of what a budget counts: `$2.10`, `1.5 hours`, `1,200 rollouts`."""
    match unit:
        case "dollars":
            return dollars(amount)
        case "hours":
            return f"{amount:.3g} hours"
        case _:
            return f"{amount:,.0f} {unit}"


def budget_words(event: BudgetReached) -> str:
    """`$8.10 of $10.00 spent (81%)`, and what follows from that."""
    spent, limit = budget_text(event.budget, event.spent), budget_text(event.budget, event.limit)
    then = ": the run ends with what is paid for" if event.ends else ""
    return f"{spent} of {limit} spent ({event.spent / event.limit:.0%}){then}"


def beginning_missing(trial: str) -> str:
    """That a trial has ended whose beginning is not in the journal."""
    return f"{trial}: the journal lacks its beginning (trial_queued): no count of a step has it"


def ends_missing(event: GroupScored, trials: Collection[str]) -> str:
    """That a group was scored though trials of it have no end in the journal."""
    count = len(trials)
    of = f"{count} of the {len(event.trials)} trials of {event.task}"
    lack = f"the journal lacks the end{'s' * (count != 1)} (trial_finished) of {of}"
    return f"step {event.step}: {lack}: no count of the step has {'it' if count == 1 else 'them'}"


def undelivered_words(event: AlertSent) -> str:
    """`the alert of the alarm did not reach hooks.example.org: refused (5 tries)`."""
    tries = f"{event.tries} {'try' if event.tries == 1 else 'tries'}"
    return f"the alert of the {event.about} did not reach {event.to}: {event.error} ({tries})"


def forks_asked_line(trial: str, turn: int, forks: int) -> str:
    return f"{forks} {'fork' if forks == 1 else 'forks'} of {trial} from turn {turn}"


def search_line(search: str, trial: str, turns: int, trials: int, measured: int) -> str:
    """What it takes to measure the values of a trial's `turns`, of `measured` of them at most, by
    `trials` forks from each."""
    what = "bisection over" if search == "bisect" else "values of all"
    return (
        f"{what} {turns} turns of {trial}: at most {measured * trials} forks,"
        f" {trials} from each of {measured}"
    )


def values_line(valued: TurnsValued) -> str:
    """The values of a trial's turns and where it turned."""
    values = {each.turn: each.passed / each.scored for each in valued.values if each.scored}
    values[valued.turns + 1] = float(valued.solved)
    shown = ", ".join(
        f"turn {each.turn} {values[each.turn]:.0%} ({each.low:.0%} to {each.high:.0%})"
        if each.scored
        else f"turn {each.turn} unscored"
        for each in valued.values
    )
    ended = "solved" if valued.solved else "not solved"
    found = "no turning point"
    turn = valued.turning_point
    if turn in values and turn + 1 in values:
        before, after = values[turn], values[turn + 1]
        what = "lost" if after < before else "won"
        found = f"{what} at turn {turn}: {before:.0%} before it, {after:.0%} after"
    return f"{valued.parent}: {found}; chance to be solved from {shown}; it was {ended}"


def forks_line(started: ForksStarted, solved: TurnValue, unscored: int) -> str:
    """How many forks solved their task; `unscored`: those that say nothing of it."""
    of = f"forks of {started.parent} from turn {started.turn}"
    if not solved.scored:
        return f"none of {unscored} {of} could be scored"
    rest = f"; {unscored} could not be scored" if unscored else ""
    interval = (
        f"{solved.passed / solved.scored:.0%}, 95% interval {solved.low:.0%} to {solved.high:.0%}"
    )
    return f"{solved.passed} of {solved.scored} {of} solved it ({interval}){rest}"
