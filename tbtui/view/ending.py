"""How far a run has come, and what one may do with it next: what is said when it is left."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from math import sqrt
from pathlib import Path
from statistics import fmean
from typing import Any

from tbtui.invocation import to_type
from tbtui.journal.database import JournalError
from tbtui.journal.events import (
    BestCheckpoint,
    BudgetReached,
    CheckpointSaved,
    Entry,
    EvalFinished,
    RunContinued,
    RunFinished,
    RunStarted,
    SettingsChanged,
    StepFinished,
)
from tbtui.journal.figures import planned_steps
from tbtui.journal.reader import JournalReader
from tbtui.journal.rundir import RunDirectory
from tbtui.view.sentences import HeldOut, pass_rates_in_words

Line = tuple[str, str]
"""Its head, and its text."""

MOST_KINDS = 3
"""Kinds of tasks that are named for what they have gained."""

_Z = 1.96

_KINDS = (
    "run_started",
    "run_continued",
    "run_finished",
    "settings_changed",
    "budget_reached",
    "step_finished",
    "eval_finished",
    "checkpoint_saved",
    "best_checkpoint",
)


@dataclass(frozen=True, slots=True)
class KindRate:
    """A pass rate over so many trials."""

    value: float
    trials: int

    @property
    def low(self) -> float:
        return self._wilson(-1)

    @property
    def high(self) -> float:
        return self._wilson(1)

    def _wilson(self, side: int) -> float:
        """An end of Wilson's 95% score interval."""
        p, n, z2 = self.value, self.trials, _Z**2
        half = _Z * sqrt(p * (1 - p) / n + z2 / (4 * n**2))
        return (p + z2 / (2 * n) + side * half) / (1 + z2 / n)


