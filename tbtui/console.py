"""A run without the app: readable lines, or one JSON event a line, read from the journal."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Iterator
from typing import TextIO

from tbtui.journal.events import (
    CheckpointSaved,
    CommandDone,
    Entry,
    EvalFinished,
    GroupScored,
    Noted,
    Outcome,
    RunFinished,
    RunPhase,
    RunPhaseChanged,
    RunStarted,
    StepFinished,
    TrialFinished,
    TrialQueued,
    TrialRetried,
    WorkerLost,
)
from tbtui.journal.reader import JournalReader
from tbtui.journal.rundir import RunDirectory
from tbtui.view.waiting import duration

_POLL_SEC = 0.1


class HumanLines:
    """Folds events into lines for a person; one line a step, and whatever goes wrong."""

    def __init__(self) -> None:
        self._started: float | None = None
        self._outcomes: Counter[Outcome] = Counter()
        self._purpose: dict[str, str] = {}
        self._label: dict[str, str] = {}
        self._groups: Counter[str] = Counter()
        self._steps = 0
        self._rollouts = 0

    def lines(self, entry: Entry) -> Iterator[str]:
        """The lines that this event adds, without line ends."""
        event = entry.event
        match event:
            case RunPhaseChanged(phase=RunPhase.STARTING):
                self._started = self._started or entry.time
                yield _line("start", event.detail)
            case RunStarted():
                self._steps = int(event.settings["max_steps"])
                yield from _run_lines(event)
            case TrialQueued():
                self._purpose[event.trial] = event.purpose
                self._label[event.trial] = event.label
            case TrialFinished():
                self._label.pop(event.trial, None)
                if self._purpose.pop(event.trial, None) == "train":
                    self._outcomes[event.outcome] += 1
                    self._rollouts += 1
                # What people ended themselves is told as what they asked for.
                if event.reward is None and event.outcome is not Outcome.CANCELLED:
                    yield _line("trial", f"{event.trial} {event.outcome}: {event.reason}")
            case TrialRetried():
                yield _line("trial", f"{event.trial} is attempted again as {event.successor}")
            case GroupScored():
                self._groups[event.disposition] += 1
            case StepFinished():
                yield self._step_line(event)
                self._outcomes.clear()
                self._groups.clear()
            case EvalFinished():
                yield _eval_line(event)
            case CheckpointSaved():
                yield _line("saved", event.path)
            case WorkerLost():
                lost = f"; its {len(event.trials)} trials are lost" if event.trials else ""
                yield _line("worker", f"{event.worker} lost: {event.reason}{lost}")
            case CommandDone():
                yield _line("asked", event.result)
            case Noted():
                yield _line(event.level, event.text)
            case RunFinished():
                elapsed = duration(entry.time - (self._started or entry.time))
                yield _line("end", f"{self._rollouts:,} rollouts in {elapsed}")
                yield end_line(event.status, event.reason)
            case _:
                pass

    def _step_line(self, event: StepFinished) -> str:
        metrics = event.metrics
        reward = metrics.get("env/all/reward/total")
        parts = [
            f"{event.step}/{self._steps}",
            "no reward" if reward is None else f"reward {reward:.2f}",
            " ".join(f"{outcome} {count}" for outcome, count in sorted(self._outcomes.items())),
        ]
        if constant := self._groups["constant"]:
            parts.append(f"{constant} of {self._groups.total()} groups constant")
        if short := self._groups["short"]:
            parts.append(f"{short} groups too short")
        if (surprise := metrics.get("optim/surprise")) is not None:
            parts.append(f"surprise {surprise:.2f}")
        parts.append(
            f"{metrics['time/total']:.1f}s"
            f" (trials {metrics['time/sampling']:.1f}, training {metrics['time/training']:.1f})"
        )
        return _line("step", " · ".join(part for part in parts if part))


def _line(head: str, text: str) -> str:
    return f"{head:<8}{printable(text)}"


def end_line(status: str, reason: str) -> str:
    """The very last line: whoever reads only that one gets the reason."""
    return f"{status}: {printable(reason)}"


def _run_lines(event: RunStarted) -> Iterator[str]:
    size = f", {event.parameters / 1e6:.2f}M parameters" if event.parameters else ""
    uses = Counter(task.split for task in event.tasks)
    yield _line("run", event.run)
    yield _line("policy", f"{event.policy} {event.model_name}{size}")
    yield _line("trials", f"in {event.environment} ({event.environment_reason})")
    yield _line(
        "tasks", f"{uses['train']} to train on, {uses['eval']} held out, from {event.tasks_dir}"
    )


def _eval_line(event: EvalFinished) -> str:
    if event.pass_rate is None:
        return _line("eval", f"after step {event.step}: no trial could be scored")
    kinds = " ".join(f"{kind} {rate:.2f}" for kind, rate in event.by_kind.items())
    unscored = f", {event.unscored} unscored" if event.unscored else ""
    return _line(
        "eval",
        f"after step {event.step}: held-out pass rate {event.pass_rate:.2f}"
        f" of {event.scored} trials{unscored} · {kinds}",
    )


def json_line(entry: Entry) -> str:
    """One event as one JSON object on one line: `seq`, `time`, `kind` and its own fields."""
    fields = {"seq": entry.seq, "time": entry.time, **entry.event.model_dump(mode="json")}
    return json.dumps(fields)


def printable(text: str) -> str:
    """Text that can't move the cursor, ring or colour: control characters are made visible."""
    return "".join(
        chr(0x2400 + ord(c))
        if ord(c) < 0x20
        else "␡"
        if ord(c) == 0x7F or 0x80 <= ord(c) < 0xA0
        else c
        for c in text
    )


async def follow(
    directory: RunDirectory,
    complete: asyncio.Event,
    lines: Callable[[Entry], Iterator[str]],
    out: TextIO,
) -> None:
    """Write the journal's events as they come, until it is `complete` and written out.

    Raises:
        JournalError: the journal can't be read.
        BrokenPipeError: nobody reads `out` any more.
    """
    while not directory.database.exists():
        if complete.is_set():
            return
        await asyncio.sleep(_POLL_SEC)
    reader = JournalReader(directory)
    try:
        after = 0
        while True:
            ending = complete.is_set()
            while entries := reader.read(after):
                after = entries[-1].seq
                for entry in entries:
                    for line in lines(entry):
                        out.write(line + "\n")
                out.flush()
            if ending:
                return
            await asyncio.sleep(_POLL_SEC)
    finally:
        reader.close()
