"""What a run's journal tells of its batches, evaluations, trials and commands, put together."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from tbtui.algorithm.costs import Spent
from tbtui.engines.grpo.history_kinds import HISTORY_KINDS
from tbtui.journal.commands import is_rule
from tbtui.journal.events import (
    AnyEvent,
    CommandDone,
    CommandIssued,
    CommandVerb,
    Entry,
    EvalFinished,
    EvalStarted,
    GroupAdded,
    GroupRefilled,
    GroupScored,
    Purpose,
    ReviewClosed,
    ReviewOpened,
    RunContinued,
    RunPaused,
    RunResumed,
    RunStarted,
    StepFinished,
    StepStarted,
    TasksSetAside,
    TrialExcluded,
    TrialFinished,
    TrialQueued,
    TrialRelabelled,
    TrialRetried,
)
from tbtui.journal.reader import JournalReader

_DECISIONS = frozenset({"exclude", "include", "relabel", "accept"})
"""Commands that decide upon a trial."""


@dataclass(slots=True)
class PastAttempt:
    """One attempt at a trial."""

    trial: str
    group: str
    number: int
    finished: TrialFinished | None = None
    finished_seq: int = 0
    retried: TrialRetried | None = None
    verbs: set[CommandVerb] = field(default_factory=set)
    """What people asked of it and were not refused."""


@dataclass(slots=True)
class PastReview:
    """What people and rules decided of a batch's trials."""

    ruled: bool = False
    """Rules had decided something."""
    opened: bool = False
    closed: bool = False
    waits_since: float | None = None
    """In seconds of the run's own: see `_LivedSeconds`."""
    waited_sec: float = 0.0
    """Since it opened for the trials that it has now."""
    decided: set[str] = field(default_factory=set)
    """Trials that somebody had decided upon."""
    refilled: set[str] = field(default_factory=set)
    """Groups that rules had refilled."""
    to_refill: dict[str, str] = field(default_factory=dict)
    """Groups that rules were about to refill -> who that was."""


@dataclass(slots=True)
class PastBatch:
    """A batch of training groups, or an evaluation."""

    groups: dict[str, str] = field(default_factory=dict)
    """Group -> task, in the order in which they were started; empty for an evaluation."""
    places: dict[tuple[str, int], list[PastAttempt]] = field(default_factory=dict)
    """By (group id, index in the group); a place that waits for its first attempt has none."""
    replaced: set[str] = field(default_factory=set)
    refilled: set[str] = field(default_factory=set)
    excluded: set[str] = field(default_factory=set)
    relabelled: dict[str, float] = field(default_factory=dict)
    review: PastReview = field(default_factory=PastReview)
    scored: dict[str, GroupScored] = field(default_factory=dict)
    finished: bool = False
    learning_rate: float | None = None
    """What it was trained with, once it was."""


@dataclass(slots=True)
class History:
    """A run up to the last event of its journal, in detail from one step on."""

    since: int
    """The detail begins after this step; its own evaluation is part of it."""
    started: RunStarted | None = None
    tasks_taken: Counter[str] = field(default_factory=Counter)
    """How often each task was taken by the batches up to `since`."""
    set_aside: dict[str, str] = field(default_factory=dict)
    """Task -> why no trial of it starts."""
    unfit: set[str] = field(default_factory=set)
    """Those of them that were known before the first trial."""
    steps_done: int = 0
    spent: Spent = field(default_factory=Spent)
    """Up to the last step or evaluation that finished."""
    published: dict[int, int] = field(default_factory=dict)
    """Version of the weights -> the last step that published it."""
    batches: dict[int, PastBatch] = field(default_factory=dict)
    evaluations: dict[int, PastBatch] = field(default_factory=dict)
    """Those that did not finish."""
    evaluated: dict[int, EvalFinished] = field(default_factory=dict)
    """Those that did."""
    unfinished: dict[str, None] = field(default_factory=dict)
    """Trials without an end, in the order of their beginning."""
    unanswered: dict[str, CommandIssued] = field(default_factory=dict)
    paused: bool = False

    @classmethod
    def read(cls, reader: JournalReader, since: int = 0) -> History:
        """Memory: of the order of the events after step `since`; no tokens are read."""
        fold = _Fold(cls(since), reader)
        after = 0
        while entries := reader.read_kinds(HISTORY_KINDS, after):
            for entry in entries:
                fold.apply(entry)
            after = entries[-1].seq
        fold.end()
        return fold.history


class _LivedSeconds:
    """A clock that stands still while the run is paused, and while there is no process."""

    def __init__(self, reader: JournalReader) -> None:
        self._reader = reader
        self._last: float | None = None
        self.now = 0.0

    def advance(self, entry: Entry, *, paused: bool) -> None:
        """To the time of an event."""
        if isinstance(entry.event, RunContinued):
            self.advance_to_end(entry.seq, paused=paused)
            self._last = entry.time
        else:
            self._advance(entry.time, paused)

    def advance_to_end(self, before: int | None = None, *, paused: bool) -> None:
        """To the last event of the journal, of whatever kind, or of its part up to `before`."""
        if (last := self._reader.time_before(before)) is not None:
            self._advance(last, paused)

    def _advance(self, time: float, paused: bool) -> None:
        if self._last is not None and not paused:
            self.now += max(0.0, time - self._last)  # a machine's clock may be set back
        self._last = time


