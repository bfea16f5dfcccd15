"""A step of two groups whose members part in known places, written by the real journal."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from tbtui.journal.events import (
    AgentCommand,
    Outcome,
    PhaseSeconds,
    RunPhase,
    RunPhaseChanged,
    RunStarted,
    StepFinished,
    StepStarted,
    TaskRecord,
    TrialExcluded,
    TrialPhase,
    TrialPhaseChanged,
    TrialScore,
    TurnObserved,
)
from tbtui.journal.rundir import RunDirectory
from tbtui.journal.writer import JournalWriter
from tests.events import (
    group_scored,
    run_started,
    sample_record,
    trial_finished,
    trial_queued,
    turn_parsed,
    write_answer,
)

START = 1_750_000_000.0
PROMPT = "root@box:/app# "
LISTING = "New Terminal Output:\nnotes.md  bak\n" + PROMPT
EMPTY = "New Terminal Output:\n" + PROMPT
_PIECES = re.compile(r"[A-Za-z]+|[ ]+|\d+|[^A-Za-z\d\s]|\n")


@dataclass(frozen=True)
class Said:
    plan: str
    keys: str
    answer: str = EMPTY
    done: bool = False


LOOK = Said("Look around first.", "ls\n", LISTING)
COPY = Said("Copy it into the directory.", "cp notes.md bak/\n")
MOVE = Said("Move it into the directory.", "mv notes.md bak/\n")
CHECK = Said("See whether it is there.", "ls bak\n", "New Terminal Output:\nnotes.md\n" + PROMPT)
NOTHING = Said(
    "See whether it is there.",
    "ls bak\n",
    "New Terminal Output:\nls: cannot access 'bak': No such file or directory\n" + PROMPT,
)
DONE = Said("The task is complete.", "", done=True)


@dataclass(frozen=True)
class Member:
    turns: tuple[Said, ...]
    reward: float | None
    outcome: Outcome
    reason: str
    tokens: int = 0
    excluded: bool = False


COPIES = (
    Member((LOOK, COPY, CHECK, DONE), 1.0, Outcome.SOLVED, "the verifier passed it", 300),
    Member((LOOK, COPY, CHECK, DONE), 1.0, Outcome.SOLVED, "the verifier passed it", 100),
    Member((LOOK, MOVE, CHECK, DONE), 0.0, Outcome.FAILED, "notes.md is gone", 200),
    Member((LOOK, COPY, NOTHING), None, Outcome.SANDBOX_LOST, "worker 1 was killed (signal 9)"),
    Member((LOOK, MOVE), None, Outcome.CONTEXT_OVERFLOW, "the conversation outgrew 1024 tokens"),
    Member((COPY, DONE), 1.0, Outcome.SOLVED, "the verifier passed it", 80, excluded=True),
    Member((LOOK, COPY, NOTHING, DONE), 0.25, Outcome.FAILED, "half of it is there", 400),
)
COUNTS = (
    Member((LOOK, DONE), 1.0, Outcome.SOLVED, "the verifier passed it", 100),
    Member((CHECK, DONE), 0.0, Outcome.FAILED, "the count differs", 100),
)
GROUPS = {"copy-03": COPIES, "count-01": COUNTS}


def write_group_run(
    path: Path, *, scored: bool = True, normalizer: str = "token", plans: bool = True
) -> RunDirectory:
    """`scored`: the step has ended; else its groups wait for that. `plans`: answers have some."""
    run = RunDirectory.create(path)
    clock = [START]
    with JournalWriter(run, clock=lambda: clock[0]) as writer:
        _Writing(writer, clock, plans).all(scored, normalizer)
    return run


class _Writing:
    def __init__(self, writer: JournalWriter, clock: list[float], plans: bool) -> None:
        self._writer, self._clock, self._plans = writer, clock, plans

    def all(self, scored: bool, normalizer: str) -> None:
        write = self._writer.append
        write(_started(normalizer))
        write(StepStarted(step=1, groups={f"g-{task}": task for task in GROUPS}))
        write(RunPhaseChanged(phase=RunPhase.SAMPLING, step=0))
        for task, members in GROUPS.items():
            for number, member in enumerate(members, start=1):
                self._member(task, number, member)
        if not scored:
            return
        for task, members in GROUPS.items():
            self._score(task, members)
        write(RunPhaseChanged(phase=RunPhase.TRAINING, step=0))
        self._clock[0] += 1.5
        metrics = {"optim/neg_logprob": 0.4, "optim/kl_sample_train_v2": 0.003}
        write(StepFinished(step=1, weights_version=1, metrics=metrics))

    def _member(self, task: str, number: int, member: Member) -> None:
        write = self._writer.append
        trial = f"{task}-{number}"
        write(trial_queued(trial, label=f"{task}/{number}", task=task, group=f"g-{task}"))
        write(TrialPhaseChanged(trial=trial, phase=TrialPhase.MODEL))
        for place, said in enumerate(member.turns, start=1):
            self._turn(trial, place, said)
        write(
            trial_finished(
                trial,
                member.reward,
                outcome=member.outcome,
                reason=member.reason,
                turns=len(member.turns),
                seconds=PhaseSeconds(sampling=1.0),
            )
        )
        if member.excluded:
            write(TrialExcluded(trial=trial, excluded=True, reason="it read the solution"))

    def _turn(self, trial: str, number: int, said: Said) -> None:
        write = self._writer.append
        self._clock[0] += 0.5
        text = f'{{"plan": "{said.plan}", "keystrokes": "{said.keys}"}}'.replace("\n", "\\n")
        pieces = tuple(_PIECES.findall(text))
        record = sample_record(trial, pieces, turn=number, prompt_text=PROMPT)
        write_answer(self._writer, record, text=text, prompt_tokens=3)
        keys = (AgentCommand(keystrokes=said.keys, duration_sec=0.1),) if said.keys else ()
        write(
            turn_parsed(
                trial,
                turn=number,
                analysis="A prompt and two names.",
                plan=said.plan if self._plans else "",
                commands=keys,
                task_complete=said.done,
            )
        )
        write(TurnObserved(trial=trial, turn=number, observation=said.answer, seconds=0.1))

    def _score(self, task: str, members: tuple[Member, ...]) -> None:
        rewards = [m.reward for m in members if m.reward is not None and not m.excluded]
        baseline = sum(rewards) / len(rewards)
        scores = {
            f"{task}-{number}": TrialScore(
                reward=member.reward,
                advantage=None
                if member.reward is None or member.excluded
                else member.reward - baseline,
                tokens=member.tokens,
                segments=2 if member.tokens > 300 else 1,
            )
            for number, member in enumerate(members, start=1)
        }
        self._writer.append(group_scored(f"g-{task}", scores, task=task, baseline=baseline))


def _started(normalizer: str) -> RunStarted:
    return run_started(
        run="parting",
        tasks_dir="/tasks/starter",
        tasks=tuple(
            TaskRecord(name=name, kind=name.split("-")[0], difficulty=None, split="train")
            for name in GROUPS
        ),
        settings={"max_steps": 2, "loss_normalizer": normalizer},
    )
