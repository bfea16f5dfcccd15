"""What the journal of an earlier part of the run says of batches, groups, trials and reviews."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from tbtui.algorithm.costs import Spent, Tokens
from tbtui.algorithm.curriculum import PassRates, Say
from tbtui.algorithm.segments import Call
from tbtui.engines.events_of import sent
from tbtui.engines.grpo.rollouts import Rollout, TrialPlan
from tbtui.findings import Unusable
from tbtui.journal.events import (
    CommandVerb,
    DemonstrationsTrained,
    Entry,
    EvalFinished,
    ForksStarted,
    GroupScored,
    HumanTyped,
    Outcome,
    PhaseSeconds,
    SideCall,
    TrialFinished,
    TrialRetried,
    TurnAbandoned,
    TurnParsed,
    TurnSampled,
    TurnsValued,
)
from tbtui.journal.reader import JournalReader

RUN_ENDED_FIRST = "the run ended first"
RUN_WAS_KILLED = "the run was killed first"
POLICY_LOST_FIRST = "the policy was lost first"
CUT_OFF = frozenset({RUN_ENDED_FIRST, RUN_WAS_KILLED, POLICY_LOST_FIRST})
"""Reasons of cancelled trials that no person cancelled: they are tried again on resume."""


def cut_off(trial: str, why: str, turns: int = 0) -> TrialFinished:
    """The end of a trial under which the run, or its policy, ended; `why`: one of `CUT_OFF`."""
    return TrialFinished(
        trial=trial,
        outcome=Outcome.CANCELLED,
        reason=why,
        verdict=None,
        reward=None,
        turns=turns,
        seconds=PhaseSeconds(),
    )


@dataclass(slots=True)
class RecordedAttempt:
    """One attempt at a trial."""

    trial: str
    group: str
    number: int
    finished: TrialFinished | None = None
    finished_seq: int = 0
    retried: TrialRetried | None = None
    verbs: set[CommandVerb] = field(default_factory=set)
    """What people asked of it and were not refused."""

    @property
    def cut_off(self) -> bool:
        """Whether the run ended before the trial did."""
        end = self.finished
        return end is None or (end.outcome is Outcome.CANCELLED and end.reason in CUT_OFF)


@dataclass(frozen=True, slots=True)
class RecordedPlace:
    """A place in a group, with every attempt at it.

    A rollout with its tokens is read from the journal each time it is asked for, and not kept: no
    more of them are in memory than the batches under way have.
    """

    plan: TrialPlan
    attempts: Sequence[RecordedAttempt]
    """In order."""
    members: frozenset[str] | None
    """Trials that the group was scored with; None while it was not."""
    stands: bool
    """Whether the last attempt is its outcome: there is no further one."""
    reader: JournalReader

    @property
    def number(self) -> int:
        """The last attempt's number; 0: none was queued."""
        return self.attempts[-1].number if self.attempts else 0

    @property
    def seed(self) -> int | None:
        """The seed of the next attempt, where a person asked for other draws than the plan's."""
        for attempt in reversed(self.attempts):
            if "retry" in attempt.verbs and not attempt.cut_off:
                return self.plan.again(attempt.number + 1).seed
        return None

    @property
    def tokens(self) -> Tokens:
        """What the sampler read and wrote in all attempts."""
        attempts = (self.reader.read_trial(attempt.trial) for attempt in self.attempts)
        turns = (turn for events in attempts for _, turn in _sampled(events))
        return sum((_tokens(turn) for turn in turns), start=Tokens())

    @property
    def rollout(self) -> Rollout | None:
        """The last attempt, exactly as the process that is gone had it; None: it does not stand."""
        if not self.stands:
            return None
        reader, last = self.reader, self.attempts[-1]
        end = last.finished
        assert end is not None
        # A completion that came after the trial's end has no part in it.
        samples = reader.samples(last.trial, limit=reader.sampled(last.trial, last.finished_seq))
        events = reader.read_trial(last.trial)
        abandoned = {
            entry.event.turn
            for entry in events
            if isinstance(entry.event, TurnAbandoned) and entry.seq < last.finished_seq
        }
        sides = {entry.event.turn for entry in events if isinstance(entry.event, SideCall)}
        typed = max((e.seq for e in events if isinstance(e.event, HumanTyped)), default=None)
        calls = (
            Call(
                sample.prompt_ids,
                sample.completion_ids,
                sample.of_model,
                sample.weights_version,
                sample.summary,
                turn.cached_tokens,
                abandoned=sample.turn in abandoned,
                side=sample.turn in sides,
                handed_back=typed is not None and seq > typed,
            )
            for sample, (seq, turn) in zip(samples, _sampled(events), strict=False)
        )
        commands = (
            keystrokes
            for entry in events
            if isinstance(entry.event, TurnParsed) and entry.seq < last.finished_seq
            for keystrokes in sent(entry.event)
        )
        rollout = Rollout.of(
            self.plan, last.number, end, calls, commands, self._spent(), self.tokens
        )
        has_part = self.members is None or last.trial in self.members
        return rollout if has_part else dataclasses.replace(rollout, reward=None)

    def _spent(self) -> PhaseSeconds:
        """Where the time of all attempts went; waiting to try again is time in the queue."""
        total = PhaseSeconds()
        for attempt in self.attempts:
            if attempt.finished is not None:
                total += attempt.finished.seconds
            if attempt.retried is not None:
                total += PhaseSeconds(queue=attempt.retried.wait_sec)
        return total


