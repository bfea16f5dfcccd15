"""Where an interrupted run goes on: read from its journal and from nothing else.

A step that was trained after the checkpoint is trained again on the rollouts that the journal has
of it. Of a batch that was not trained yet, finished trials keep their outcome, and trials that were
under way start again from the same seed. So no finished trial is lost, none counts twice, and with
a policy that computes the same from the same the run goes on as if nothing had happened.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tbtui.algorithm.costs import Tokens
from tbtui.algorithm.segments import Call
from tbtui.catalog.split import Split
from tbtui.config import RunConfig
from tbtui.engines.events_of import sent
from tbtui.engines.grpo.history import History, PastAttempt, PastBatch
from tbtui.engines.grpo.outcome_policy import OutcomePolicy, outcome_policy
from tbtui.engines.grpo.plan import GroupPlan, TrialPlan, plan_groups, trial_plan
from tbtui.engines.grpo.recorded import (
    CUT_OFF,
    RecordedBatch,
    RecordedPlace,
    RecordedReview,
    StartingPoint,
)
from tbtui.engines.grpo.rollouts import Rollout
from tbtui.errors import UserError
from tbtui.journal.events import (
    CommandDone,
    Entry,
    Outcome,
    PhaseSeconds,
    RunPaused,
    RunResumed,
    RunStarted,
    TrialFinished,
    TurnParsed,
    TurnSampled,
)
from tbtui.journal.reader import JournalReader
from tbtui.journal.writer import JournalWriter
from tbtui.rollout.outcome import is_infrastructure


class UnrecoverableError(UserError):
    """The run can't go on with what is there now; the message is one line for a person."""


@dataclass(frozen=True, slots=True)
class Recovery:
    """How an interrupted run goes on."""

    start: StartingPoint
    started: bool
    """The journal has the run's `RunStarted`: it got as far as that."""
    replayed: tuple[int, ...]
    """Steps that are trained again."""
    reused: int
    """Finished trials of batches and evaluations that had not finished."""
    requeued: tuple[str, ...]
    """Trials that were under way, and start again as the next attempt."""
    _history: History

    def close_gaps(self, journal: JournalWriter, reader: JournalReader, why: str) -> None:
        """Write the ends that were not written then: nothing looks as if it still ran.

        `why`: one of `CUT_OFF`.
        """
        last = reader.last_seq()
        for trial in self._history.unfinished:
            journal.append(
                TrialFinished(
                    trial=trial,
                    outcome=Outcome.CANCELLED,
                    reason=why,
                    verdict=None,
                    reward=None,
                    turns=reader.sampled(trial, last + 1),
                    seconds=PhaseSeconds(),
                )
            )
        for command in self._history.unanswered:
            journal.append(CommandDone(command=command, ok=False, result=why))
        if self._history.paused:
            journal.append(RunPaused() if self.start.paused else RunResumed())


def recover(
    reader: JournalReader,
    split: Split,
    config: RunConfig,
    step: int = 0,
    weights_version: int = 0,
    *,
    stays_paused: bool = False,
) -> Recovery:
    """The starting point after the checkpoint of `step` (0: none, the starting weights).

    With `stays_paused` a run that was paused still is.

    `reader` is read later, too: a rollout's tokens are loaded each time its place is looked up, so
    that no more of them are in memory than the batches under way have.

    Raises:
        UnrecoverableError: the tasks are not those that the run began with.
    """
    history = History.read(reader, since=step)
    if history.started:
        _require_same_tasks(history.started, split)
    plans = _Plans(split, config)
    outcomes = outcome_policy(config.on_outcome)
    batches = {
        number: _recovered(
            past,
            plans.training(number, past.groups),
            reader,
            outcomes,
            config.max_retries,
            history.set_aside,
        )
        for number, past in sorted(history.batches.items())
    }
    evaluations = {
        number: _recovered(
            past,
            plans.evaluation(number),
            reader,
            outcomes,
            config.max_retries,
            history.set_aside,
        )
        for number, past in sorted(history.evaluations.items())
    }
    both = (*batches.values(), *evaluations.values())
    return Recovery(
        start=StartingPoint(
            step=step,
            weights_version=weights_version,
            tasks_taken=history.tasks_taken,
            set_aside=history.set_aside,
            unfit=frozenset(history.unfit),
            batches={number: each.batch for number, each in batches.items()},
            evaluations={number: each.batch for number, each in evaluations.items()},
            evaluated=history.evaluated,
            spent=history.spent,
            published=history.published,
            trained=history.steps_done,
            paused=history.paused and stays_paused,
        ),
        started=history.started is not None,
        replayed=tuple(number for number, each in batches.items() if each.batch.finished),
        reused=sum(each.standing for each in both if not each.batch.finished),
        requeued=tuple(trial for each in both for trial in each.cut_off),
        _history=history,
    )


