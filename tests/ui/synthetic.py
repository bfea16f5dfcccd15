"""A run that never happened: deterministic, written by the real journal, with real recordings.

A small discrete-event simulation of a training run on starter-like tasks. It can be written at
once (`write_run`) or be played in real time by a host (`SyntheticHost`), and then obeys commands.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import json
import math
import random
import re
import threading
import time
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tbtui.engines.events_of import issued
from tbtui.findings import Rule
from tbtui.journal.commands import RUN, Command, from_arguments
from tbtui.journal.events import (
    AgentCommand,
    AlarmRaised,
    AnyEvent,
    CommandDone,
    DeadlinePassed,
    Estimate,
    EvalFinished,
    EvalStarted,
    GroupRefilled,
    HumanTyped,
    Noted,
    Outcome,
    PhaseSeconds,
    PolicyLost,
    ProcessMeasured,
    Purpose,
    ResourcesMeasured,
    RunFinished,
    RunPaused,
    RunPhase,
    RunPhaseChanged,
    RunResumed,
    StepFinished,
    StepStarted,
    TaskRecord,
    TrialExcluded,
    TrialGivenBack,
    TrialPaused,
    TrialPhase,
    TrialPhaseChanged,
    TrialResumed,
    TrialRetried,
    TrialScore,
    TrialTakenOver,
    TurnObserved,
    TurnStarted,
    WorkerRecycled,
    WorkerStarted,
)
from tbtui.journal.rundir import RunDirectory
from tbtui.journal.writer import JournalWriter
from tbtui.server_status import RequestKind, RequestStatus, ServerStatus
from tbtui.ui.services import RunEnd
from tests.events import (
    group_scored,
    policy_measured,
    run_started,
    sample_record,
    trial_finished,
    trial_queued,
    turn_parsed,
    turn_sampled,
)
from tests.ui.picture import PastHost

START = 1_750_000_000.0
PROMPT = "root@box:/app# "
KINDS = ("append", "copy", "count", "create", "mkdir", "move", "nested", "remove")
_WORDS = (
    *("apple", "river", "stone", "green", "quick", "happy", "tiger"),
    *("ocean", "cloud", "seven", "silver", "golden"),
)
_NAMES = (
    *("notes", "data", "report", "alpha", "beta", "config"),
    *("log", "result", "index", "readme", "todo", "plan"),
)
_PIECES = re.compile(r"[A-Za-z]+|[ ]+|\d+|[^A-Za-z\d\s]|\n")

Delay = float
Process = Generator["Delay | Gate", None, None]


@dataclass
class Gate:
    """Processes wait here until it opens."""

    open: bool = False
    waiting: list[Process] = field(default_factory=list)


@dataclass(frozen=True)
class Turn:
    analysis: str
    plan: str
    keystrokes: tuple[str, ...]
    output: str
    complete: bool = False
    error: str | None = None


def turns_of(kind: str, rng: random.Random, good: bool) -> list[Turn]:
    """What an agent does in one task: a starter task, well or badly."""
    name, other = rng.sample(_NAMES, 2)
    name, other, word = f"{name}.md", f"{other}.txt", rng.choice(_WORDS)
    command, output = {
        "append": (f"echo {word} >> {name}", ""),
        "copy": (f"cp {name} {other}", ""),
        "count": (f"wc -l < {name} > {other}", ""),
        "create": (f"echo {word} > {name}", ""),
        "mkdir": (f"mkdir {word}", ""),
        "move": (f"mv {name} {other}", ""),
        "nested": (f"mkdir -p {word} && echo {word} > {word}/{name}", ""),
        "remove": (f"rm {other}", ""),
    }[kind]
    colour = f"\x1b[0m\x1b[01;34m{word}\x1b[0m  {name}  \x1b[01;32mrun.sh\x1b[0m  {other}\r\n"
    turns = []
    if not good and rng.random() < 0.5:
        turns.append(
            Turn(
                f"The file {name} has to be handled.",
                "Look for it first.",
                (f"cat /app/{word}/{name}\n",),
                f"cat: /app/{word}/{name}: \x1b[31mNo such file or directory\x1b[0m\r\n",
                error="Missing required fields: commands" if rng.random() < 0.3 else None,
            )
        )
    turns.append(
        Turn(
            f"The terminal shows an empty prompt. The task is a {kind}.",
            f"Use one command to {kind} it, then list the directory.",
            (command + "\n", "ls --color\n") if good else (command[:-1] + "\n", "ls --color\n"),
            output + colour,
        )
    )
    turns.append(
        Turn("The result is as asked for.", "Check once more.", (f"cat {name}\n",), f"{word}\r\n")
    )
    turns.append(Turn("The task is complete.", "Confirm.", (), "", complete=True))
    return turns


def completion(turn: Turn) -> str:
    commands = [{"keystrokes": keys, "duration": 0.1} for keys in turn.keystrokes]
    body = {"analysis": turn.analysis, "plan": turn.plan, "commands": commands}
    if turn.complete:
        body["task_complete"] = True
    return json.dumps(body, indent=1)


@dataclass
class SimTrial:
    trial: str
    label: str
    task: str
    kind: str
    group: str
    step: int
    purpose: Purpose
    good: bool
    rng: random.Random
    attempt: int = 1
    queued_at: float = START
    paused: bool = False
    frozen: bool = False
    stop: bool = False
    typist: str = ""
    """Who types in it."""
    excluded: bool = False
    ending: str = ""
    """Asked to end now: `cancel` or `retry`."""
    asked: Command | None = None
    """The command that ends it."""
    marks: list[tuple[str, float]] = field(default_factory=list)
    """What its time goes to, since when."""
    gate: Gate = field(default_factory=Gate)
    reward: float | None = None
    done: bool = False
    cast_start: float | None = None
    said: tuple[int, ...] = ()
    """The tokens of its conversation so far."""


def _score(trial: SimTrial, baseline: float | None) -> TrialScore:
    advantage = None
    if trial.reward is not None and baseline is not None and not trial.excluded:
        advantage = trial.reward - baseline
    return TrialScore(reward=trial.reward, advantage=advantage, tokens=120)


class _EndedNow(Exception):
    """A person ended the trial within a turn."""


class Simulation:
    """Advance it to a moment, and everything up to then has been journalled."""

    def __init__(
        self,
        run: RunDirectory,
        *,
        seed: int = 0,
        steps: int = 6,
        groups: int = 4,
        group_size: int = 8,
        parallel: int = 16,
        eval_every: int = 2,
        tempo: float = 1.0,
        turn_seconds: float = 3.0,
        fail: str = "",
        deadline: float | None = None,
        policy: str = "local",
        policy_lost_at: float | None = None,
    ) -> None:
        """`deadline`: seconds that a step's trials have. With policy "tinker", a server has it, and
        pauses now and then. `policy_lost_at`: seconds after the start."""
        self.run = run
        self.now = START
        self.end: RunEnd | None = None
        self._rng = random.Random(seed)
        self._steps, self._groups, self._group_size = steps, groups, group_size
        self._eval_every, self._tempo, self._turn_seconds = eval_every, tempo, turn_seconds
        self._fail, self._deadline = fail, deadline
        self._policy, self._policy_lost_at = policy, policy_lost_at
        self._prompt_tokens = self._cached_tokens = 0
        self._step_groups: dict[str, list[SimTrial]] = {}
        """The groups of the step that is being sampled."""
        self._free = parallel
        self._slots: list[Process] = []
        self._heap: list[tuple[float, int, Process]] = []
        self._order = itertools.count()
        self._commands = itertools.count(1)
        self._writer = JournalWriter(run, clock=lambda: self.now)
        self._live: dict[str, SimTrial] = {}
        self._run_paused = False
        self._tokens = self._completed = self._in_flight = 0
        self.tasks = [
            TaskRecord(
                name=f"{kind}-{number:02d}",
                kind=kind,
                difficulty="easy",
                split="eval" if number > 6 else "train",
            )
            for kind in KINDS
            for number in range(1, 9)
        ]
        self._schedule(self._main(), 0.0)
        self._schedule(self._measure(), 1.0)
        if policy_lost_at is not None:
            self._schedule(self._lose_policy(), policy_lost_at)

    # The clock

    def advance(self, until: float) -> None:
        while self._heap and self._heap[0][0] <= until and self.end is None:
            self.now, _, process = heapq.heappop(self._heap)
            self._step(process)
        self.now = max(self.now, until)

    def finish(self) -> None:
        while self._heap and self.end is None:
            self.advance(self._heap[0][0])

    def close(self) -> None:
        self._writer.close()

    def refusal(self, trial: str, verb: str) -> str:
        """What is answered about a trial that is over."""
        where = "has ended" if trial in self.done() else "is not running"
        return f"{trial} {where}: nothing to {verb}"

    def acting(self) -> list[str]:
        """The trials that run now."""
        return [trial.trial for trial in self._live.values() if trial.marks]

    def print_in(self, trial: str, text: str) -> None:
        """Something that runs in a trial's terminal prints."""
        if self._live[trial].cast_start is not None:
            self._cast(self._live[trial], text)

    def done(self) -> list[str]:
        """The finished trials of the step that is being sampled."""
        return [t.trial for group in self._step_groups.values() for t in group if t.done]

    def _schedule(self, process: Process, delay: float) -> None:
        heapq.heappush(self._heap, (self.now + delay / self._tempo, next(self._order), process))

    def _step(self, process: Process) -> None:
        try:
            waits = next(process)
        except StopIteration:
            return
        if isinstance(waits, Gate):
            if waits.open:
                self._schedule(process, 0.0)
            else:
                waits.waiting.append(process)
        else:
            self._schedule(process, waits)

    def _release(self, gate: Gate) -> None:
        gate.open = True
        for process in gate.waiting:
            self._schedule(process, 0.0)
        gate.waiting.clear()

    def _write(self, event: AnyEvent) -> None:
        self._writer.append(event)

    # Commands

    def command(self, command: Command) -> None:
        self._write(issued(command))
        trial = self._live.get(command.target)
        members = [each for group in self._step_groups.values() for each in group]
        known = trial or next((each for each in members if each.trial == command.target), None)
        if command.target == RUN:
            if command.verb == "pause":
                self._run_paused = True
                self._write(RunPaused())
            elif command.verb == "resume":
                self._run_paused = False
                self._write(RunResumed())
                for each in self._live.values():
                    self._release(each.gate)
            self._done(command, True, f"the run is {command.verb}d")
        elif command.verb in ("exclude", "include"):
            if known is None or known not in members:
                self._done(command, False, f"{command.target}: its group is scored already")
                return
            known.excluded = command.verb == "exclude"
            self._write(
                TrialExcluded(trial=known.trial, excluded=known.excluded, reason=command.reason)
            )
            self._done(command, True, f"{known.trial} is {command.verb}d")
        elif command.verb == "retry" and trial is None and known in members:
            assert known is not None
            self._again(known, "asked for by a person")
            self._done(command, True, f"{command.target} is attempted again")
        elif trial is None:
            self._done(command, False, self.refusal(command.target, command.verb))
        elif not trial.marks:
            late = f"{command.target} is still queued: nothing to {command.verb}"
            self._done(command, False, late)
        elif command.verb in ("cancel", "retry"):
            trial.ending, trial.asked = command.verb, command
            trial.paused = trial.frozen = False
            self._release(trial.gate)
        elif command.verb == "freeze":
            trial.frozen = True
            self._shut(trial)
            self._pause(trial, frozen=True)
            self._done(command, True, f"{trial.trial} is frozen")
        elif command.verb == "take_over":
            trial.paused, trial.frozen, trial.typist = True, False, command.actor
            self._shut(trial)
            self._pause(trial)
            self._write(TrialTakenOver(trial=trial.trial, actor=command.actor))
            self._done(command, True, f"{trial.trial}: {command.actor} is typing in it")
        elif command.verb == "type" and trial.typist:
            parts = from_arguments(command.arguments)
            self._write(HumanTyped(trial=trial.trial, actor=command.actor, parts=tuple(parts)))
            self._done(command, True, f"typed in {trial.trial}")
        elif trial.typist and command.verb in ("give_back", "resume"):
            self._write(TrialGivenBack(trial=trial.trial, actor=trial.typist))
            trial.typist, trial.paused = "", False
            self._resume(trial)
            self._release(trial.gate)
            self._done(command, True, f"{trial.trial} is given back to the agent")
        elif command.verb == "resume" and trial.frozen:
            trial.frozen = trial.paused = False
            self._resume(trial)
            self._release(trial.gate)
            self._done(command, True, f"{trial.trial} is running")
        elif command.verb == "pause":
            trial.paused = True
            self._shut(trial)
            self._schedule(self._acknowledge(command, trial), 0.6)
        elif command.verb == "resume":
            trial.paused = False
            self._release(trial.gate)
            self._done(command, True, f"{trial.trial} is running")
        elif command.verb == "stop":
            trial.stop = True
            trial.paused = False
            self._release(trial.gate)
            self._done(command, True, f"{trial.trial} is stopped and verified")
        else:
            self._done(command, False, f"{trial.trial}: nothing to {command.verb}")

    def _shut(self, trial: SimTrial) -> None:
        """Trials that wait at its gate already go on waiting there."""
        if not trial.gate.waiting:
            trial.gate = Gate()

    def _pause(self, trial: SimTrial, frozen: bool = False) -> None:
        trial.marks.append(("paused", self.now))
        self._write(TrialPaused(trial=trial.trial, frozen=frozen))

    def _resume(self, trial: SimTrial) -> None:
        before = next(name for name, _ in reversed(trial.marks) if name != "paused")
        trial.marks.append((before, self.now))
        self._write(TrialResumed(trial=trial.trial))

    def _held(self, trial: SimTrial) -> Process:
        """Within a turn: a frozen trial stands still, one that is to end now ends."""
        if trial.frozen:
            yield trial.gate
        if trial.ending:
            raise _EndedNow

    def interrupt(self) -> None:
        if self.end is not None:
            return
        self._write(RunPhaseChanged(phase=RunPhase.STOPPING, step=0))
        self._heap.clear()
        self._schedule(self._clean_up(), 0.8)

    def _clean_up(self) -> Process:
        for trial in list(self._live.values()):
            self._write(
                trial_finished(
                    trial.trial,
                    None,
                    outcome=Outcome.CANCELLED,
                    reason="the run was stopped",
                    turns=0,
                )
            )
            yield 0.02
        self._end(RunEnd("interrupted", "stopped by a person"))

    def _acknowledge(self, command: Command, trial: SimTrial) -> Process:
        yield 0.2
        self._done(command, True, f"{trial.trial} is paused")

    def _done(self, command: Command, ok: bool, result: str) -> None:
        self._write(CommandDone(command=command.id, ok=ok, result=result))

    def _end(self, end: RunEnd) -> None:
        self._write(RunFinished(status=end.status, reason=end.reason))
        self.end = end

    # The run

    def _main(self) -> Process:
        self._write(
            run_started(
                run=self.run.name,
                pid=4242,
                policy=self._policy,
                model_name="starter" if self._policy == "local" else "Qwen/Qwen3-8B",
                parameters=772_608 if self._policy == "local" else None,
                environment_reason="user namespaces work here",
                tasks_dir="/opt/tasks/starter",
                tasks=tuple(self.tasks),
                settings={"max_steps": self._steps, "group_size": self._group_size},
            )
        )
        self._write(RunPhaseChanged(phase=RunPhase.STARTING, step=0, detail="Harbor to be loaded"))
        yield 2.0
        for worker in (0, 1):
            self._write(WorkerStarted(worker=worker, pid=4300 + worker))
        self._write(Noted(level="info", text="environment: sandbox (user namespaces work here)"))
        yield 0.5
        yield from self._evaluate(0)
        for step in range(1, self._steps + 1):
            yield from self._train(step)
            if step == 2 and self._fail:
                self._write(RunPhaseChanged(phase=RunPhase.STOPPING, step=step))
                yield 0.2
                self._end(RunEnd("failed", self._fail))
                return
            if step % self._eval_every == 0:
                yield from self._evaluate(step)
        self._end(RunEnd("finished", f"{self._steps} steps done"))

    def _skill(self, step: int) -> float:
        return 0.34 + 0.56 * (1 - math.exp(-step / max(2.0, self._steps / 2.5)))

    def _train(self, step: int) -> Process:
        tasks = self._rng.sample([t for t in self.tasks if t.split == "train"], self._groups)
        groups = {f"s{step:03d}-{task.name}": task.name for task in tasks}
        self._write(StepStarted(step=step, groups=groups))
        self._write(RunPhaseChanged(phase=RunPhase.SAMPLING, step=step - 1))
        members: dict[str, list[SimTrial]] = {}
        for group, task in groups.items():
            members[group] = [
                self._trial(f"{group}-{n}", f"{task}/{n}", task, group, step, "train")
                for n in range(1, self._group_size + 1)
            ]
        self._step_groups = members
        began = self.now
        if step == 3:
            self._write(WorkerRecycled(worker=1, pid=4301, reason="it had grown to 612 MB"))
            self._write(WorkerStarted(worker=1, pid=4321))
        while not all(trial.done for trials in members.values() for trial in trials):
            yield 0.1
            if self._deadline is not None and self.now - began > self._deadline:
                self._expire(step, members)
            self._refill(step, members)
        sampled = self.now
        self._step_groups = {}
        for group, trials in members.items():
            rewards = [t.reward for t in trials if t.reward is not None and not t.excluded]
            baseline = sum(rewards) / len(rewards) if rewards else None
            same = len(set(rewards)) <= 1
            self._write(
                group_scored(
                    group,
                    {t.trial: _score(t, baseline) for t in trials},
                    step=step,
                    task=groups[group],
                    disposition="constant" if same else "trained",
                    baseline=baseline,
                )
            )
        self._write(RunPhaseChanged(phase=RunPhase.TRAINING, step=step - 1))
        yield 0.7
        self._write(
            StepFinished(
                step=step,
                weights_version=step,
                metrics={
                    "optim/loss": -0.02,
                    "optim/entropy": 0.31,
                    "optim/neg_logprob": 0.34 / step**0.3,
                    "optim/kl_sample_train_v2": 0.0031,
                    "optim/grad_norm": 0.8,
                    "time/sampling": sampled - began,
                    "time/training": self.now - sampled,
                    "time/total": self.now - began,
                    **self._waited([t for trials in members.values() for t in trials]),
                    **(self._paid(step) if self._policy == "tinker" else {}),
                },
            )
        )

        if step == 1:
            self._write(
                AlarmRaised(
                    alarm=Rule.SAMPLER_MISMATCH,
                    step=step,
                    text="sampler and trainer differ by 0.0123 nats a token, limit 0.01",
                    numbers={"kl": 0.0123, "limit": 0.01},
                    action="warn",
                )
            )

    def _paid(self, step: int) -> dict[str, float]:
        return {
            "tokens/total/prompt": 412_300.0 * step,
            "tokens/total/sampled": 18_040.0 * step,
            "tokens/total/trained": 96_210.0 * step,
            "cost/step_usd": 0.0431,
            "cost/total_usd": 0.0431 * step + 0.02,
        }

    def _waited(self, trials: list[SimTrial]) -> dict[str, float]:
        """The critical path: where the time of the trial that ended last went."""
        last = max(trials, key=lambda trial: trial.marks[-1][1])
        seconds = self._seconds(last).by_phase()
        return {f"time/wait/{name}": value for name, value in seconds.items()}

    def _expire(self, step: int, members: dict[str, list[SimTrial]]) -> None:
        late = [t for trials in members.values() for t in trials if not t.done and not t.stop]
        if not late:
            return
        names = tuple(trial.trial for trial in late)
        self._write(DeadlinePassed(step=step, action="stop", trials=names))
        for trial in late:
            trial.stop = True
            self._release(trial.gate)

    def _refill(self, step: int, members: dict[str, list[SimTrial]]) -> None:
        """A group that infrastructure has taken a member of gets a fresh one, once."""
        for group, trials in members.items():
            lost = [t for t in trials if t.done and t.reward is None and not t.ending]
            if not lost or len(trials) > self._group_size:
                continue
            task = lost[0].task
            number = len(trials) + 1
            fresh = f"{group}-{number}"
            self._write(GroupRefilled(step=step, group=group, trials=(fresh,)))
            trials.append(self._trial(fresh, f"{task}/{number}", task, group, step, "train"))

    def _evaluate(self, step: int) -> Process:
        tasks = [t for t in self.tasks if t.split == "eval"]
        self._write(EvalStarted(step=step, tasks=len(tasks), trials=len(tasks), temperature=1.0))
        self._write(RunPhaseChanged(phase=RunPhase.EVALUATING, step=step))
        group = f"e{step:03d}"
        trials = [
            self._trial(f"{group}-{task.name}", f"{task.name}/1", task.name, group, step, "eval")
            for task in tasks
        ]
        while not all(trial.done for trial in trials):
            yield 0.1
        scored = [t for t in trials if t.reward is not None]
        share = sum(t.reward or 0.0 for t in scored) / max(1, len(scored))
        spread = 1.96 * math.sqrt(max(0.02, share * (1 - share)) / max(1, len(scored)))
        pass_at = {
            1: Estimate(value=share, low=max(0.0, share - spread), high=min(1.0, share + spread))
        }
        by_kind: dict[str, list[float]] = {}
        for trial in scored:
            by_kind.setdefault(trial.kind, []).append(trial.reward or 0.0)
        self._write(
            EvalFinished(
                step=step,
                weights_version=step,
                temperature=1.0,
                pass_rate=sum(t.reward or 0.0 for t in scored) / len(scored) if scored else None,
                scored=len(scored),
                unscored=len(trials) - len(scored),
                by_kind={kind: sum(r) / len(r) for kind, r in by_kind.items()},
                pass_at=pass_at if scored else {},
            )
        )

    def _measure(self) -> Process:
        while True:
            self._write(
                policy_measured(
                    activity="sampling" if self._in_flight else "idle",
                    in_flight=self._in_flight,
                    running=min(8, self._in_flight),
                    completed=self._completed,
                    sampled_tokens=self._tokens,
                    p50_sec=0.41,
                    p95_sec=0.92,
                    server=self._server() if self._policy == "tinker" else None,
                )
            )
            wave = 0.5 + 0.3 * math.sin(self.now)
            processes = (
                ProcessMeasured(role="engine", pid=4242, rss_mb=164.0, cpu=0.12 * wave),
                ProcessMeasured(role="worker 0", pid=4300, rss_mb=207.0, cpu=0.9 * wave),
                ProcessMeasured(role="worker 1", pid=4301, rss_mb=206.0, cpu=0.8 * wave),
                ProcessMeasured(role="policy", pid=4310, rss_mb=118.0, cpu=0.6 * wave),
            )
            ours = 4 if self._policy == "local" else 3
            self._write(ResourcesMeasured(processes=processes[:ours], engine_lag_ms=3.2))
            yield 1.0

    def _server(self) -> ServerStatus:
        """Active, but for the last seconds of each 40."""
        elapsed = self.now - START
        pauses = int(elapsed // 40)
        paused = elapsed % 40 >= 28
        since = START + 40 * pauses + (28 if paused else 0)
        sampling, oldest = self._in_flight, elapsed % 17 + 1.2
        # Kind, in flight, age of the oldest, completed, failed, p50, p95.
        requests: list[tuple[RequestKind, int, float | None, int, int, float, float]] = [
            ("sample", sampling, oldest if sampling else None, self._completed, 0, 0.41, 0.92),
            ("forward_backward", 1, elapsed % 5, 3, 1, 2.2, 3.1),
            ("optim_step", 0, None, 3, 0, 0.8, 1.4),
        ]
        return ServerStatus(
            state="paused_capacity" if paused else "active",
            reason="Qwen/Qwen3-8B: all sampler replicas are busy" if paused else "",
            since=since if elapsed >= 28 else START + 1.5,
            requests=tuple(RequestStatus(*each) for each in requests),
            retries=4,
            prompt_tokens=self._prompt_tokens,
            cached_tokens=self._cached_tokens,
        )

    def _lose_policy(self) -> Process:
        self._write(
            PolicyLost(
                step=1,
                reason="the optimiser step: the Tinker server no longer has what was being trained",
                wait_sec=30.0,
            )
        )
        return
        yield 0.0

    # One trial

    def _trial(
        self, name: str, label: str, task: str, group: str, step: int, purpose: Purpose
    ) -> SimTrial:
        rng = random.Random(f"{name}")
        kind, good = task.split("-")[0], rng.random() < self._skill(step)
        trial = SimTrial(name, label, task, kind, group, step, purpose, good, rng)
        self._queue(trial)
        return trial

    def _queue(self, trial: SimTrial) -> None:
        self._live[trial.trial] = trial
        self._write(
            trial_queued(
                trial.trial,
                label=trial.label,
                task=trial.task,
                group=trial.group,
                step=trial.step,
                purpose=trial.purpose,
                attempt=trial.attempt,
            )
        )
        process = self._play(trial)
        trial.marks = []
        trial.queued_at = self.now
        if self._free > 0:
            self._free -= 1
            self._schedule(process, 0.0)
        else:
            self._slots.append(process)

    def _leave(self) -> None:
        if self._slots:
            self._schedule(self._slots.pop(0), 0.0)
        else:
            self._free += 1

    def _phase(self, trial: SimTrial, phase: TrialPhase, detail: str = "") -> None:
        spending = {
            TrialPhase.SETUP: "build" if detail == "sandbox" else "setup",
            TrialPhase.MODEL: "sampling",
            TrialPhase.ACTING: "commands",
            TrialPhase.VERIFYING: "verifying",
        }[phase]
        trial.marks.append((spending, self.now))
        self._write(TrialPhaseChanged(trial=trial.trial, phase=phase, detail=detail))

    def _cast(self, trial: SimTrial, text: str) -> None:
        path = self.run.recording(trial.trial)
        lines = ""
        if trial.cast_start is None:
            trial.cast_start = self.now
            path.parent.mkdir(parents=True, exist_ok=True)
            lines = json.dumps({"version": 2, "width": 160, "height": 40}) + "\n"
        lines += json.dumps([round(self.now - trial.cast_start, 3), "o", text]) + "\n"
        with path.open("a") as file:
            file.write(lines)

    def _play(self, trial: SimTrial) -> Process:
        try:
            yield from self._act(trial)
        except _EndedNow:
            self._ended_by_person(trial)

    def _act(self, trial: SimTrial) -> Process:
        rng = trial.rng
        self._phase(trial, TrialPhase.SETUP, "sandbox")
        yield 0.1 + rng.random() * 0.15
        self._phase(trial, TrialPhase.SETUP, "terminal")
        yield 0.05 + rng.random() * 0.1
        self._cast(trial, "\x1b[?2004h" + PROMPT)
        turns = turns_of(trial.kind, rng, trial.good)
        number = 0
        for number, turn in enumerate(turns, start=1):
            if (trial.paused or self._run_paused) and not trial.stop:
                trial.gate = Gate()
                self._pause(trial)
                yield trial.gate
                self._resume(trial)
                yield from self._held(trial)
            if trial.stop:
                break
            yield from self._turn(trial, number, turn)
            if trial.attempt == 1 and rng.random() < 0.012:
                yield from self._lose(trial)
                return
        self._phase(trial, TrialPhase.VERIFYING)
        yield 0.1 + rng.random() * 0.1
        trial.reward = 1.0 if trial.good and not trial.stop else 0.0
        verdict = trial.reward
        masked = not trial.good and rng.random() < 0.08
        if masked:
            trial.reward = None
        unclean = not trial.good and rng.random() < 0.1
        outcome = Outcome.SOLVED if trial.reward else Outcome.FAILED
        if unclean:
            outcome = Outcome.AGENT_TIMEOUT
        reason = "the verifier passed it" if verdict else "the manifest differs"
        if masked:
            outcome, reason = Outcome.CONTEXT_OVERFLOW, "the conversation outgrew 1024 tokens"
        self._write(
            trial_finished(
                trial.trial,
                trial.reward,
                outcome=outcome,
                reason=reason,
                verdict=verdict,
                turns=number,
                seconds=self._seconds(trial),
                verifier_output="manifest ok\n" if trial.reward else "-notes.md\n+notes.m\n",
            )
        )
        trial.done = True
        del self._live[trial.trial]
        self._leave()

    def _lose(self, trial: SimTrial) -> Process:
        """The sandbox goes away; a second attempt takes the trial's place."""
        yield 0.1
        self._write(
            trial_finished(
                trial.trial,
                None,
                reason="sandbox lost: worker 1 was killed (signal 9)",
                seconds=self._seconds(trial),
            )
        )
        del self._live[trial.trial]
        if trial.rng.random() < 0.5:
            trial.done = True
        else:
            self._again(trial, "the sandbox was lost", wait=4.0)
        self._leave()

    def _again(self, trial: SimTrial, reason: str, wait: float = 0.0) -> None:
        """A fresh attempt takes the trial's place."""
        trial.attempt += 1
        old = trial.trial
        trial.trial = f"{re.sub(r'-a[0-9]+$', '', old)}-a{trial.attempt}"
        trial.cast_start, trial.ending, trial.done, trial.reward = None, "", False, None
        trial.said = ()
        self._write(TrialRetried(trial=old, successor=trial.trial, reason=reason, wait_sec=wait))
        self._schedule(self._requeue(trial), wait)

    def _requeue(self, trial: SimTrial) -> Process:
        self._queue(trial)
        return
        yield 0.0

    def _ended_by_person(self, trial: SimTrial) -> None:
        name, ending, asked = trial.trial, trial.ending, trial.asked
        assert asked is not None
        self._write(
            trial_finished(
                name,
                None,
                outcome=Outcome.CANCELLED,
                reason=f"cancelled by {asked.actor}",
                seconds=self._seconds(trial),
            )
        )
        del self._live[name]
        if ending == "retry":
            self._again(trial, f"asked for by {asked.actor}")
        else:
            trial.done = True
        self._done(
            asked, True, f"{name} is {'attempted again' if ending == 'retry' else 'cancelled'}"
        )
        self._leave()

    def _seconds(self, trial: SimTrial) -> PhaseSeconds:
        spent = {"queue": trial.marks[0][1] - trial.queued_at, "teardown": 0.05}
        for (name, since), (_, until) in itertools.pairwise([*trial.marks, ("", self.now)]):
            spent[name] = spent.get(name, 0.0) + until - since
        return PhaseSeconds(**spent)

    def _turn(self, trial: SimTrial, number: int, turn: Turn) -> Process:
        rng, pace = trial.rng, self._turn_seconds
        self._write(TurnStarted(trial=trial.trial, turn=number))
        self._phase(trial, TrialPhase.MODEL)
        self._in_flight += 1
        seconds = pace * (0.1 + 0.3 * rng.random())
        yield seconds
        self._in_flight -= 1
        yield from self._held(trial)
        text = completion(turn)
        pieces = tuple(_PIECES.findall(text))
        logprobs = np.array(
            [
                -0.9 - 4 * rng.random() if rng.random() < 0.06 else -0.3 * rng.random() ** 3
                for _ in pieces
            ],
            dtype=np.float32,
        )
        self._tokens += len(pieces)
        cached = 28 * (number - 1) if self._policy == "tinker" else None
        self._prompt_tokens += 28 * number
        self._cached_tokens += cached or 0
        self._completed += 1
        prompt = (*trial.said, *range(28 * (number - 1), 28 * number))
        said = tuple(len(piece) for piece in pieces)
        trial.said = prompt + said
        sample = self._writer.add_sample(
            sample_record(
                trial.trial,
                pieces,
                turn=number,
                prompt_ids=prompt,
                logprobs=logprobs,
                prompt_text="New Terminal Output:\n" + PROMPT,
                weights_version=trial.step,
                seconds=seconds,
            )
        )
        self._write(
            turn_sampled(
                trial.trial,
                turn=number,
                sample=sample,
                text=text,
                thinking=thinking_of(turn) if self._policy == "tinker" else "",
                prompt_tokens=28 * number,
                cached_tokens=cached,
                completion_tokens=len(pieces),
                mean_logprob=float(logprobs.mean()),
                min_logprob=float(logprobs.min()),
                weights_version=trial.step,
                seconds=seconds,
            )
        )
        self._write(
            turn_parsed(
                trial.trial,
                turn=number,
                analysis=turn.analysis,
                plan=turn.plan,
                commands=tuple(
                    AgentCommand(keystrokes=k, duration_sec=0.1) for k in turn.keystrokes
                ),
                task_complete=turn.complete,
                error=turn.error,
            )
        )
        self._phase(trial, TrialPhase.ACTING)
        for keystrokes in turn.keystrokes:
            for part in _halves(keystrokes):
                self._cast(trial, part.replace("\n", "\r\n"))
                yield pace * 0.08
                yield from self._held(trial)
        if turn.keystrokes:
            self._cast(trial, turn.output + PROMPT)
        self._write(
            TurnObserved(
                trial=trial.trial,
                turn=number,
                observation="New Terminal Output:\n" + turn.output.replace("\r\n", "\n") + PROMPT,
                seconds=pace * 0.1,
            )
        )
        yield pace * (0.05 + 0.1 * rng.random())


def thinking_of(turn: Turn) -> str:
    """What a thinking model would have said to itself first."""
    return (
        f"Okay, let me look at the terminal. {turn.analysis} So I should be careful here.\n\n"
        f"{turn.plan} Wait, is the directory there? The task names it, so it is.\n"
        "Let me double-check the format: JSON with analysis, plan and commands.\n"
        "Nothing else may come after it, and each keystroke needs its newline. "
        "I also have to wait long enough for the command to end, a tenth of a second will do.\n"
        "Good."
    )


def _halves(text: str) -> Iterator[str]:
    half = len(text) // 2
    yield text[:half]
    yield text[half:]


def write_run(path: Path, seconds: float | None = None, **options: Any) -> Simulation:
    """Write a run up to `seconds` after its start, or to its end."""
    simulation = Simulation(RunDirectory.create(path), **options)
    if seconds is None:
        simulation.finish()
    else:
        simulation.advance(START + seconds)
    simulation.close()
    return simulation


class SyntheticHost(PastHost):
    """Plays a simulation in real time on a thread of its own, as an engine would run."""

    def __init__(self, path: Path, **options: object) -> None:
        super().__init__(RunDirectory.create(path))
        self._options = options
        self._thread = threading.Thread(target=self._play, name="engine", daemon=True)
        self._carried_out = 0
        self._interrupted = threading.Event()
        self._end: RunEnd | None = None
        self._over = threading.Event()

    def start(self) -> None:
        self._thread.start()

    def interrupt(self) -> None:
        self._interrupted.set()

    async def ended(self) -> RunEnd:
        await asyncio.to_thread(self._over.wait)
        assert self._end is not None
        return self._end

    def _play(self) -> None:
        try:
            self._simulate()
        except Exception as error:  # noqa: BLE001 - an engine that breaks has ended too
            self._end = RunEnd("failed", f"the simulation broke: {error!r}")
        finally:
            self._over.set()

    def _simulate(self) -> None:
        simulation = Simulation(self._directory, **self._options)
        # The journal's times are the wall's, as in a real run.
        offset = time.time() - START
        simulation.now += offset
        simulation._heap = [(at + offset, n, p) for at, n, p in simulation._heap]
        stopping = False
        while simulation.end is None:
            simulation.advance(time.time())
            while self._carried_out < len(self.commands):
                simulation.command(self.commands[self._carried_out])
                self._carried_out += 1
            if self._interrupted.is_set() and not stopping:
                stopping = True
                simulation.interrupt()
            time.sleep(0.01)
        simulation.close()
        self._end = simulation.end
