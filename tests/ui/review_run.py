"""A step of five groups that waits for a review, and a host that carries out the decisions on it.

What would be trained comes from the trainer's own arithmetic.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from tbtui.algorithm.advantages import advantages
from tbtui.engines.events_of import issued
from tbtui.findings import Rule
from tbtui.journal.commands import RUN, Command
from tbtui.journal.events import (
    AnyEvent,
    CommandDone,
    GroupRefilled,
    GroupScored,
    GroupUnderReview,
    Outcome,
    PhaseSeconds,
    ReviewChanged,
    ReviewClosed,
    ReviewOpened,
    RunPhase,
    RunPhaseChanged,
    RunStarted,
    StepStarted,
    Suspicion,
    TaskRecord,
    TrialExcluded,
    TrialPhase,
    TrialPhaseChanged,
    TrialRelabelled,
    TrialScore,
)
from tbtui.journal.rundir import RunDirectory
from tbtui.journal.writer import JournalWriter
from tests.events import run_started, sample_record, trial_finished, trial_queued, write_answer
from tests.ui.picture import PastHost

START = 1_750_000_000.0
STEP = 3


@dataclass
class Member:
    reward: float | None
    turns: int
    tokens: int
    outcome: Outcome
    reason: str = ""
    suspects: dict[Rule, str] = field(default_factory=dict)
    excluded: bool = False
    relabelled: float | None = None

    @property
    def counts(self) -> float | None:
        if self.excluded:
            return None
        return self.reward if self.relabelled is None else self.relabelled


def _rules(suspects: dict[str, str]) -> dict[Rule, str]:
    return {Rule(name): why for name, why in suspects.items()}


def solved(turns: int, tokens: int, **suspects: str) -> Member:
    return Member(1.0, turns, tokens, Outcome.SOLVED, "the verifier passed it", _rules(suspects))


def failed(turns: int, tokens: int, **suspects: str) -> Member:
    return Member(0.0, turns, tokens, Outcome.FAILED, "the verifier failed it", _rules(suspects))


def members() -> dict[str, list[Member]]:
    """By task: the first three have something odd about them, the others haven't."""
    lost = Member(None, 3, 90, Outcome.SANDBOX_LOST, "worker 1 was killed (signal 9)")
    return {
        "copy-03": [
            *(solved(5, 310), failed(6, 402), solved(6, 350)),
            solved(1, 44, few_turns="solved in 1 turn; the 4 others that solved it needed 5 to 7"),
            *(lost, failed(7, 512), solved(5, 298)),
            failed(
                *(4, 233),
                flaky_verdict="copy-03/7 said the same, token for token, and got 1.0",
                infrastructure_zero="the verifier wrote: Could not resolve host: pypi.org",
            ),
        ],
        "count-lines-of-a-log-01": [
            *(solved(4, 210) for _ in range(6)),
            solved(4, 208, tests_touched="its commands name /tests/test_outputs.py"),
            failed(9, 700),
        ],
        "nested-02": [
            *(failed(8, 600) for _ in range(6)),
            *(failed(2, 90), failed(8, 640)),
        ],
        "move-05": [
            *(solved(3, 120 + 7 * n) for n in range(3)),
            *(failed(5, 240 + 9 * n) for n in range(5)),
        ],
        "remove-04": [
            Member(None, 2, 60, Outcome.SETUP_ERROR, "the image could not be built")
            for _ in range(7)
        ]
        + [solved(3, 100)],
    }


