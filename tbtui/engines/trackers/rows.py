"""What trackers are given: one row a step and one an evaluation, under the ecosystem's names."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tbtui.journal.events import Entry, EvalFinished, StepFinished

KINDS = ("step_finished", "eval_finished")
"""The kinds of events that rows are made of."""


@dataclass(frozen=True, slots=True)
class Row:
    """The numbers of one step, or of one evaluation."""

    index: int
    """Place among the run's rows, from 0: the same at every reading of the journal."""
    step: int
    """Optimiser steps done, which is what charts have as their x axis."""
    time: float
    """Seconds since the epoch."""
    values: dict[str, float]


class RowCounter:
    """Makes rows of a journal's entries, read from the start and in order."""

    def __init__(self) -> None:
        self._seen: set[tuple[str, int, float]] = set()

    def rows(self, entries: Iterable[Entry]) -> list[Row]:
        """The rows that these entries add; a step or an evaluation told twice is one row."""
        rows = []
        for entry in entries:
            match entry.event:
                case StepFinished() as event:
                    key, values = ("step", event.step, 0.0), dict(event.metrics)
                case EvalFinished() as event:
                    key, values = ("eval", event.step, event.temperature), _evaluation(event)
                case _:
                    continue
            if key not in self._seen:
                rows.append(Row(len(self._seen), event.step, entry.time, values))
                self._seen.add(key)
        return rows


def _evaluation(event: EvalFinished) -> dict[str, float]:
    """`test/*`, without a scored trial only how many there were; and what it cost."""
    values = {
        "test/scored_episodes": float(event.scored),
        "test/unscored_episodes": float(event.unscored),
    }
    if event.pass_rate is not None:
        values["test/pass_rate"] = event.pass_rate
    for kind, rate in event.by_kind.items():
        values[f"test/{kind}/pass_rate"] = rate
    for dataset, rate in event.by_dataset.items():
        values[f"test/dataset/{dataset}/pass_rate"] = rate
    for k, estimate in event.pass_at.items():
        values[f"test/pass_at_{k}"] = estimate.value
        values[f"test/pass_at_{k}/low"] = estimate.low
        values[f"test/pass_at_{k}/high"] = estimate.high
    return values | event.metrics
