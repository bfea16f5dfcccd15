"""Reads from the journal what came of a campaign, and holds it against what had to come."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from pydantic import ValidationError

from tbtui.journal.events import (
    Entry,
    Outcome,
    TasksSetAside,
    TrialFinished,
    TrialPhaseChanged,
    TrialQueued,
    TrialRetried,
    WorkerLost,
    WorkerStarted,
)
from tbtui.journal.reader import JournalReader
from tbtui.journal.rundir import RunDirectory
from tbtui.outcomes import INFRASTRUCTURE
from tests.faults.cases import Case
from tests.faults.environment import attempt_of
from tests.faults.report import Row

MAX_RETRIES = 1


class Judge:
    """What became of each attempt, and whether that is right."""

    def __init__(
        self,
        directory: RunDirectory,
        cases: dict[str, Case],
        killed: set[int],
        unfinished: dict[str, str],
    ) -> None:
        self._directory = directory
        self._cases = cases
        self._unfinished = unfinished
        self._finished: dict[str, list[TrialFinished]] = defaultdict(list)
        self._successors: dict[str, str] = {}
        self._spans: dict[str, list[float]] = defaultdict(list)
        self._lost: set[str] = set()
        """Trials that went down with a worker that we ended."""
        self._tasks: dict[str, str] = {}
        self._set_aside: set[str] = set()
        """Tasks that a fresh sandbox has shown to be broken: they are tried once."""
        self._strange: list[str] = []
        self.workers: set[int] = set()
        reader = JournalReader(directory)
        for entry in self._entries(reader):
            match entry.event:
                case TrialFinished() as event:
                    self._finished[event.trial].append(event)
                    self._spans[event.trial].append(entry.time)
                case TrialQueued() as event:
                    self._tasks[event.trial] = event.task
                case TasksSetAside() as event:
                    self._set_aside |= event.tasks.keys()
                case TrialPhaseChanged() as event:
                    self._spans[event.trial].append(entry.time)
                case TrialRetried() as event:
                    self._successors[event.trial] = event.successor
                case WorkerStarted() as event:
                    self.workers.add(event.pid)
                case WorkerLost() as event if event.pid in killed:
                    self._lost.update(event.trials)
                case WorkerLost() as event:
                    self._strange.append(f"worker {event.pid} lost by itself: {event.reason}")
        reader.close()

    def _entries(self, reader: JournalReader) -> Iterator[Entry]:
        for seq in range(reader.last_seq()):
            try:
                yield from reader.read(seq, 1)
            except ValidationError as error:
                self._strange.append(f"entry {seq + 1} of the journal can't be read: {error}")

    def rows(self, rewards: dict[str, float | None]) -> list[Row]:
        rows: dict[str, Row] = {}
        lost = Row("worker killed or stopped", "sandbox_lost")
        for name, case in self._cases.items():
            row = rows.setdefault(case.name, Row(case.name, _expectation(case)))
            row.trials += 1
            if name in self._unfinished:
                row.wrong.append(f"{name} {self._unfinished[name]}")
                row.seen["NO OUTCOME"] += 1
                continue
            self._judge_trial(name, case, rewards[name], row, lost)
        lost.trials = sum(lost.seen.values())
        lost.wrong += self._strange
        return [*rows.values(), lost]

    def _judge_trial(
        self, name: str, case: Case, reward: float | None, row: Row, lost: Row
    ) -> None:
        trial: str | None = name
        last: TrialFinished | None = None
        while trial is not None:
            ends = self._finished.get(trial, [])
            if len(ends) != 1:
                row.wrong.append(f"{trial} finished {len(ends)} times")
                return
            last = ends[0]
            mine = lost if trial in self._lost else row
            mine.seen[last.outcome.value] += 1
            spans = self._spans[trial]
            mine.seconds.append(max(spans) - min(spans))
            self._judge_attempt(trial, case, last, mine)
            successor = self._successors.get(trial)
            if successor is not None:
                row.retries += 1
                if mine is row and not case.outcomes & INFRASTRUCTURE:
                    row.exchanged += 1
                if (
                    not (self._directory.trials / trial).is_dir()
                    and mine is row
                    and (last.outcome is not Outcome.SETUP_ERROR)
                ):
                    row.wrong.append(f"{trial}: the evidence is gone")
            elif (
                last.outcome in INFRASTRUCTURE
                and attempt_of(trial)[1] <= MAX_RETRIES
                and self._tasks[trial] not in self._set_aside
            ):
                row.wrong.append(f"{trial}: {last.outcome} was not retried")
            trial = successor
        if last is not None and last.reward != reward:
            row.wrong.append(f"{name}: journal says reward {last.reward}, the rollout {reward}")

    def _judge_attempt(self, trial: str, case: Case, end: TrialFinished, row: Row) -> None:
        allowed = self._allowed(trial, case)
        if (end.outcome, end.reward) in allowed:
            return
        wanted = " or ".join(f"{outcome} {reward}" for outcome, reward in allowed)
        row.wrong.append(f"{trial}: {end.outcome} {end.reward} ({end.reason}); wanted {wanted}")
        if end.reward is not None and end.reward not in {reward for _, reward in allowed}:
            row.invented += 1

    def _allowed(self, trial: str, case: Case) -> list[tuple[Outcome, float | None]]:
        if trial in self._lost:
            return [(Outcome.SANDBOX_LOST, None)]
        hit: list[tuple[Outcome, float | None]] = [(o, case.reward) for o in case.outcomes]
        solved: tuple[Outcome, float | None] = (Outcome.SOLVED, 1.0)
        if not case.transient:
            return hit
        if case.fault is None:
            # Once among all attempts, and tbtui may ask again within the same one.
            return [*hit, solved]
        return hit if attempt_of(trial)[1] == 1 else [solved]


def _expectation(case: Case) -> str:
    names = "|".join(sorted(outcome.value for outcome in case.outcomes))
    reward = "" if case.reward is None else f" {case.reward:g}"
    return f"{names}{reward}{', then solved' if case.transient else ''}"
