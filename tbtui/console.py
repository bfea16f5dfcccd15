"""A run without the app: readable lines, or one JSON event a line, read from the journal."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, TextIO

from tbtui.journal.events import (
    AlarmRaised,
    BestCheckpoint,
    CheckpointRemoved,
    CheckpointSaved,
    CommandDone,
    CommandIssued,
    DeadlinePassed,
    Entry,
    Estimate,
    EvalFinished,
    GroupAdded,
    GroupRefilled,
    GroupScored,
    Noted,
    Outcome,
    PolicyLost,
    RunContinued,
    RunFinished,
    RunPaused,
    RunPhase,
    RunPhaseChanged,
    RunResumed,
    RunStarted,
    SettingsChanged,
    StepFinished,
    StepStarted,
    TrialExcluded,
    TrialFinished,
    TrialGivenBack,
    TrialPaused,
    TrialQueued,
    TrialResumed,
    TrialRetried,
    TrialTakenOver,
    TrialTraced,
    WorkerLost,
    WorkerRecycled,
)
from tbtui.journal.reader import JournalReader
from tbtui.journal.rundir import RunDirectory
from tbtui.view.costs import dollars
from tbtui.view.gpu_lines import GpuLines
from tbtui.view.server_lines import ServerLines
from tbtui.view.state import INFRASTRUCTURE, planned_steps
from tbtui.view.waiting import duration, number_range
from tbtui.view.waits import in_words, measured_wait

_POLL_SEC = 0.1


@dataclass(slots=True)
class _Step:
    """A step under way."""

    tasks: dict[str, str] = field(default_factory=dict)
    """Group -> task."""
    outcomes: Counter[Outcome] = field(default_factory=Counter)
    groups: Counter[str] = field(default_factory=Counter)
    masked: set[str] = field(default_factory=set)
    """Training trials whose outcome keeps them out of training."""
    excluded: set[str] = field(default_factory=set)


class HumanLines:
    """Folds events into lines for a person; one line a step, and whatever goes wrong."""

    def __init__(self) -> None:
        self._started: float | None = None
        self._spent = 0.0
        """Seconds of the processes that this run had before."""
        self._latest = 0.0
        self._open: dict[int, _Step] = {}
        self._step_of: dict[str, int] = {}
        """Of the training trials of the steps under way."""
        self._outcomes: dict[str, Outcome] = {}
        """Of those that are over."""
        self._train_tasks = 0
        self._settings: dict[str, Any] = {}
        self._run_paused = False
        self._asked: dict[str, str] = {}
        """Command that is not done -> what it asks."""
        self._steps = 0
        self._rollouts = 0
        self._policy = "policy"
        self._server = ServerLines()
        self._gpus = GpuLines()

    def lines(self, entry: Entry) -> Iterator[str]:
        """The lines that this event adds, without line ends."""
        event = entry.event
        before, self._latest = self._latest, entry.time
        for text in self._server.lines(entry):
            yield _line(self._policy, text)
        for text in self._gpus.lines(entry):
            yield _line("gpus", text)
        match event:
            case RunPhaseChanged(phase=RunPhase.STARTING):
                self._started = self._started or entry.time
                yield _line("start", event.detail)
            case RunStarted():
                self._policy, self._settings = event.policy, event.settings
                self._train_tasks = sum(task.split == "train" for task in event.tasks)
                self._steps = planned_steps(event.settings, self._train_tasks)
                yield from _run_lines(event)
            case RunContinued():
                # Between its processes the run stood still.
                self._spent += before - (self._started or before)
                self._started, self._settings = entry.time, event.settings
                self._steps = planned_steps(event.settings, self._train_tasks)
                yield from _continued_lines(event)
            case StepStarted():
                self._step(event.step).tasks.update(event.groups)
            case GroupAdded():
                tasks = self._step(event.step).tasks
                tasks[event.group] = event.task
                if event.replaces:
                    replaced = tasks.get(event.replaces, event.replaces)
                    yield _line(
                        "group", f"{event.task} is added for {replaced}, which has nothing to teach"
                    )
            case TrialQueued():
                if event.purpose == "train":
                    self._step_of[event.trial] = event.step
            case TrialFinished():
                if (number := self._step_of.get(event.trial)) is not None:
                    step = self._step(number)
                    step.outcomes[event.outcome] += 1
                    self._outcomes[event.trial] = event.outcome
                    self._rollouts += 1
                    if event.reward is None and _is_the_policys_doing(event.outcome):
                        step.masked.add(event.trial)
                # What people ended themselves is told as what they asked for.
                if event.reward is None and event.outcome is not Outcome.CANCELLED:
                    masked = ", masked" if _is_the_policys_doing(event.outcome) else ""
                    yield _line("trial", f"{event.trial} {event.outcome}{masked}: {event.reason}")
            case TrialTraced():
                self._moved(event.trial, event.step)
            case TrialRetried():
                if (number := self._step_of.get(event.trial)) is not None:
                    self._step(number).masked.discard(event.trial)
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
            case TrialTakenOver():
                yield _line("trial", f"{event.trial} is taken over: {event.actor} types in it")
            case TrialGivenBack():
                yield _line("trial", f"{event.trial} is given back by {event.actor}")
            case TrialExcluded():
                yield self._exclusion_line(event)
            case GroupRefilled():
                task = self._step(event.step).tasks.get(event.group, event.group)
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
                self._step(event.step).groups[event.disposition] += 1
            case StepFinished():
                yield self._step_line(event)
                self._open.pop(event.step, None)
                over = [trial for trial, step in self._step_of.items() if step <= event.step]
                for trial in over:
                    del self._step_of[trial]
                    self._outcomes.pop(trial, None)
            case EvalFinished():
                yield _eval_line(event)
            case CheckpointSaved():
                yield _line("saved", event.path)
            case CheckpointRemoved():
                yield _line("removed", event.path)
            case BestCheckpoint():
                yield _line("best", f"{event.path}: held-out pass rate {event.pass_rate:.2f}")
            case AlarmRaised():
                yield _alarm_line(event)
            case PolicyLost():
                again = f"; a new one in {event.wait_sec:.0f} s" if event.wait_sec >= 0.5 else ""
                yield _line(self._policy, f"lost at step {event.step}: {event.reason}{again}")
            case WorkerLost():
                lost = f"; its {len(event.trials)} trials are lost" if event.trials else ""
                yield _line("worker", f"{event.worker} lost: {event.reason}{lost}")
            case WorkerRecycled():
                yield _line("worker", f"{event.worker} is replaced: {event.reason}")
            case CommandIssued():
                why = f" ({event.reason})" if event.reason else ""
                if event.verb == "set":
                    why = " " + ", ".join(f"{n}={v}" for n, v in event.arguments.items()) + why
                self._asked[event.command] = f"{event.verb} {event.target}"
                yield _line("asked", f"{event.actor}: {event.verb} {event.target}{why}")
            case CommandDone():
                what = self._asked.pop(event.command, "")
                yield _line("done" if event.ok else "refused", event.result or what)
            case SettingsChanged():
                self._settings = {**self._settings, **event.settings}
                self._steps = planned_steps(self._settings, self._train_tasks)
            case Noted():
                yield _line(event.level, event.text)
            case RunFinished():
                elapsed = duration(self._spent + entry.time - (self._started or entry.time))
                yield _line("end", f"{self._rollouts:,} rollouts in {elapsed}")
                yield end_line(event.status, event.reason)
            case _:
                pass

    def _moved(self, trial: str, number: int) -> None:
        """A trial turns out to belong to another step than it was counted to."""
        before = self._step_of.get(trial, number)
        if before != number:
            self._step_of[trial] = number
            if (outcome := self._outcomes.get(trial)) is not None:
                self._step(before).outcomes[outcome] -= 1
                self._step(number).outcomes[outcome] += 1

    def _step(self, number: int) -> _Step:
        """The step of this number; several may be under way at once."""
        return self._open.setdefault(number, _Step())

    def _step_line(self, event: StepFinished) -> str:
        metrics, step = event.metrics, self._step(event.step)
        wait = measured_wait(event.step, metrics)
        waited = f"; waited for {in_words(wait)}" if wait is not None else ""
        reward = metrics.get("env/all/reward/total")
        parts = [
            f"{event.step}/{self._steps}",
            "no reward" if reward is None else f"reward {reward:.2f}",
            " ".join(f"{o} {count}" for o, count in sorted(step.outcomes.items()) if count),
        ]
        if constant := step.groups["constant"]:
            parts.append(f"{constant} of {step.groups.total()} groups constant")
        if short := step.groups["short"]:
            parts.append(f"{short} groups too short")
        if step.masked:
            parts.append(f"{len(step.masked)} masked")
        if step.excluded:
            parts.append(f"{len(step.excluded)} excluded")
        if (surprise := metrics.get("optim/surprise")) is not None:
            parts.append(f"surprise {surprise:.2f}")
        if stale := metrics.get("async/staleness_max"):
            parts.append(f"up to {stale:.0f} step{'s' * (stale != 1)} stale")
        if (usd := metrics.get("cost/step_usd")) is not None:
            parts.append(f"{dollars(usd)} (so far {dollars(metrics['cost/total_usd'])})")
        spent = f"trials {metrics['time/sampling']:.1f}, training {metrics['time/training']:.1f}"
        parts.append(f"{metrics['time/total']:.1f}s ({spent}{waited})")
        return _line("step", " · ".join(part for part in parts if part))

    def _exclusion_line(self, event: TrialExcluded) -> str:
        why = f": {event.reason}" if event.reason else ""
        number = self._step_of.get(event.trial)
        excluded = self._step(number).excluded if number is not None else set()
        if event.excluded:
            excluded.add(event.trial)
            return _line("trial", f"{event.trial} is left out of training{why}")
        excluded.discard(event.trial)
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


def _continued_lines(event: RunContinued) -> Iterator[str]:
    where = f"step {event.step} ({event.checkpoint})" if event.checkpoint else "the start"
    yield _line("resumed", f"from {where}")
    if event.replayed:
        yield _line(
            "resumed", f"{number_range(event.replayed)} trained again on what was recorded of them"
        )
    if event.reused or event.requeued:
        yield _line(
            "resumed",
            f"{event.reused} finished trials are used again,"
            f" {len(event.requeued)} that were under way start again",
        )


def _alarm_line(event: AlarmRaised) -> str:
    led_to = {"warn": "", "pause": "; the run is paused", "halt": "; the run ends"}
    name = event.alarm.replace("_", " ")
    return _line("alarm", f"{name} at step {event.step}: {event.text}{led_to[event.action]}")


def _eval_line(event: EvalFinished) -> str:
    if event.pass_rate is None:
        return _line("eval", f"after step {event.step}: no trial could be scored")
    kinds = " ".join(f"{kind} {rate:.2f}" for kind, rate in event.by_kind.items())
    unscored = f", {event.unscored} unscored" if event.unscored else ""
    at_k = "".join(
        f" · pass@{k} {estimate.value:.2f}{_interval(estimate)}"
        for k, estimate in sorted(event.pass_at.items())
        if k > 1
    )
    return _line(
        "eval",
        f"after step {event.step}: held-out pass rate {event.pass_rate:.2f}"
        f"{_interval(event.pass_at.get(1))} of {event.scored} trials{unscored}"
        f"{at_k} · {kinds}",
    )


def _interval(estimate: Estimate | None) -> str:
    return "" if estimate is None else f" ({estimate.low:.2f} to {estimate.high:.2f})"


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
    after: int = 0,
) -> None:
    """Write the journal's events as they come, until it is `complete` and written out.

    Those up to number `after` belong to an earlier part of the run: they are folded in, and not
    written.

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
        seq = 0
        while True:
            ending = complete.is_set()
            while entries := reader.read(seq):
                seq = entries[-1].seq
                for entry in entries:
                    for line in lines(entry):
                        if entry.seq > after:
                            out.write(line + "\n")
                out.flush()
            if ending:
                return
            await asyncio.sleep(_POLL_SEC)
    finally:
        reader.close()