class Ending:
    """Fold every event of `_KINDS` in, or of all kinds."""

    def __init__(self) -> None:
        self._run = ""
        self._settings: Mapping[str, Any] = {}
        self._train_tasks = 0
        self._eval_tasks = 0
        self._spent: BudgetReached | None = None
        """The budget that ended it."""
        self._step = 0
        self._first: HeldOut | None = None
        self._last: HeldOut | None = None
        self._first_event: EvalFinished | None = None
        self._kinds: Mapping[str, str] = {}
        """Held-out task -> its kind."""
        self._last_event: EvalFinished | None = None
        self._best: BestCheckpoint | None = None
        self._saved: CheckpointSaved | None = None
        self._saved_at = 0.0
        self._finished = False
        self._begun = False
        self._over = False

    def see(self, entry: Entry) -> None:
        if self._over:
            # What comes after an end is of another process.
            self._begun = self._over = False
        match event := entry.event:
            case RunStarted():
                self._run, self._settings = event.run, event.settings
                self._train_tasks = sum(task.split == "train" for task in event.tasks)
                self._eval_tasks = len(event.tasks) - self._train_tasks
                self._kinds = {
                    task.name: task.kind or task.name
                    for task in event.tasks
                    if task.split == "eval"
                }
                self._begun = True
            case RunContinued():
                self._settings, self._finished, self._begun = event.settings, False, True
            case SettingsChanged():
                self._settings = {**self._settings, **event.settings}
            case BudgetReached(ends=True):
                self._spent = event
            case StepFinished():
                self._step = event.step
            case EvalFinished():
                self._last = HeldOut.of(event)
                if self._first is None:
                    self._first, self._first_event = self._last, event
                self._last_event = event
            case CheckpointSaved():
                self._saved, self._saved_at = event, entry.time
            case BestCheckpoint():
                self._best = event
            case RunFinished():
                self._finished, self._over = event.status == "finished", True
            case _:
                pass

    @property
    def begun(self) -> bool:
        """Whether the run, or its continuation, has begun and hasn't ended."""
        return self._begun

    @property
    def steps(self) -> int:
        """Steps that the run is to take; 0: it only evaluates, or is known to have no end."""
        return planned_steps(self._settings, self._train_tasks)

    def lines(self, name: str = "") -> Iterator[Line]:
        """The facts of the run, a line each; none before it has begun. `name`: the run's name."""
        if not self._run:
            return
        of = f" of {self.steps}" if self.steps else ""
        step = f", step {self._step}{of}" if self.steps or self._step else ""
        yield "run", f"{name or self._run}{step}"
        if not (self.steps or self._step):
            return
        if self._first is not None and self._last is not None:
            yield "rates", pass_rates_in_words(self._first, self._last) + self._interval()
        if gained := self.gains():
            yield "gained", ", ".join(gained)
        if self._best is not None:
            best = self._best
            yield "best", f"{best.path}: held-out pass rate {best.pass_rate:.2f}"
        elif self._saved is not None:
            yield "saved", self._saved.path
        if self._saved is not None and self._settings.get("policy") == "tinker":
            yield "server", self._kept_there()

    def _interval(self) -> str:
        """The last pass rate's 95% interval as ` (0.60 to 0.83)`; empty before any training."""
        last = self._last_event
        found = last.pass_at.get(1) if last is not None and self._step else None
        return "" if found is None else f" ({found.low:.2f} to {found.high:.2f})"

    def gains(self) -> list[str]:
        """Kinds of tasks whose held-out pass rate has gained most: `move 0.00 → 1.00 (n 12)`.

        Only gains beyond chance: the 95% intervals of the first evaluation and the last one don't
        meet.
        """
        if self._last_event is None or self._first_event is None or not self._step:
            return []
        before, now = (self._by_kind(each) for each in (self._first_event, self._last_event))
        gained = sorted(
            (kind for kind in now if kind in before and now[kind].low > before[kind].high),
            key=lambda kind: before[kind].value - now[kind].value,
        )
        return [
            f"{kind} {before[kind].value:.2f} → {now[kind].value:.2f} (n {now[kind].trials})"
            for kind in gained[:MOST_KINDS]
        ]

    def _by_kind(self, event: EvalFinished) -> dict[str, KindRate]:
        """The rate of each kind; empty for a journal without rates of single tasks."""
        each = int(self._settings.get("eval_group_size", 1))
        rates: dict[str, list[float]] = {}
        for task, rate in event.by_task.items():
            rates.setdefault(self._kinds.get(task, ""), []).append(rate)
        return {kind: KindRate(fmean(some), each * len(some)) for kind, some in rates.items()}

    @property
    def trains(self) -> bool:
        """Whether it takes steps, or has taken some: it is not only an evaluation."""
        return bool(self.steps or self._step)

    @property
    def saved(self) -> bool:
        """Whether it has saved weights to evaluate."""
        return self._saved is not None

    def _kept_there(self) -> str:
        """How long the Tinker server keeps what the run could be resumed from."""
        hours = self._settings.get("checkpoint_ttl_hours")
        if hours is None:
            return (
                "keeps the checkpoints until they are deleted, and may charge for them"
                " (checkpoint_ttl_hours)"
            )
        until = time.strftime("%Y-%m-%d %H:%M", time.localtime(self._saved_at + hours * 3600))
        return f"deletes the last checkpoint on {until}: resume before (checkpoint_ttl_hours)"

    def next_lines(self, name: str) -> Iterator[Line]:
        """The commands that fit an ended run; `name` is the name that finds it."""
        if not self._run:
            return
        if resume := self.to_resume(name):
            yield "next", resume
        if self.trains and self._settings.get("engine") != "prime-rl" and self._saved is not None:
            yield (
                "next",
                to_type("eval", name, *(["--latest"] if self._best is None else [])),
            )
        yield "next", to_type("replay", name)

    def to_resume(self, name: str, *settings: str) -> str:
        """The command that goes on with the run, with these settings; empty where nothing is left
        to go on with."""
        if not self._run:  # it was killed before it had begun
            return to_type("run", "--resume", name, *settings)
        # Of a single trial nothing is.
        several = self._eval_tasks * self._settings.get("eval_group_size", 1) > 1
        if not self.trains and (self._finished or not several):
            return ""
        further = [self._longer()] if self._finished and self._step else []
        named = {each.partition("=")[0] for each in settings}
        more = [each for each in further if each.partition("=")[0] not in named]
        return to_type("run", "--resume", name, *more, *settings)

    def to_start_anew(self, run: RunDirectory, *settings: str) -> str:
        """The command that starts another run like this one, with these settings."""
        # There is a run of that name already.
        unnamed = ["run_name=none"] if self._settings.get("run_name") else []
        return to_type("run", run.config, *unnamed, *settings)

    def _longer(self) -> str:
        """The setting that lets a finished run go on."""
        limit = self._settings.get("max_cost")
        if (spent := self._spent) is not None and self._step < self.steps:
            is_max_cost = spent.budget == "dollars" and spent.limit == limit
            name = "max_cost" if is_max_cost else f"budget.{spent.budget}"
            return f"{name}={2 * spent.limit:g}"
        if limit is not None and self._step < self.steps:
            return f"max_cost={2 * limit:g}"
        return f"max_steps={2 * self._step}"


def name_to_type(run: RunDirectory, logs_dir: Path) -> str:
    """What finds the run in a command: its name in `logs_dir`, else its path."""
    return run.name if run.path.parent == logs_dir.resolve() else str(run.path)


def to_resume(run: RunDirectory) -> str:
    """The command that goes on with a run which is over, from any directory; empty where nothing is
    left to go on with, or its journal can't be read."""
    try:
        return read_ending(run).to_resume(str(run.path))
    except JournalError:
        return ""


def not_live(run: RunDirectory) -> str:
    """Says that a run is over, and what can be done with it."""
    look = f"{run.name} is not live; to look at it: {to_type('replay', run.path)}"
    resume = to_resume(run)
    return f"{look}; to go on with it: {resume}" if resume else look


def read_ending(run: RunDirectory) -> Ending:
    """Read how far a run has come. Raises `JournalError`."""
    ending, after = Ending(), 0
    with closing(JournalReader(run, lenient=True)) as reader:
        while entries := reader.read_kinds(_KINDS, after):
            after = entries[-1].seq
            for entry in entries:
                ending.see(entry)
    return ending
