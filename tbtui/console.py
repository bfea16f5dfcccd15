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
    CommandIssued,
    DeadlinePassed,
    Entry,
    EvalFinished,
    GroupRefilled,
    GroupScored,
    Noted,
    Outcome,
    RunFinished,
    RunPaused,
    RunPhase,
    RunPhaseChanged,
    RunResumed,
    RunStarted,
    StepFinished,
    StepStarted,
    TrialExcluded,
    TrialFinished,
    TrialPaused,
    TrialQueued,
    TrialResumed,
    TrialRetried,
    WorkerLost,
    WorkerRecycled,
)
from tbtui.journal.reader import JournalReader
from tbtui.journal.rundir import RunDirectory
from tbtui.view.state import INFRASTRUCTURE
from tbtui.view.waiting import duration
from tbtui.view.waits import in_words, measured_wait

_POLL_SEC = 0.1


class HumanLines:
    """Folds events into lines for a person; one line a step, and whatever goes wrong."""

    def __init__(self) -> None:
        self._started: float | None = None
        self._outcomes: Counter[Outcome] = Counter()
        self._purpose: dict[str, str] = {}
        self._label: dict[str, str] = {}
        self._groups: Counter[str] = Counter()
        self._tasks: dict[str, str] = {}
        """Group -> task, of the step under way."""
        self._masked: set[str] = set()
        """Training trials of the step whose outcome keeps them out of training."""
        self._excluded: set[str] = set()
        self._run_paused = False
        self._asked: dict[str, str] = {}
        """Command that is not done -> what it asks."""
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
            case StepStarted():
                self._tasks = event.groups
            case TrialQueued():
                self._purpose[event.trial] = event.purpose
                self._label[event.trial] = event.label
            case TrialFinished():
                self._label.pop(event.trial, None)
                if self._purpose.pop(event.trial, None) == "train":
                    self._outcomes[event.outcome] += 1
                    self._rollouts += 1
                    if event.reward is None and _is_the_policys_doing(event.outcome):
                        self._masked.add(event.trial)
                # What people ended themselves is told as what they asked for.
                if event.reward is None and event.outcome is not Outcome.CANCELLED:
                    masked = ", masked" if _is_the_policys_doing(event.outcome) else ""
                    yield _line("trial", f"{event.trial} {event.outcome}{masked}: {event.reason}")
            case TrialRetried():
                self._masked.discard(event.trial)
                wait = f" in {event.wait_sec:.0f} s" if event.wait_sec >= 0.5 else ""
                yield _line(
                    "trial",
                    f"{event.trial} is attempted again{wait} as {event.successor} ({event.reason})",
                )
            case TrialPaused():
                # While the whole run is paused, each of its trials says nothing new.
                if event.frozen:
                    yield _line("trial", f"{event.trial} is frozen, its processes stopped")
                elif not self._run_paused:
                    yield _line("trial", f"{event.trial} is paused at the end of its turn")
            case TrialResumed():
                if not self._run_paused:
                    yield _line("trial", f"{event.trial} goes on")
            case TrialExcluded():
                yield self._exclusion_line(event)
            case GroupRefilled():
                task = self._tasks.get(event.group, event.group)
                yield _line("group", f"{task} is refilled with {', '.join(event.trials)}")
            case DeadlinePassed():
                done = "stopped and verified" if event.action == "stop" else "masked"
                yield _line(
                    "step", f"{event.step} has had its time; {done}: {', '.join(event.trials)}"
                )
            case RunPaused():
                self._run_paused = True
                yield _line("run", "paused: no trial starts, running ones end their turn first")
            case RunResumed():
                self._run_paused = False
                yield _line("run", "resumed")
            case GroupScored():
                self._groups[event.disposition] += 1
            case StepFinished():
                yield self._step_line(event)
                self._outcomes.clear()
                self._groups.clear()
                self._masked.clear()
                self._excluded.clear()
            case EvalFinished():
                yield _eval_line(event)
            case CheckpointSaved():
                yield _line("saved", event.path)
            case WorkerLost():
                lost = f"; its {len(event.trials)} trials are lost" if event.trials else ""
                yield _line("worker", f"{event.worker} lost: {event.reason}{lost}")
            case WorkerRecycled():
                yield _line("worker", f"{event.worker} is replaced: {event.reason}")
            case CommandIssued():
                why = f" ({event.reason})" if event.reason else ""
                self._asked[event.command] = f"{event.verb} {event.target}"
                yield _line("asked", f"{event.actor}: {event.verb} {event.target}{why}")
            case CommandDone():
                what = self._asked.pop(event.command, "")
                yield _line("done" if event.ok else "refused", event.result or what)
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
        wait = measured_wait(event.step, metrics)
        waited = f"; waited for {in_words(wait)}" if wait is not None else ""
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
        if self._masked:
            parts.append(f"{len(self._masked)} masked")
        if self._excluded:
            parts.append(f"{len(self._excluded)} excluded")
        if (surprise := metrics.get("optim/surprise")) is not None:
            parts.append(f"surprise {surprise:.2f}")
        spent = f"trials {metrics['time/sampling']:.1f}, training {metrics['time/training']:.1f}"
        parts.append(f"{metrics['time/total']:.1f}s ({spent}{waited})")
        return _line("step", " · ".join(part for part in parts if part))

    def _exclusion_line(self, event: TrialExcluded) -> str:
        why = f": {event.reason}" if event.reason else ""
        if event.excluded:
            self._excluded.add(event.trial)
            return _line("trial", f"{event.trial} is left out of training{why}")
        self._excluded.discard(event.trial)
        return _line("trial", f"{event.trial} counts for training again{why}")


def _is_the_policys_doing(outcome: Outcome) -> bool:
    return outcome not in INFRASTRUCTURE and outcome is not Outcome.CANCELLED


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
