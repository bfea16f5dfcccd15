"""The targets of a jump by name: trials, groups, tasks, steps and metrics."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from tbtui.journal.events import StepFinished, TrialFinished, TrialQueued

if TYPE_CHECKING:
    from tbtui.journal.reader import JournalReader
    from tbtui.view.state import RunState

TargetKind = Literal[
    "step", "task", "group", "trial", "setting", "metric", "command", "guide", "theme"
]

_KINDS = ("trial_queued", "trial_finished", "step_finished")


@dataclass(frozen=True, slots=True)
class Target:
    """A target of a jump."""

    kind: TargetKind
    id: str
    """What it is called where it is opened: a trial's id, a setting's name, a key's id."""
    name: str
    """What people call it; matched fuzzily."""
    detail: str = ""
    """A few words more; matched word by word."""
    step: int | None = None
    """The step that it belongs to, for addresses like `s3`."""


class TrialIndex:
    """Every trial, group and step of a journal, however many: read on from where it was left.

    Used by one thread at a time, with that thread's reader.
    """

    def __init__(self) -> None:
        self._seq = 0
        self._queued: dict[str, TrialQueued] = {}
        self._ends: dict[str, str] = {}
        self._groups: dict[str, list[str]] = {}
        self._steps: dict[int, str] = {}
        """Number -> what is said of it."""

    def read_on(self, reader: JournalReader) -> list[Target]:
        """Read what is new; everything, the newest first.

        Raises:
            JournalError: the journal can't be read.
        """
        while entries := reader.read_kinds(_KINDS, self._seq):
            self._seq = entries[-1].seq
            for entry in entries:
                match entry.event:
                    case TrialQueued() as event:
                        self._queued[event.trial] = event
                        self._groups.setdefault(event.group, []).append(event.trial)
                        if event.purpose == "train":
                            self._steps.setdefault(event.step, "under way")
                    case TrialFinished() as event:
                        reward = "" if event.reward is None else f" {event.reward:.2f}"
                        self._ends[event.trial] = f"{event.outcome.replace('_', ' ')}{reward}"
                    case StepFinished() as event:
                        self._steps[event.step] = "trained"
        return [*self._step_targets(), *self._group_targets(), *self._trial_targets()]

    def members(self, group: str) -> list[str]:
        """The trials of a group."""
        return self._groups.get(group, [])

    def _step_targets(self) -> Iterator[Target]:
        for step in sorted(self._steps, reverse=True):
            yield Target("step", str(step), f"step {step}", self._steps[step], step)

    def _group_targets(self) -> Iterator[Target]:
        for group, members in reversed(self._groups.items()):
            first = self._queued[members[0]]
            if first.purpose == "train":
                detail = f"s{first.step} · {len(members)} trials"
                yield Target("group", group, _short(first), detail, first.step)

    def _trial_targets(self) -> Iterator[Target]:
        for trial, queued in reversed(self._queued.items()):
            step = f"s{queued.step}"
            where = {"train": step, "probe": "probe"}.get(queued.purpose, f"evaluation {step}")
            again = f" · attempt {queued.attempt}" if queued.attempt > 1 else ""
            detail = f"{where} · {self._ends.get(trial, 'not ended')}{again}"
            yield Target("trial", trial, queued.label, detail, queued.step)


def _short(trial: TrialQueued) -> str:
    """A group's name: its trials' label without the number."""
    return trial.label.rpartition("/")[0] or trial.task


def state_targets(state: RunState) -> Iterator[Target]:
    """The tasks and metrics of a run."""
    for task in state.tasks.values():
        rate = "" if task.pass_rate is None else f"pass rate {task.pass_rate:.2f}"
        held_out = "held out" if task.split == "eval" else ""
        detail = " · ".join(filter(None, (task.kind, held_out, rate)))
        yield Target("task", task.name, task.name, detail)
    newest = next((step for step in reversed(state.steps) if step.metrics), None)
    for name, value in (newest.metrics if newest else {}).items():
        yield Target("metric", name, name, f"{value:.4g}")
