"""Reads what a run's journal says of its batches, evaluations, trials and commands.

What the run as a whole looks like (its tasks, those set aside, commands without an answer, trials
without an end, whether it is paused) is the view's fold to say, as for every other reader. Beside
it stands what only a run that goes on has to know: every attempt at every trial since its
checkpoint, and what was decided of them. The view forgets old trials, and these may be trained
again.
"""

from __future__ import annotations

from tbtui.algorithm.costs import Spent
from tbtui.algorithm.curriculum import Say
from tbtui.engines.grpo.recorded import (
    RecordedAttempt,
    RecordedBatch,
    RecordedForks,
    StartingPoint,
)
from tbtui.engines.resume import HISTORY_KINDS
from tbtui.journal.commands import is_rule
from tbtui.journal.database import JournalError
from tbtui.journal.events import (
    AnyEvent,
    CommandDone,
    CommandIssued,
    CommandVerb,
    DemonstrationsTrained,
    Entry,
    EvalFinished,
    EvalStarted,
    ForksStarted,
    GroupAdded,
    GroupRefilled,
    GroupScored,
    ReviewClosed,
    ReviewOpened,
    RunContinued,
    StepFinished,
    StepStarted,
    TasksDrawn,
    TrialExcluded,
    TrialFinished,
    TrialQueued,
    TrialRelabelled,
    TrialRetried,
    TurnsValued,
)
from tbtui.journal.reader import JournalReader
from tbtui.terminal import one_line
from tbtui.view.fold import Fold
from tbtui.view.state import CommandView, RunState

_DECISIONS = frozenset({"exclude", "include", "relabel", "accept"})
"""Commands that decide upon a trial."""


def read_history(reader: JournalReader, start: StartingPoint) -> RunState:
    """The run up to the last event of its journal, as the view shows it.

    Fills in `start`, which says after which step the detail begins; that step's own evaluation is
    part of it. Memory: of the order of the events after that step; no tokens are read.
    """
    fold = _HistoryFold(start, reader)
    for entry in reader.each(HISTORY_KINDS):
        fold.apply(entry)
    fold.end()
    return fold.run


class _LivedSeconds:
    """A clock that stands still while the run is paused, and while there is no process."""

    def __init__(self, reader: JournalReader) -> None:
        self._reader = reader
        self._last: float | None = None
        self.now = 0.0

    def advance(self, entry: Entry, *, paused: bool) -> None:
        """Go on to the time of an event."""
        if isinstance(entry.event, RunContinued):
            self.advance_to_end(entry.seq, paused=paused)
            self._last = entry.time
        else:
            self._advance(entry.time, paused)

    def advance_to_end(self, before: int | None = None, *, paused: bool) -> None:
        """Go on to the last event of the journal, of any kind, or of its part before `before`."""
        if (last := self._reader.time_before(before)) is not None:
            self._advance(last, paused)

    def _advance(self, time: float, paused: bool) -> None:
        if self._last is not None and not paused:
            self.now += max(0.0, time - self._last)  # a machine's clock may be set back
        self._last = time