class ReviewedRun:
    """Its journal, up to the review and on."""

    def __init__(
        self,
        path: Path,
        *,
        timeout: float | None = None,
        settings: Mapping[str, object] | None = None,
        opened: bool = True,
    ) -> None:
        self.run = RunDirectory.create(path)
        self.now = START
        self.step_members = members()
        self.decided: set[str] = set()
        self.closed = False
        self._writer = JournalWriter(self.run, clock=lambda: self.now)
        self._begin({"review": "suspects", **(settings or {})})
        if opened:
            self.open(timeout)

    def write(self, event: AnyEvent) -> None:
        self._writer.append(event)

    def close(self) -> None:
        self._writer.close()

    def open(self, timeout: float | None = None) -> None:
        self.write(
            ReviewOpened(
                step=STEP, groups=self.groups(), undecided=self.undecided(), timeout_sec=timeout
            )
        )
        self.write(RunPhaseChanged(phase=RunPhase.REVIEWING, step=STEP - 1))

    def _begin(self, settings: dict[str, object]) -> None:
        self.write(_started(settings, list(self.step_members)))
        self.write(
            StepStarted(step=STEP, groups={f"s3-{task}": task for task in self.step_members})
        )
        self.write(RunPhaseChanged(phase=RunPhase.SAMPLING, step=STEP - 1))
        for task, group in self.step_members.items():
            for number, member in enumerate(group, start=1):
                self._attempt(task, number, member)

    def _attempt(self, task: str, number: int, member: Member) -> None:
        self.queue(task, number)
        trial = f"{task}-{number}"
        self.now += 0.1
        for turn in range(1, member.turns + 1):
            record = sample_record(trial, turn=turn, weights_version=STEP - 1)
            tokens = {"prompt_tokens": 3, "completion_tokens": member.tokens // member.turns}
            write_answer(self._writer, record, text="ls", **tokens)
        self.write(
            trial_finished(
                trial,
                member.reward,
                outcome=member.outcome,
                reason=member.reason,
                turns=member.turns,
                seconds=PhaseSeconds(sampling=1.0),
            )
        )

    def queue(self, task: str, number: int) -> None:
        trial = f"{task}-{number}"
        self.write(
            trial_queued(trial, label=f"{task}/{number}", task=task, group=f"s3-{task}", step=STEP)
        )
        self.write(TrialPhaseChanged(trial=trial, phase=TrialPhase.MODEL))

    # What would be trained

    def groups(self) -> tuple[GroupUnderReview, ...]:
        tasks = list(self.step_members.items())
        results = advantages([[m.counts for m in group] for _, group in tasks], "centred", 2)
        return tuple(
            GroupUnderReview(
                group=f"s3-{task}",
                task=task,
                disposition=result.disposition,
                baseline=result.baseline,
                trials={
                    f"{task}-{number}": TrialScore(
                        reward=member.reward if member.relabelled is None else member.relabelled,
                        advantage=advantage,
                        tokens=member.tokens,
                    )
                    for number, (member, advantage) in enumerate(
                        zip(group, result.advantages, strict=True), start=1
                    )
                },
                suspects={
                    f"{task}-{number}": tuple(
                        Suspicion(suspect=name, why=why) for name, why in member.suspects.items()
                    )
                    for number, member in enumerate(group, start=1)
                    if member.suspects
                },
            )
            for (task, group), result in zip(tasks, results, strict=True)
        )

    def undecided(self) -> tuple[str, ...]:
        return tuple(
            trial
            for task, group in self.step_members.items()
            for number, member in enumerate(group, start=1)
            if member.suspects and (trial := f"{task}-{number}") not in self.decided
        )

    # What is decided

    def command(self, command: Command) -> None:
        self.now += 0.5
        self.write(issued(command))
        result = self._obey(command)
        self.write(CommandDone(command=command.id, ok=True, result=result))

    def _obey(self, command: Command) -> str:
        if command.target == RUN:
            self.closed = True
            for group in self.groups():
                scored = msgspec.structs.asdict(group)
                del scored["suspects"]
                self.write(GroupScored(step=STEP, **scored))
            self.write(ReviewClosed(step=STEP, how="accepted", actor=command.actor))
            self.write(RunPhaseChanged(phase=RunPhase.TRAINING, step=STEP - 1))
            return f"step {STEP} goes on"
        if command.verb == "refill":
            task = command.target.removeprefix("s3-")
            fresh = len(self.step_members[task]) + 1
            self.write(GroupRefilled(step=STEP, group=command.target, trials=(f"{task}-{fresh}",)))
            self.queue(task, fresh)
            self._changed()
            return f"{task}: 1 fresh trial"
        task, _, number = command.target.rpartition("-")
        member = self.step_members[task][int(number) - 1]
        self.decided.add(command.target)
        if command.verb in ("exclude", "include"):
            member.excluded = command.verb == "exclude"
            self.write(
                TrialExcluded(trial=command.target, excluded=member.excluded, reason=command.reason)
            )
        elif command.verb == "relabel":
            before, reward = member.counts, command.arguments["reward"]
            assert reward is None or math.isfinite(reward)
            member.relabelled = reward
            self.write(
                TrialRelabelled(
                    trial=command.target,
                    reward=member.counts,
                    before=before,
                    reason=command.reason,
                    taken_back=reward is None,
                )
            )
        self._changed()
        return f"{task}/{number}: {command.verb} done"

    def _changed(self) -> None:
        self.write(ReviewChanged(step=STEP, groups=self.groups(), undecided=self.undecided()))


class ReviewHost(PastHost):
    """A run that waits for a review and does what is decided."""

    def __init__(self, reviewed: ReviewedRun) -> None:
        super().__init__(reviewed.run)
        self.reviewed = reviewed

    def submit(self, command: Command) -> None:
        super().submit(command)
        self.reviewed.command(command)


def _started(settings: dict[str, object], tasks: list[str]) -> RunStarted:
    return run_started(
        run="reviewed",
        tasks_dir="/tasks/starter",
        tasks=tuple(
            TaskRecord(name=name, kind=name.split("-")[0], difficulty=None, split="train")
            for name in tasks
        ),
        settings={"max_steps": 10, "loss_normalizer": "token", "group_size": 8, **settings},
    )
