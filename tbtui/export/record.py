"""All that is recorded of one trial."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass

from tbtui.errors import UserError
from tbtui.journal.database import JournalError
from tbtui.journal.events import GroupScored, RunStarted, TrialQueued, TrialRelabelled
from tbtui.journal.reader import JournalReader
from tbtui.journal.rundir import RunDirectory
from tbtui.journal.samples import SampleRecord
from tbtui.ui.stories import instruction_file
from tbtui.view.prompt import instruction_in
from tbtui.view.story import Story, tell
from tbtui.view.transcript import Transcript, TurnView


@dataclass(frozen=True, slots=True)
class CallRecord:
    """One model call, with its tokens where the journal has them."""

    turn: TurnView
    sample: SampleRecord | None


@dataclass(frozen=True, slots=True)
class TrialRecord:
    run: RunDirectory
    started: RunStarted | None
    queued: TrialQueued
    queued_at: float
    """Seconds since the epoch."""
    calls: tuple[CallRecord, ...]
    transcript: Transcript
    advantage: float | None
    """None: not scored, or it has no part in training."""
    relabelled: TrialRelabelled | None
    """The last change of its reward by a person or rule."""
    instruction: str = ""
    """What the task asks; empty: neither the journal nor the task's directory has it."""

    @property
    def reward(self) -> float | None:
        """The reward in force: another than its verdict led to, if a person or rule gave it one."""
        if self.relabelled is not None:
            return self.relabelled.reward
        finished = self.transcript.finished
        return None if finished is None else finished.reward

    @property
    def story(self) -> Story:
        """What it tried, where it turned, why it ended."""
        return tell(self.transcript, self.instruction)

    @property
    def trial(self) -> str:
        return self.queued.trial

    @property
    def model_name(self) -> str:
        return self.started.model_name if self.started is not None else ""


def read_trial(
    run: RunDirectory, trial: str, advantages: Mapping[str, float | None] | None = None
) -> TrialRecord:
    """Read a trial from the journal of its run, which may still be growing.

    Args:
        advantages: `read_advantages` of the run, for a caller that reads many; else they are read.

    Raises:
        UserError: the journal doesn't know the trial.
        JournalError: the journal can't be read.
    """
    with closing(JournalReader(run)) as reader:
        entries = reader.read_trial(trial)
        queued = next(
            ((e.event, e.time) for e in entries if isinstance(e.event, TrialQueued)), None
        )
        if queued is None:
            raise UserError(f"{trial}: no such trial in {run.name}")
        transcript = Transcript()
        transcript.apply(entries)
        relabelled = [e.event for e in entries if isinstance(e.event, TrialRelabelled)]
        calls = _calls(transcript, reader)
        prompt = reader.first_prompt(trial)
        started = next(
            (e.event for e in reader.read_kinds(["run_started"], 0, 1)),
            None,
        )
    if advantages is None:
        advantages = read_advantages(run)
    assert started is None or isinstance(started, RunStarted)
    last = relabelled[-1] if relabelled else None
    advantage = advantages.get(trial)
    instruction = instruction_in(prompt)
    if not instruction and started is not None:
        instruction = instruction_file(started.tasks_dir, queued[0].task)
    return TrialRecord(run, started, *queued, calls, transcript, advantage, last, instruction)


def read_advantages(run: RunDirectory) -> dict[str, float | None]:
    """The advantage of every scored trial, by its name.

    Raises:
        JournalError: the journal can't be read.
    """
    found: dict[str, float | None] = {}
    after = 0
    with closing(JournalReader(run)) as reader:
        while entries := reader.read_kinds(["group_scored"], after):
            after = entries[-1].seq
            for entry in entries:
                if isinstance(entry.event, GroupScored):
                    found |= {name: score.advantage for name, score in entry.event.trials.items()}
    return found


def _calls(transcript: Transcript, reader: JournalReader) -> tuple[CallRecord, ...]:
    known = [turn.sample for turn in transcript.turns if turn.sample is not None]
    samples = reader.calls_until(max(known)) if known else []
    # Both are in the order of the calls.
    by_id = dict(zip(sorted(known), samples, strict=True)) if len(known) == len(samples) else {}
    if known and not by_id:
        by_id = {each: _call(each, reader) for each in known}
    return tuple(
        CallRecord(turn, None if turn.sample is None else by_id[turn.sample])
        for turn in transcript.turns
    )


def _call(sample: int, reader: JournalReader) -> SampleRecord:
    if calls := reader.calls_until(sample):
        return calls[-1]
    raise JournalError(f"{reader.run.database}: can't be read (model call {sample} is not there)")