def _sampled(events: Sequence[Entry]) -> list[tuple[int, TurnSampled]]:
    """An attempt's model calls in the order of their samples, with their places in the journal."""
    return [(entry.seq, entry.event) for entry in events if isinstance(entry.event, TurnSampled)]


def _tokens(turn: TurnSampled) -> Tokens:
    return Tokens(
        prompt=turn.prompt_tokens,
        cached=turn.cached_tokens,
        sampled=turn.completion_tokens,
        calls=1,
    )


@dataclass(slots=True)
class ReviewProgress:
    """How far the review of a batch has come: what a resumed run goes on from."""

    begun: bool = False
    """Rules have decided something, or people were asked."""
    opened: bool = False
    """People were asked."""
    closed: bool = False
    """The step is accepted: nothing is decided any more."""
    waits_since: float | None = None
    """When it opened for the trials that it has now, on `history`'s clock."""
    waited_sec: float = 0.0
    """How long it has been open while the run went on; fresh trials begin that anew."""
    decided: set[str] = field(default_factory=set)
    """Trials that people or rules have decided upon."""
    refilled: set[str] = field(default_factory=set)
    """Groups that rules have refilled: once each, so that it ends."""
    to_refill: dict[str, str] = field(default_factory=dict)
    """Groups that rules were about to refill -> the rule's actor."""


@dataclass(slots=True)
class RecordedBatch:
    """A batch of training groups, or an evaluation, that was begun."""

    groups: dict[str, str] = field(default_factory=dict)
    """Group -> task, in the order in which they were started, later additions included; empty for
    an evaluation."""
    attempts: dict[tuple[str, int], list[RecordedAttempt]] = field(default_factory=dict)
    """By (group id, index in the group); a place that waits for its first attempt has none."""
    places: dict[tuple[str, int], RecordedPlace] = field(default_factory=dict)
    """The same places, once it is decided which of them have their outcome."""
    replaced: set[str] = field(default_factory=set)
    """Constant groups in whose place another was started."""
    refilled: set[str] = field(default_factory=set)
    """Groups that have got their fresh trials already."""
    excluded: set[str] = field(default_factory=set)
    """Trials that people or rules left out of training."""
    relabelled: dict[str, float] = field(default_factory=dict)
    """Trial -> the reward that people or rules gave it."""
    review: ReviewProgress = field(default_factory=ReviewProgress)
    scored: dict[str, GroupScored] = field(default_factory=dict)
    """Groups with their advantages, in the order in which they were trained on."""
    finished: bool = False
    """Its step was trained, with weights that are lost: it is trained again as it was."""
    demonstrations: DemonstrationsTrained | None = None
    """Those that its step was trained on, if there were any."""
    learning_rate: float | None = None
    """What a finished one was trained with: the schedule may have another end by now."""


@dataclass(slots=True)
class RecordedForks:
    """A group of forks that was begun."""

    started: ForksStarted
    batch: RecordedBatch = field(default_factory=RecordedBatch)

    @property
    def over(self) -> bool:
        """Whether each of them has its outcome."""
        stand = sum(place.stands for place in self.batch.places.values())
        return stand >= self.started.trials


@dataclass(slots=True)
class StartingPoint:
    """Where a run goes on. The default is the start of a new one."""

    step: int = 0
    """Batches trained when the checkpoint was saved that was loaded."""
    weights_version: int = 0
    tasks_taken: Counter[str] = field(default_factory=Counter)
    """How often the batches up to `step` took each task from the training order."""
    drawn: set[str] = field(default_factory=set)
    """Groups whose task was drawn by its weight, and not taken from that order."""
    rates: PassRates = field(default_factory=PassRates)
    """What is believed of the tasks, by all steps that finished."""
    said: dict[str, Say] = field(default_factory=dict)
    """What people want of tasks."""
    unusable: dict[str, Unusable] = field(default_factory=dict)
    """Task -> why it can't be used."""
    batches: dict[int, RecordedBatch] = field(default_factory=dict)
    """Later batches that were begun, by step."""
    evaluations: dict[int, RecordedBatch] = field(default_factory=dict)
    """Evaluations that were begun and not finished, by step."""
    evaluated: dict[int, EvalFinished] = field(default_factory=dict)
    """Those that finished, by step."""
    spent: Spent = field(default_factory=Spent)
    """Up to the last step or evaluation that finished."""
    published: dict[int, int] = field(default_factory=dict)
    """Version of the weights -> the last step that published it."""
    trained: int = 0
    """Last step that was ever trained: those after `step` are trained again."""
    forks: dict[str, RecordedForks] = field(default_factory=dict)
    """Groups of forks that were begun, in that order."""
    valued: list[TurnsValued] = field(default_factory=list)
    """Searches for a trial's turning point that have ended."""
    paused: bool = False

    @property
    def left_out(self) -> frozenset[str]:
        """Tasks that were known to be unusable before the first trial."""
        return frozenset(task for task, why in self.unusable.items() if why.by == "preflight")
