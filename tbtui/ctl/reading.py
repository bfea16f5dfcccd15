"""A run as its journal tells it now, and as rows with plain values, for JSON and for tables.

No row has what the model or a task's programs wrote, but for what `content` asks for.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import msgspec

from tbtui.command_line import say
from tbtui.journal.database import JournalError
from tbtui.journal.events import Entry, GroupUnderReview, fields_of
from tbtui.journal.reader import JournalReader
from tbtui.journal.rundir import RunDirectory, writer
from tbtui.view.curriculum import no_signal, wish
from tbtui.view.prompt import asks, instruction_in
from tbtui.view.reading import state_at_end
from tbtui.view.runs import RunSummary
from tbtui.view.server import PolicyView
from tbtui.view.state import ReviewView, RunState, TaskView, TrialView
from tbtui.view.story import tell
from tbtui.view.transcript import Transcript
from tbtui.view.waiting import doing, duration, retry_wait

Row = dict[str, Any]

CONTENT = frozenset(
    {
        "text",
        "thinking",
        "analysis",
        "plan",
        "commands",
        "error",
        "warning",
        "observation",
        "reason",
        "verifier_output",
        "keys",
    }
)
"""Fields of a trial's events that hold, or quote, what the model or a program wrote."""

GROUP_COLUMNS = ("step", "group", "would be", "rewards", "suspects (* undecided), others")


@dataclass(frozen=True, slots=True)
class RunReading:
    directory: RunDirectory
    reader: JournalReader
    state: RunState
    pid: int | None
    """The process that runs it; None: it is over, or was killed."""
    now: float
    """Seconds since the epoch; of a run that is over, its end."""

    @property
    def live(self) -> bool:
        return self.pid is not None

    @property
    def status(self) -> str:
        """`live`, `paused`, or how it ended; `killed` where it could not say so."""
        if self.live:
            return "paused" if self.state.paused else "live"
        return self.state.status or "killed"


@contextlib.contextmanager
def read_run(directory: RunDirectory) -> Iterator[RunReading]:
    """Read a run up to now. Raises `JournalError` and `RunDirectoryError`."""
    pid = writer(directory)
    with closing(JournalReader(directory, lenient=True)) as reader:
        state = state_at_end(reader)
        if reader.trouble:
            say(reader.trouble)
        now = time.time() if pid is not None else state.finished_at or state.time
        yield RunReading(directory, reader, state, pid, now)


def without_content(run: RunSummary) -> RunSummary:
    """The run's row without why it failed, which may quote what failed in it."""
    return msgspec.structs.replace(run, reason="") if run.status == "failed" else run


def trial_row(trial: TrialView, run: RunReading, *, content: bool = False) -> Row:
    """`for_sec`: how long it does what it does; `idle_sec`: since it was last heard of, in the
    journal or on its terminal."""
    now = run.now
    row: Row = {
        "trial": trial.trial,
        "label": trial.label,
        "task": trial.task,
        "group": trial.group,
        "step": trial.step,
        "purpose": trial.purpose,
        "attempt": trial.attempt,
        "doing": retry_wait(trial, now) or doing(trial),
        "phase": str(trial.phase),
        "turn": trial.turn,
        "for_sec": _span(trial.phase_since, now) if trial.live else None,
        "idle_sec": _idle(trial, run) if trial.live else None,
        "paused": trial.hold.paused,
        "frozen": trial.hold.frozen,
        "pending": trial.pending or None,
        "outcome": None if trial.outcome is None else str(trial.outcome),
        "reward": trial.reward,
        "excluded": trial.excluded,
        "relabelled": trial.relabelled,
        "successor": trial.successor,
    }
    if content:
        row |= {
            "reason": trial.reason,
            "last_text": trial.last_text,
            "last_command": trial.last_command,
            **_content(trial, run),
        }
    return row


def _content(trial: TrialView, run: RunReading) -> Row:
    """What the trial's task asks, in one line, and the trial's story."""
    instruction = ""
    with contextlib.suppress(JournalError):  # a corrupt model call: the rest is sound
        instruction = instruction_in(run.reader.first_prompt(trial.trial))
    transcript = Transcript()
    transcript.apply(run.reader.read_trial(trial.trial))
    return {"asks": asks(instruction), "story": tell(transcript, instruction).line}


def _idle(trial: TrialView, run: RunReading) -> float | None:
    heard = run.reader.last_time(trial.trial)
    with contextlib.suppress(OSError):  # it has no terminal yet
        heard = max(heard or 0.0, run.directory.recording(trial.trial).stat().st_mtime)
    return None if heard is None else _span(heard, run.now)


def _span(since: float, until: float) -> float:
    """Seconds between two times; none where the machine's clock was set back in between."""
    return round(max(0.0, until - since), 1)