def _require_same_tasks(started: RunStarted, split: Split) -> None:
    """The order in which tasks are taken, and what an evaluation means, depend on all of them."""
    before = {(task.name, task.split) for task in started.tasks}
    now = {(task.name, "train") for task in split.train}
    now |= {(task.name, "eval") for task in split.heldout}
    if changed := sorted({name for name, _ in before ^ now}):
        more = f" and {len(changed) - 3} more" if len(changed) > 3 else ""
        raise UnrecoverableError(
            f"the tasks in {started.tasks_dir} are not those that the run began with:"
            f" {', '.join(changed[:3])}{more}; put them back, or start a new run"
        )


class _Plans:
    """The groups as the engine had planned them: from the seed, the step and the tasks alone."""

    def __init__(self, split: Split, config: RunConfig) -> None:
        self._tasks = {task.name: task for task in split.train}
        self._split = split
        self._config = config

    def training(self, step: int, groups: Mapping[str, str]) -> tuple[GroupPlan, ...]:
        config = self._config
        return plan_groups(
            [self._tasks[name] for name in groups.values()],
            step=step,
            size=config.group_size + config.oversample,
            purpose="train",
            temperature=config.temperature,
            seed=config.seed,
        )

    def evaluation(self, step: int) -> tuple[GroupPlan, ...]:
        config = self._config
        return plan_groups(
            self._split.heldout,
            step=step,
            size=config.eval_group_size,
            purpose="eval",
            temperature=config.eval_temperature,
            seed=config.seed,
        )


@dataclass(frozen=True, slots=True)
class _Recovered:
    batch: RecordedBatch
    standing: int
    """Places that have their outcome."""
    cut_off: tuple[str, ...]
    """Trials that were under way."""


def _recovered(
    past: PastBatch,
    groups: Sequence[GroupPlan],
    reader: JournalReader,
    outcomes: OutcomePolicy,
    max_retries: int,
    set_aside: Collection[str],
) -> _Recovered:
    """`set_aside`: tasks that can't be used here."""
    siblings = {group.group: group.trials[0] for group in groups}
    planned = {group.group: len(group.trials) for group in groups}
    places = {}
    for (group, index), attempts in past.places.items():
        scored = past.scored.get(group)
        place = _PastPlace(
            trial_plan(siblings[group], index),
            attempts,
            frozenset(scored.trials) if scored else None,
        )
        unusable = siblings[group].task.name in set_aside
        replaced = group in past.refilled and index <= planned[group]
        place.stands = place.is_final(outcomes, max_retries, given_up=unusable or replaced)
        places[group, index] = place
    batch = RecordedBatch(
        groups=tuple((group.group, group.task.name) for group in groups),
        places=_Places(places, reader),
        replaced=frozenset(past.replaced),
        refilled=frozenset(past.refilled),
        excluded=frozenset(past.excluded),
        relabelled=past.relabelled,
        review=RecordedReview(
            begun=past.review.ruled or past.review.opened,
            opened=past.review.opened,
            closed=past.review.closed,
            waited_sec=past.review.waited_sec,
            decided=frozenset(past.review.decided),
            refilled=frozenset(past.review.refilled),
            to_refill=past.review.to_refill,
        ),
        scored=tuple(past.scored),
        finished=past.finished,
        learning_rate=past.learning_rate,
    )
    last = [attempts[-1] for attempts in past.places.values() if attempts]
    return _Recovered(
        batch,
        sum(place.stands for place in places.values()),
        tuple(attempt.trial for attempt in last if _is_cut_off(attempt)),
    )


def _is_cut_off(attempt: PastAttempt) -> bool:
    """The run ended under it."""
    end = attempt.finished
    return end is None or (end.outcome is Outcome.CANCELLED and end.reason in CUT_OFF)