class _HistoryFold:
    def __init__(self, start: StartingPoint, reader: JournalReader) -> None:
        self._start = start
        self.run = RunState()
        self._view = Fold(self.run)
        self._clock = _LivedSeconds(reader)
        self._trials: dict[str, tuple[RecordedBatch, RecordedAttempt]] = {}
        """Those whose batch is kept."""

    def end(self) -> None:
        """Finish: there is no further event."""
        start, run = self._start, self.run
        self._clock.advance_to_end(paused=run.paused)
        for batch in start.batches.values():
            if batch.review.waits_since is not None:
                batch.review.waited_sec = self._clock.now - batch.review.waits_since
        start.unusable, start.paused = dict(run.unusable), run.paused
        start.said = {name: Say(task.factor, task.pinned) for name, task in run.tasks.items()}

    def apply(self, entry: Entry) -> None:
        self._clock.advance(entry, paused=self.run.paused)
        if isinstance(entry.event, CommandDone):
            self._answered(entry.event)  # while the view still has the command
        self._view.apply(entry)
        self._apply(entry)

    def _apply(self, entry: Entry) -> None:
        start, event = self._start, entry.event
        match event:
            case TasksDrawn():
                start.drawn.update(event.groups)
            case StepStarted(step=step, groups=groups):
                if step <= start.step:
                    in_order = (groups[name] for name in groups if name not in start.drawn)
                    start.tasks_taken.update(in_order)
                else:
                    start.batches[step] = RecordedBatch(dict(groups))
            case ForksStarted(group=group):
                start.forks[group] = RecordedForks(event)
            case TurnsValued():
                start.valued.append(event)
            case GroupAdded(step=step):
                if step <= start.step:
                    start.tasks_taken[event.task] += event.group not in start.drawn
                elif batch := start.batches.get(step):
                    batch.groups[event.group] = event.task
                    batch.replaced.add(event.replaces)
            case GroupRefilled(step=step):
                if batch := start.batches.get(step):
                    self._refilled(batch, event)
            case ReviewOpened(step=step):
                if batch := start.batches.get(step):
                    batch.review.begun = batch.review.opened = True
                    if batch.review.waits_since is None:
                        batch.review.waits_since = self._clock.now
            case ReviewClosed(step=step):
                if batch := start.batches.get(step):
                    batch.review.closed = True
            case GroupScored(step=step):
                batch = start.batches.get(step)
                if batch:
                    batch.scored[event.group] = event
                start.rates.score(step, event.group, event.task, event.rewards)
            case DemonstrationsTrained(step=step):
                if batch := start.batches.get(step):
                    batch.demonstrations = event
            case StepFinished(step=step):
                start.rates.finish(step)
                start.trained, start.spent = step, Spent.after(event.metrics)
                start.published[event.weights_version] = step
                if batch := start.batches.get(step):
                    batch.finished = True
                    batch.learning_rate = event.metrics.get("optim/lr")
            case EvalStarted(step=step):
                if step >= start.step:
                    start.evaluations[step] = RecordedBatch()
            case EvalFinished(step=step):
                start.evaluated[step] = event
                if event.metrics:
                    start.spent = Spent.after(event.metrics)
                start.evaluations.pop(step, None)
            case CommandIssued(actor=actor):
                if found := self._trials.get(event.target):
                    found[1].verbs.add(event.verb)
                    found[0].review.begun |= is_rule(actor)
            case _:
                self._apply_to_trial(event, entry.seq)

    def _refilled(self, batch: RecordedBatch, event: GroupRefilled) -> None:
        group, review = event.group, batch.review
        batch.refilled.add(group)
        review.waits_since = None
        for trial in event.trials:
            batch.attempts.setdefault(place_of(trial, group), [])
        if (asked := self._being_done("refill", group)) and is_rule(asked.actor):
            review.refilled.add(group)
            review.to_refill.pop(group, None)

    def _apply_to_trial(self, event: AnyEvent, seq: int) -> None:
        match event:
            case TrialQueued(trial=trial, group=group):
                if batch := self._batch(event):
                    attempt = RecordedAttempt(trial, group, event.attempt)
                    batch.attempts.setdefault(place_of(trial, group), []).append(attempt)
                    batch.review.waits_since = None
                    self._trials[trial] = batch, attempt
            case TrialFinished(trial=trial):
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

    def _decided(self, batch: RecordedBatch, attempt: RecordedAttempt) -> None:
        """Record that a decision was carried out; its command may never have been answered."""
        batch.review.decided.add(attempt.trial)
        asked = self._being_done("exclude", attempt.trial)
        if asked and is_rule(asked.actor) and asked.arguments.get("refill"):
            batch.review.to_refill.setdefault(attempt.group, asked.actor)

    def _being_done(self, verb: CommandVerb, target: str) -> CommandView | None:
        """The command that caused the current event."""
        for command in reversed(self.run.pending.values()):
            if command.verb == verb and command.target == target:
                return command
        return None

    def _answered(self, event: CommandDone) -> None:
        issued = self.run.pending.get(event.command)
        found = self._trials.get(issued.target) if issued else None
        if issued is None or found is None:
            return
        if not event.ok:
            found[1].verbs.discard(issued.verb)
        elif issued.verb in _DECISIONS:
            found[0].review.decided.add(issued.target)

    def _batch(self, event: TrialQueued) -> RecordedBatch | None:
        if event.purpose == "fork":
            forks = self._start.forks.get(event.group)
            return forks.batch if forks is not None else None
        batches = self._start.batches if event.purpose == "train" else self._start.evaluations
        return batches.get(event.step)


def place_of(trial: str, group: str) -> tuple[str, int]:
    """The place that an attempt fills: the inverse of `TrialPlan.trial_id`.

    Raises:
        JournalError: it is no trial of that group.
    """
    index, _, _ = trial.removeprefix(f"{group}-").partition("-")
    if not index.isdecimal():
        raise JournalError(
            f"{one_line(trial, 80)} is no trial of the group {one_line(group, 80)}, as the journal"
            " has it; put a sound copy of run.db in its place"
        )
    return group, int(index)