class _Fold:
    def __init__(self, history: History, reader: JournalReader) -> None:
        self.history = history
        self._clock = _LivedSeconds(reader)
        self._trials: dict[str, tuple[PastBatch, PastAttempt]] = {}
        """Those whose batch is kept."""

    def end(self) -> None:
        """There is no further event."""
        self._clock.advance_to_end(paused=self.history.paused)
        for batch in self.history.batches.values():
            if batch.review.waits_since is not None:
                batch.review.waited_sec = self._clock.now - batch.review.waits_since

    def apply(self, entry: Entry) -> None:
        history, event = self.history, entry.event
        self._clock.advance(entry, paused=history.paused)
        match event:
            case RunStarted():
                history.started = event
            case RunPaused():
                history.paused = True
            case RunResumed():
                history.paused = False
            case RunContinued():
                # What the parts before left open was closed then, on paper.
                history.paused = False
            case StepStarted(step=step, groups=groups):
                if step <= history.since:
                    history.tasks_taken.update(groups.values())
                else:
                    history.batches[step] = PastBatch(dict(groups))
            case TasksSetAside(tasks=tasks, by=by):
                if by == "preflight":
                    # What another environment could not serve, this one may.
                    history.set_aside, history.unfit = dict(tasks), set(tasks)
                else:
                    history.set_aside |= tasks
            case GroupAdded(step=step):
                if step <= history.since:
                    history.tasks_taken[event.task] += 1
                elif batch := history.batches.get(step):
                    batch.groups[event.group] = event.task
                    batch.replaced.add(event.replaces)
            case GroupRefilled(step=step, group=group):
                if batch := history.batches.get(step):
                    batch.refilled.add(group)
                    batch.review.waits_since = None
                    for trial in event.trials:
                        batch.places.setdefault(place_of(trial, group), [])
                    if (asked := self._being_done("refill", group)) and is_rule(asked.actor):
                        batch.review.refilled.add(group)
                        batch.review.to_refill.pop(group, None)
            case ReviewOpened(step=step):
                if batch := history.batches.get(step):
                    batch.review.opened = True
                    if batch.review.waits_since is None:
                        batch.review.waits_since = self._clock.now
            case ReviewClosed(step=step):
                if batch := history.batches.get(step):
                    batch.review.closed = True
            case GroupScored(step=step):
                if batch := history.batches.get(step):
                    batch.scored[event.group] = event
            case StepFinished(step=step):
                history.steps_done, history.spent = step, Spent.after(event.metrics)
                history.published[event.weights_version] = step
                if batch := history.batches.get(step):
                    batch.finished = True
                    batch.learning_rate = event.metrics.get("optim/lr")
            case EvalStarted(step=step):
                if step >= history.since:
                    history.evaluations[step] = PastBatch()
            case EvalFinished(step=step):
                history.evaluated[step] = event
                if event.metrics:
                    history.spent = Spent.after(event.metrics)
                history.evaluations.pop(step, None)
            case CommandIssued():
                self._issued(event)
            case CommandDone():
                self._answered(event)
            case _:
                self._apply_to_trial(event, entry.seq)

    def _apply_to_trial(self, event: AnyEvent, seq: int) -> None:
        match event:
            case TrialQueued(trial=trial, group=group):
                self.history.unfinished[trial] = None
                if batch := self._batch(event.step, event.purpose):
                    attempt = PastAttempt(trial, group, event.attempt)
                    batch.places.setdefault(place_of(trial, group), []).append(attempt)
                    batch.review.waits_since = None
                    self._trials[trial] = batch, attempt
            case TrialFinished(trial=trial):
                self.history.unfinished.pop(trial, None)
                if found := self._trials.get(trial):
                    found[1].finished, found[1].finished_seq = event, seq
            case TrialRetried(trial=trial):
                if found := self._trials.get(trial):
                    found[1].retried = event
                    found[0].review.waits_since = None
            case TrialExcluded(trial=trial):
                if found := self._trials.get(trial):
                    (found[0].excluded.add if event.excluded else found[0].excluded.discard)(trial)
                    self._decided(*found)
            case TrialRelabelled(trial=trial):
                if found := self._trials.get(trial):
                    if event.taken_back or event.reward is None:
                        found[0].relabelled.pop(trial, None)
                    else:
                        found[0].relabelled[trial] = event.reward
                    self._decided(*found)
            case _:
                pass

    def _decided(self, batch: PastBatch, attempt: PastAttempt) -> None:
        """It may never have been answered."""
        batch.review.decided.add(attempt.trial)
        asked = self._being_done("exclude", attempt.trial)
        if asked and is_rule(asked.actor) and asked.arguments.get("refill"):
            batch.review.to_refill.setdefault(attempt.group, asked.actor)

    def _being_done(self, verb: CommandVerb, target: str) -> CommandIssued | None:
        """The command that led to the event at hand."""
        for command in reversed(self.history.unanswered.values()):
            if command.verb == verb and command.target == target:
                return command
        return None

    def _issued(self, event: CommandIssued) -> None:
        self.history.unanswered[event.command] = event
        if found := self._trials.get(event.target):
            found[1].verbs.add(event.verb)
            found[0].review.ruled |= is_rule(event.actor)

    def _answered(self, event: CommandDone) -> None:
        issued = self.history.unanswered.pop(event.command, None)
        found = self._trials.get(issued.target) if issued else None
        if issued is None or found is None:
            return
        if not event.ok:
            found[1].verbs.discard(issued.verb)
        elif issued.verb in _DECISIONS:
            found[0].review.decided.add(issued.target)

    def _batch(self, step: int, purpose: Purpose) -> PastBatch | None:
        batches = self.history.batches if purpose == "train" else self.history.evaluations
        return batches.get(step)


def place_of(trial: str, group: str) -> tuple[str, int]:
    """The place that an attempt fills: the inverse of `TrialPlan.trial_id`."""
    index, _, _ = trial.removeprefix(f"{group}-").partition("-")
    return group, int(index)