@dataclass(slots=True)
class _PastPlace:
    """One place in a group, with every attempt at it."""

    plan: TrialPlan
    attempts: list[PastAttempt]
    members: frozenset[str] | None
    """Trials that the group was scored with; None while it was not."""
    stands: bool = False
    """Its last attempt is its outcome."""

    def is_final(self, outcomes: OutcomePolicy, max_retries: int, *, given_up: bool) -> bool:
        """Whether its last attempt is its outcome.

        What infrastructure broke is not: an outage may have ended the run, and whoever resumes it
        has seen to that. Each process has `max_retries` of its own. It is `given_up` where its
        task can't be used here, or a refill has taken its place.
        """
        if not self.attempts:
            return False
        last = self.attempts[-1]
        if last.finished is None or last.retried is not None or _is_cut_off(last):
            return False
        if self.members is not None:
            return True
        if "retry" in last.verbs:
            # Given up for a fresh one that had not been announced yet.
            return last.finished.outcome is not Outcome.CANCELLED
        if last.verbs & {"stop", "cancel"}:
            return True
        if is_infrastructure(last.finished.outcome):
            return given_up
        match outcomes[last.finished.outcome]:
            case "halt":
                return False  # That ended the run; whoever resumes it has seen to the cause.
            case "retry":
                return self._retries(outcomes) >= max_retries
            case _:
                return True

    def _retries(self, outcomes: OutcomePolicy) -> int:
        """How often its outcome, not a person or the run's end, was why it was tried again."""
        return sum(
            attempt.finished is not None
            and not _is_cut_off(attempt)
            and "retry" not in attempt.verbs
            and outcomes[attempt.finished.outcome] == "retry"
            for attempt in self.attempts[:-1]
        )

    def seed(self) -> int | None:
        """A person who asks for another attempt gets other draws: see `TrialRunner.run`."""
        for attempt in reversed(self.attempts):
            if "retry" in attempt.verbs and not _is_cut_off(attempt):
                return self.plan.again(attempt.number + 1).seed
        return None

    def rollout(self, reader: JournalReader) -> Rollout:
        """The last attempt, exactly as the process that is gone had it."""
        last = self.attempts[-1]
        end = last.finished
        assert end is not None
        # A completion that came after the trial's end has no part in it.
        calls = reader.samples(last.trial, limit=reader.sampled(last.trial, last.finished_seq))
        events = reader.read_trial(last.trial)
        turns = _sampled(events)
        has_part = self.members is None or last.trial in self.members
        return Rollout(
            plan=self.plan,
            trial=last.trial,
            attempt=last.number,
            outcome=end.outcome,
            reason=end.reason,
            reward=end.reward if has_part else None,
            calls=tuple(
                Call(
                    sample.prompt_ids,
                    sample.completion_ids,
                    sample.logprobs,
                    sample.weights_version,
                    sample.summary,
                    turn.cached_tokens,
                )
                for sample, turn in zip(calls, turns, strict=False)
            ),
            turns=end.turns,
            seconds=sum(end.seconds.model_dump().values()) - end.seconds.queue,
            spent=self._spent(),
            tokens=self.tokens(reader),
            verdict=end.verdict,
            verifier_output=end.verifier_output,
            verifying_sec=end.seconds.verifying,
            commands=tuple(
                keystrokes
                for entry in events
                if isinstance(entry.event, TurnParsed) and entry.seq < last.finished_seq
                for keystrokes in sent(entry.event)
            ),
        )

    def tokens(self, reader: JournalReader) -> Tokens:
        """Of all attempts."""
        attempts = (reader.read_trial(attempt.trial) for attempt in self.attempts)
        turns = (turn for events in attempts for turn in _sampled(events))
        return sum((_tokens(turn) for turn in turns), start=Tokens())

    def _spent(self) -> PhaseSeconds:
        """Of all attempts; waiting to try again is time in the queue."""
        total = dict.fromkeys(PhaseSeconds.model_fields, 0.0)
        for attempt in self.attempts:
            if attempt.finished is not None:
                for phase, seconds in attempt.finished.seconds.model_dump().items():
                    total[phase] += seconds
            if attempt.retried is not None:
                total["queue"] += attempt.retried.wait_sec
        return PhaseSeconds(**total)


def _sampled(events: Sequence[Entry]) -> list[TurnSampled]:
    """An attempt's model calls, in the order of their samples."""
    return [entry.event for entry in events if isinstance(entry.event, TurnSampled)]


def _tokens(turn: TurnSampled) -> Tokens:
    return Tokens(
        prompt=turn.prompt_tokens,
        cached=turn.cached_tokens,
        sampled=turn.completion_tokens,
        calls=1,
    )


class _Places(Mapping[tuple[str, int], RecordedPlace]):
    """Loads a rollout from the journal when its place is looked up, and does not keep it."""

    def __init__(self, places: Mapping[tuple[str, int], _PastPlace], reader: JournalReader) -> None:
        self._places = places
        self._reader = reader

    def __getitem__(self, key: tuple[str, int]) -> RecordedPlace:
        place = self._places[key]
        attempts = place.attempts[-1].number if place.attempts else 0
        rollout = place.rollout(self._reader) if place.stands else None
        tokens = rollout.tokens if rollout else place.tokens(self._reader)
        return RecordedPlace(attempts, rollout, place.seed(), tokens)

    def __iter__(self) -> Iterator[tuple[str, int]]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)
