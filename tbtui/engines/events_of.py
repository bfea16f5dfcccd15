"""What the journal has of messages, commands, tasks and evaluations, whichever engine trains."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from tbtui.algorithm.evaluation import TaskAttempts, attempts, pass_rate, pass_rates
from tbtui.journal.commands import Command
from tbtui.journal.events import (
    AnyEvent,
    CommandIssued,
    Estimate,
    EvalFinished,
    Purpose,
    SnapshotKept,
    TaskRecord,
    TrialForked,
    TurnObserved,
    TurnParsed,
)
from tbtui.rollout.messages import ForkReached, SnapshotTaken, TurnSeen, TurnUnderstood

if TYPE_CHECKING:
    from tbtui.catalog.split import Split
    from tbtui.catalog.tasks import TaskInfo


class EventLog(Protocol):
    """Where trials' events go: a run's journal, or the files of Prime-RL's plugin."""

    def append(self, event: AnyEvent) -> object: ...


def turn_event(
    message: TurnUnderstood | TurnSeen | ForkReached | SnapshotTaken,
) -> TurnParsed | TurnObserved | TrialForked | SnapshotKept:
    match message:
        case SnapshotTaken():
            return SnapshotKept(**dataclasses.asdict(message))
        case ForkReached(trial, report):
            return TrialForked(
                trial=trial,
                way=report.way,
                snapshot_turn=report.snapshot_turn,
                replayed=report.replayed,
                parted=report.parted,
                difference=report.difference,
                lost=report.lost,
                seconds=report.seconds,
            )
        case TurnUnderstood():
            return TurnParsed(
                trial=message.trial,
                turn=message.turn,
                analysis=message.analysis,
                plan=message.plan,
                commands=message.commands,
                task_complete=message.task_complete,
                error=message.error,
                warning=message.warning,
            )
        case TurnSeen(trial, turn, observation, seconds):
            return TurnObserved(trial=trial, turn=turn, observation=observation, seconds=seconds)


def sent(turn: TurnParsed) -> list[str]:
    """The keystrokes of a turn; after an error nothing is executed."""
    return [] if turn.error else [command.keystrokes for command in turn.commands]


def issued(command: Command) -> CommandIssued:
    return CommandIssued(
        command=command.id,
        verb=command.verb,
        target=command.target,
        actor=command.actor,
        reason=command.reason,
        arguments=dict(command.arguments),
    )


def task_records(split: Split) -> tuple[TaskRecord, ...]:
    """A run's tasks by use; with the data set of each, where they are of several."""
    uses: tuple[tuple[Purpose, tuple[TaskInfo, ...]], ...] = (
        ("train", (*split.train, *split.honeypots)),
        ("eval", split.heldout),
    )
    several = len({task.dataset for task in (*split.train, *split.heldout)}) > 1
    return tuple(
        TaskRecord(
            name=task.name,
            kind=task.kind,
            category=task.category,
            difficulty=task.difficulty,
            split=purpose,
            dataset=task.dataset if several else "",
        )
        for purpose, tasks in uses
        for task in tasks
    )


def eval_finished(
    rewards: Sequence[tuple[str, float | None]],
    *,
    kinds: Mapping[str, str],
    datasets: Mapping[str, str] = {},
    step: int,
    weights_version: int,
    temperature: float,
    not_tried: int = 0,
    metrics: Mapping[str, float] = {},
    verdicts: Sequence[tuple[str, float | None]] = (),
) -> EvalFinished:
    """Pass rates over all tasks, by task, by kind of task, and by data set if there are several.

    To pass is a reward of 1. Each rate is a mean over tasks, so that a task some of whose trials
    could not be scored weighs no less than another; a task none of whose trials was scored is
    left out, and counted, together with the `not_tried` ones that can't be used at all.

    Args:
        rewards: (task, reward) of each trial; None: it was not scored.
        kinds: task -> its kind; `datasets`: task -> its data set.
        verdicts: as `rewards`, with the verdict of each trial that was scored; empty: not known.
    """
    by_task = {task: attempts(each) for task, each in _grouped(rewards).items()}
    by_kind = _grouped((kinds[task], tried) for task, tried in by_task.items())
    by_dataset = _grouped((datasets.get(task, ""), tried) for task, tried in by_task.items())
    scored = [reward for _, reward in rewards if reward is not None]
    rates = pass_rates(list(by_task.values()))
    harbor = pass_rate([attempts(each) for each in _grouped(verdicts).values()], 1)
    return EvalFinished(
        step=step,
        weights_version=weights_version,
        temperature=temperature,
        pass_rate=rates[1].value if rates else None,
        scored=len(scored),
        unscored=len(rewards) - len(scored),
        by_kind=_first_attempt(by_kind),
        by_dataset=_first_attempt(by_dataset) if len(by_dataset) > 1 else {},
        trials_by_kind=_scored(by_kind),
        trials_by_dataset=_scored(by_dataset) if len(by_dataset) > 1 else {},
        pass_at={
            k: Estimate(value=rate.value, low=rate.low, high=rate.high) for k, rate in rates.items()
        },
        by_task=_first_attempt({task: [tried] for task, tried in by_task.items()}),
        harbor_pass_rate=harbor.value if harbor is not None else None,
        mean_reward=sum(scored) / len(scored) if scored else None,
        unscored_tasks=sum(not tried.scored for tried in by_task.values()) + not_tried,
        metrics=dict(metrics),
    )


def _scored(parts: Mapping[str, Sequence[TaskAttempts]]) -> dict[str, int]:
    counts = {name: sum(each.scored for each in tried) for name, tried in parts.items()}
    return {name: count for name, count in counts.items() if count}


def _grouped[T](pairs: Iterable[tuple[str, T]]) -> dict[str, list[T]]:
    groups: dict[str, list[T]] = {}
    for name, member in pairs:
        groups.setdefault(name, []).append(member)
    return groups


def _first_attempt(parts: Mapping[str, Sequence[TaskAttempts]]) -> dict[str, float]:
    """pass@1 of each part that has a scored trial, by name."""
    rates = {name: pass_rate(tasks, 1) for name, tasks in sorted(parts.items())}
    return {name: rate.value for name, rate in rates.items() if rate is not None}