def task_row(task: TaskView, state: RunState, share: float | None) -> Row:
    """`share`: its chance to be the next one drawn; None: it is never."""
    belief, train = task.belief, task.split == "train"
    return {
        "task": task.name,
        "kind": task.kind,
        "difficulty": task.difficulty,
        "split": task.split,
        "pass_rate": None if task.pass_rate is None else round(task.pass_rate, 3),
        "recent_rate": None if task.recent_rate is None else round(task.recent_rate, 3),
        "scored": task.scored,
        "unscored": task.unscored,
        "live": task.live,
        "wanted": wish(task) or None,
        "weight": task.factor if train else None,
        "pinned": task.pinned,
        "share": None if share is None else round(share, 4),
        "p": None if belief is None else round(belief.pass_rate, 3),
        "p_low": None if belief is None else round(belief.low, 3),
        "p_high": None if belief is None else round(belief.high, 3),
        "no_signal": no_signal([task], state) if train else None,
    }


def policy_row(state: RunState, now: float) -> Row:
    row: Row = {
        "policy": state.policy,
        "model": state.model_name,
        "parameters": state.parameters,
        "weights_version": state.weights_version,
        "lost": None if state.policy_lost is None else state.policy_lost.reason,
    }
    return row | (_measured(state.policy_now, now) if state.policy_now is not None else {})


def _measured(policy: PolicyView, now: float) -> Row:
    rate, server = policy.tokens_per_sec(now), policy.server
    row: Row = {
        "activity": policy.activity,
        "in_flight": policy.in_flight,
        "running": policy.running,
        "completed": policy.completed,
        "p50_sec": policy.p50_sec,
        "p95_sec": policy.p95_sec,
        "tokens_per_sec": None if rate is None else round(rate, 1),
    }
    if server is not None:
        row |= {
            "server": server.words,
            "server_reason": server.reason,
            "server_for_sec": _span(server.since, now),
            "server_retries": server.retries,
        }
    return row


def event_row(entry: Entry, *, content: bool = False) -> Row:
    """An event of a trial; what is withheld of it is named."""
    fields = fields_of(entry.event)
    row: Row = {"seq": entry.seq, "time": entry.time, **fields}
    withheld = [name for name in fields if name in CONTENT and fields[name]]
    if content or not withheld:
        return row
    return {name: value for name, value in row.items() if name not in withheld} | {
        "withheld": withheld
    }


def review_row(review: ReviewView, now: float, *, content: bool = False) -> Row:
    """Why a trial is suspicious quotes commands and verifiers: only with `content`."""
    left = review.left(now)
    return {
        "step": review.step,
        "for_sec": _span(review.since, now),
        "closes_in_sec": None if left is None else round(left, 1),
        "undecided": list(review.undecided),
        "groups": [_group_row(group, content=content) for group in review.groups],
    }


def _group_row(group: GroupUnderReview, *, content: bool) -> Row:
    trials: dict[str, Row] = {}
    for trial, score in group.trials.items():
        found = group.suspects.get(trial, ())
        trials[trial] = {
            "reward": score.reward,
            "advantage": score.advantage,
            "tokens": score.tokens,
            "suspects": [str(each.suspect) for each in found],
        }
        if content:
            trials[trial]["why"] = [each.why for each in found]
    return {
        "group": group.group,
        "task": group.task,
        "disposition": group.disposition,
        "baseline": group.baseline,
        "trials": trials,
    }


def review_words(row: Row) -> str:
    """`step 3, 2 of 32 trials undecided (tbtui ctl group list)`."""
    trials = sum(len(group["trials"]) for group in row["groups"])
    closes = row["closes_in_sec"]
    ends = "" if closes is None else f", closes in {duration(max(0.0, closes))}"
    undecided = len(row["undecided"])
    return f"step {row['step']}, {undecided} of {trials} trials undecided{ends}"


def group_cells(review: Row) -> list[list[str]]:
    """A line for each group of a review."""
    return [
        [
            str(review["step"]),
            group["group"],
            group["disposition"],
            " ".join(_reward(trial["reward"]) for trial in group["trials"].values()),
            "; ".join(_doubts(group["trials"], review["undecided"])),
        ]
        for group in review["groups"]
    ]


def _doubts(trials: dict[str, Row], undecided: list[str]) -> Iterator[str]:
    """Each suspect, and how many more nobody has decided upon."""
    for name, trial in trials.items():
        if trial["suspects"]:
            words = [suspect.replace("_", " ") for suspect in trial["suspects"]]
            yield f"{name}{'*' * (name in undecided)} {', '.join(trial.get('why') or words)}"
    plain = [name for name in trials if name in undecided and not trials[name]["suspects"]]
    if plain:
        yield f"{len(plain)} undecided"


def _reward(reward: float | None) -> str:
    return "-" if reward is None else f"{reward:g}"
