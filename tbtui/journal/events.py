"""The vocabulary of a run: every event that the engine writes and every view reads.

Events are facts in the past tense, frozen, and complete in themselves: a view needs nothing but
the events before them. Times are not in the events: the journal stamps each one. Large things
(tokens, terminal output) are stored once elsewhere in the run directory and referred to.

A long module because it is one table of declarations, so that every event has the same place.
"""

from __future__ import annotations

import math
import numbers
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import PurePath
from types import MappingProxyType
from typing import Any, ClassVar, Literal, get_args

import msgspec
import msgspec.inspect

from tbtui.findings import Rule, Unusable, UnusableKind
from tbtui.journal.commands import Typed
from tbtui.outcomes import Outcome as Outcome
from tbtui.server_status import ServerStatus
from tbtui.vocabulary import BudgetUnit, TaskSampling, is_reward
from tbtui.vocabulary import CommandVerb as CommandVerb
from tbtui.vocabulary import Disposition as Disposition
from tbtui.vocabulary import OutageKind as OutageKind
from tbtui.vocabulary import Purpose as Purpose
from tbtui.vocabulary import RunPhase as RunPhase
from tbtui.vocabulary import TrialPhase as TrialPhase

RunStatus = Literal["finished", "failed", "interrupted"]


def _kind(name: str) -> str:
    """`RunStarted` -> `run_started`."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


class Event(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    tag_field="kind",
    tag=_kind,
):
    """Base of all events. Types are checked when one is read, not when one is made."""

    kind: ClassVar[str]
    """The class, as journals name it."""

    def __init_subclass__(cls) -> None:
        cls.kind = _kind(cls.__name__)


class TrialEvent(Event, frozen=True, kw_only=True):
    """An event of one trial."""

    trial: str
    """Unique in the run; also the name of the trial's directory under `trials/`."""


def _possible(reward: float | None) -> float | None:
    """A reward as it can be trained on: an older journal may hold one that can't."""
    return reward if reward is not None and is_reward(reward) else None


class TaskRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A task as the run knows it."""

    name: str
    kind: str | None = None
    category: str | None = None
    difficulty: str | None = None
    split: Purpose
    dataset: str = ""
    """The data set that it is of; empty where the run has one."""


class RunStarted(Event, frozen=True, kw_only=True):
    run: str
    pid: int
    host: str
    tbtui_version: str
    harbor_version: str
    policy: str
    model_name: str
    parameters: int | None
    context_limit: int
    environment: str
    environment_reason: str
    tasks_dir: str
    tasks: tuple[TaskRecord, ...]
    settings: dict[str, Any]
    """Every setting in force, by name."""


class RunContinued(Event, frozen=True, kw_only=True):
    """A run that had ended, or was killed, goes on from a checkpoint.

    Steps whose weights were lost with the process are trained again on the rollouts that the
    journal has of them, so that no finished trial is lost and none counts twice.
    """

    pid: int
    host: str
    tbtui_version: str
    harbor_version: str
    checkpoint: str | None
    """Relative to the run directory; None: from the start."""
    step: int
    """The checkpoint's."""
    replayed: tuple[int, ...]
    """Steps after it that are trained again."""
    reused: int
    """Finished trials of steps and evaluations that had not finished."""
    requeued: tuple[str, ...]
    """Trials that were under way, and start again."""
    settings: dict[str, Any]
    """Every setting in force from here on."""


class RunPhaseChanged(Event, frozen=True, kw_only=True):
    phase: RunPhase
    step: int
    """Optimiser steps done so far."""
    detail: str = ""


class RunPaused(Event, frozen=True, kw_only=True):
    reason: str = ""
    """Why it waits, where an outage or an alarm paused it and no person: of an outage the way on
    included."""


class RunResumed(Event, frozen=True, kw_only=True):
    """The paused run goes on."""


class RunFinished(Event, frozen=True, kw_only=True):
    status: RunStatus
    reason: str


class StepStarted(Event, frozen=True, kw_only=True):
    """A batch of groups begins. `step` counts from 1."""

    step: int
    groups: dict[str, str]
    """Group id -> task name."""


class TaskBelief(msgspec.Struct, frozen=True, kw_only=True):
    """What is believed of a task's pass rate in training (`algorithm/curriculum.py`)."""

    pass_rate: float
    """Its mean."""
    low: float
    high: float
    """Its central 95%."""
    learnability: float
    """Expected p(1-p)."""
    no_signal: float
    """Expected share of groups whose rewards are all equal."""


class TasksJudged(Event, frozen=True, kw_only=True):
    """What is believed of tasks after a step: of those that it has trained on, and of others of
    which the belief has faded noticeably."""

    step: int
    tasks: dict[str, TaskBelief]
    unseen: TaskBelief
    """What is believed of a task without any group."""


class DrawnTask(msgspec.Struct, frozen=True, kw_only=True):
    """A group's task, and what was believed of it when it was drawn."""

    task: str
    why: Literal["weight", "floor", "untried", "pinned"]
    share: float
    """Its chance to be the next one to be drawn."""
    belief: TaskBelief


class TasksDrawn(Event, frozen=True, kw_only=True):
    """The tasks of groups were drawn by their weights; without this event, in the seed's order."""

    step: int
    sampling: TaskSampling
    groups: dict[str, DrawnTask]


class TasksWeighted(Event, frozen=True, kw_only=True):
    """Somebody has said how often these tasks are to be drawn from the next batch on."""

    tasks: tuple[str, ...]
    factor: float
    """Multiplies their weights; 0: they are muted."""
    pinned: bool
    """They are in every batch."""
    actor: str
    reason: str = ""


class EvalStarted(Event, frozen=True, kw_only=True):
    step: int
    tasks: int
    trials: int
    temperature: float


class TrialQueued(TrialEvent, frozen=True, kw_only=True):
    """An attempt at a task enters the queue."""

    label: str
    """Short, for the screen: `copy-03/2`."""
    task: str
    group: str
    step: int
    purpose: Purpose
    attempt: int = 1
    budget_sec: float | None
    """Active time that the agent has; pauses don't count. None: there is no limit."""
    parent: str = ""
    """The trial that it forks, of this run or, by `ForksStarted`, of another; empty: none."""
    fork_turn: int = 0
    """Its first own turn; those before are its parent's."""


class TrialForked(TrialEvent, frozen=True, kw_only=True):
    """A fork stands where it begins, or could not get there."""

    way: Literal["start", "snapshot", "replay"]
    """There was nothing to reach; a snapshot was restored; recorded keys were typed again, be it
    after a snapshot of an earlier turn."""
    snapshot_turn: int | None = None
    """The turn whose snapshot was restored: the state just before it."""
    replayed: int = 0
    """Turns whose keys were typed again."""
    parted: tuple[int, ...] = ()
    """Turns after which the screen was not the recorded one; 0: before the first."""
    difference: str = ""
    """What differs after the first of these."""
    lost: tuple[str, ...] = ()
    """Processes that ran when the snapshot was taken, and don't now."""
    seconds: float = 0.0


class SnapshotKept(TrialEvent, frozen=True, kw_only=True):
    """The sandbox's state just before a turn is kept, or could not be."""

    turn: int
    written: int = 0
    """Bytes that it takes on the host."""
    total: int = 0
    """Bytes of all files in it."""
    programs: tuple[str, ...] = ()
    """What ran beside the terminal and its shell, and is lost in what begins from it."""
    not_at_prompt: str = ""
    """Why the shell can't be restored from it; empty: it can."""
    seconds: float = 0.0
    removed: tuple[int, ...] = ()
    """Turns whose snapshots made room for it."""
    error: str = ""
    """Why there is none."""


class ForksStarted(Event, frozen=True, kw_only=True):
    """A group of forks begins: trials that share the turns before `turn` with their parent."""

    group: str
    task: str
    step: int
    parent: str
    parent_run: str = ""
    """The run that the parent is of; empty: this one."""
    turn: int
    trials: int
    temperature: float
    go_on: bool = False
    """They go on where a screen differs from the recorded one."""
    search: str = ""
    """`bisect` or `all`: they are one of several groups that measure the values of turns."""


class TurnValue(msgspec.Struct, frozen=True, kw_only=True):
    """How many of the forks whose first own turn is `turn` solved the task."""

    turn: int
    passed: int
    scored: int
    low: float = 0.0
    high: float = 1.0
    """95% interval (Wilson's) of the chance that the task is solved from here."""


class TurnsValued(Event, frozen=True, kw_only=True):
    """The values of a trial's turns are measured, as far as they were asked for."""

    parent: str
    parent_run: str = ""
    """The run that the trial is of; empty: this one."""
    search: str
    trials: int
    """Forks from each turn."""
    temperature: float
    go_on: bool = False
    turns: int
    """How many the trial has."""
    solved: bool
    """Whether the trial itself was."""
    values: tuple[TurnValue, ...] = ()
    turning_point: int = 0
    """The turn with the largest change of the value from before it to after it; 0: none."""


class TrialPhaseChanged(TrialEvent, frozen=True, kw_only=True):
    phase: TrialPhase
    detail: str = ""


class TurnStarted(TrialEvent, frozen=True, kw_only=True):
    """The agent asks the policy what to do. Turns count from 1."""

    turn: int
    purpose: str = "turn"
    """Else what this call in between is for: a step of summarising the history after `turn`."""
    prompt: str = ""
    """What is new in its prompt, as text; empty where that is not known yet."""


class TurnWriting(TrialEvent, frozen=True, kw_only=True):
    """The policy has drawn more of its answer, which comes whole with `TurnSampled`."""

    turn: int
    before: int
    """Tokens drawn before these; 0: the answer begins anew."""
    tokens: int
    text: str


class ToolUse(msgspec.Struct, frozen=True, kw_only=True):
    """A call of one of the agent's tools by the policy."""

    id: str
    name: str
    arguments: str
    """A JSON object, as text."""


class TurnSampled(TrialEvent, frozen=True, kw_only=True):
    """The policy answered. Token ids, log-probabilities and pieces are in the samples table."""

    turn: int
    purpose: str = "turn"
    """As in `TurnStarted`."""
    sample: int | None
    """None: only the trainer has the tokens; they come with `TrialTraced`, or never."""
    text: str
    """What the agent reads."""
    thinking: str = ""
    """What came before it."""
    tool_calls: tuple[ToolUse, ...] = ()
    malformed: str = ""
    """What looked like tool calls and can't be read; `text` has it too."""
    cut_tokens: int = 0
    """How many tokens came after a stop text, or after the one tool call that was wanted: they are
    no part of the sample."""
    prompt_tokens: int
    completion_tokens: int
    mean_logprob: float | None
    """None where `sample` is, like all that comes of tokens, or where the server gives none."""
    min_logprob: float | None
    stop_reason: Literal["stop", "length"]
    weights_version: int | None
    cached_tokens: int | None = None
    """Prompt tokens in the sampler's cache; None where it doesn't report them."""
    seconds: float


class TurnAbandoned(TrialEvent, frozen=True, kw_only=True):
    """The agent didn't wait for the answer of this turn, or didn't take it."""

    turn: int


class SideCall(TrialEvent, frozen=True, kw_only=True):
    """The call of this turn has no tools, beside a conversation that has them: it asks for a title,
    a summary, a check."""

    turn: int


class AgentCommand(msgspec.Struct, frozen=True, kw_only=True):
    keystrokes: str
    duration_sec: float


class TurnParsed(TrialEvent, frozen=True, kw_only=True):
    """What Terminus-2 understood of the completion."""

    turn: int
    analysis: str
    plan: str
    commands: tuple[AgentCommand, ...]
    task_complete: bool
    error: str | None = None
    """What the parser could not read; the agent sees it and tries again."""
    warning: str | None = None


class TurnObserved(TrialEvent, frozen=True, kw_only=True):
    """The terminal answered; this text opens the next prompt."""

    turn: int
    observation: str
    seconds: float


class PhaseSeconds(msgspec.Struct, frozen=True, kw_only=True):
    """Where a trial's wall time went, in seconds."""

    queue: float = 0.0
    build: float = 0.0
    """Building the image and starting the sandbox."""
    setup: float = 0.0
    """Installing the agent and its terminal."""
    sampling: float = 0.0
    commands: float = 0.0
    delayed: float = 0.0
    """Its model's answer was held back: by a pace, or while the server could not answer."""
    paused: float = 0.0
    """Somebody paused it, or the run."""
    verifying: float = 0.0
    teardown: float = 0.0

    @property
    def total(self) -> float:
        return sum(self.by_phase().values())

    @property
    def active(self) -> float:
        """All in which it was neither queued, delayed nor paused."""
        return (
            self.build + self.setup + self.sampling + self.commands + self.verifying + self.teardown
        )

    def by_phase(self) -> dict[str, float]:
        return msgspec.structs.asdict(self)

    def __add__(self, other: PhaseSeconds) -> PhaseSeconds:
        mine, theirs = msgspec.structs.astuple(self), msgspec.structs.astuple(other)
        sums = map(sum, zip(mine, theirs, strict=True))
        return PhaseSeconds(**dict(zip(self.__struct_fields__, sums, strict=True)))


class TrialFinished(TrialEvent, frozen=True, kw_only=True):
    outcome: Outcome
    reason: str
    """One line: why this outcome."""
    verdict: float | None
    """What the verifier said, untouched; None when it never spoke."""
    reward: float | None
    """What training may use; None is *no reward*, never zero."""
    earned: float | None = None
    """What the verdict would be worth to the policy, whatever a person did in the trial: no more
    than 0 where the end was not clean. None where there is none, and in older journals."""
    turns: int
    seconds: PhaseSeconds
    ended_at: float = 0.0
    """In seconds since the epoch; 0 in older journals."""
    verifier_output: str = ""

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "reward", _possible(self.reward))


class CallTraced(msgspec.Struct, frozen=True, kw_only=True):
    """The tokens of one model call in figures, as in `TurnSampled`."""

    turn: int
    purpose: str = "turn"
    sample: int
    prompt_tokens: int
    completion_tokens: int
    mean_logprob: float
    min_logprob: float
    cached_tokens: int | None = None


class TrialTraced(TrialEvent, frozen=True, kw_only=True):
    """Another trainer (Prime-RL) reports the tokens of a trial whose turns are journalled."""

    group: str
    step: int
    """Whose batch it came back for."""
    weights_version: int
    calls: tuple[CallTraced, ...]
    """In the order of the trial's `TurnSampled` events; only those whose tokens it has."""


class TrialRetried(TrialEvent, frozen=True, kw_only=True):
    """`trial` is given up; `successor` takes its place in the group."""

    successor: str
    reason: str
    wait_sec: float = 0.0
    """Back-off before the successor may start."""


class CompletionRetried(TrialEvent, frozen=True, kw_only=True):
    """The policy failed to give a completion and is asked for the same one again."""

    turn: int
    tries: int
    """Failed requests so far."""
    reason: str
    wait_sec: float


class TasksSetAside(Event, frozen=True, kw_only=True):
    """Tasks that can't be used in this run's environment: no further trial of them starts."""

    tasks: dict[str, str]
    """Task -> one line that says why."""
    by: Literal["preflight", "trial"]
    """Found before the first trial, or by one."""
    kinds: dict[str, UnusableKind] = {}
    """Task -> what of it can't be used; of older journals empty."""

    @classmethod
    def of(
        cls, unusable: Mapping[str, Unusable], by: Literal["preflight", "trial"]
    ) -> TasksSetAside:
        return cls(
            tasks={task: each.text for task, each in unusable.items()},
            by=by,
            kinds={task: each.kind for task, each in unusable.items()},
        )

    @property
    def unusable(self) -> dict[str, Unusable]:
        """Task -> why it can't be used."""
        return {
            task: Unusable(self.kinds.get(task, "unknown"), text, self.by)
            for task, text in self.tasks.items()
        }


class TrialExcluded(TrialEvent, frozen=True, kw_only=True):
    """A person left the trial out of training, or (`excluded` false) took that back."""

    excluded: bool
    reason: str = ""


class GroupRefilled(Event, frozen=True, kw_only=True):
    """A group that lost members to other causes than the policy gets fresh trials."""

    step: int
    group: str
    trials: tuple[str, ...]
    """The new ones."""


class DeadlinePassed(Event, frozen=True, kw_only=True):
    """The step's trials have had their time; what is done with those that still run."""

    step: int
    action: Literal["stop", "mask"]
    trials: tuple[str, ...]


class GroupAdded(Event, frozen=True, kw_only=True):
    """A step starts a further group, in place of a constant one."""

    step: int
    group: str
    task: str
    replaces: str
    """Empty: no other one; in a run that is watched, groups become known one by one."""


class TrialScore(msgspec.Struct, frozen=True, kw_only=True):
    reward: float | None
    advantage: float | None
    """None: left out of the group and its baseline."""
    tokens: int
    """Action tokens that the trial would contribute."""
    segments: int = 1
    """Training sequences that these are in."""


class GroupScored(Event, frozen=True, kw_only=True):
    step: int
    group: str
    task: str
    disposition: Disposition
    baseline: float | None
    trials: dict[str, TrialScore]

    @property
    def rewards(self) -> list[float]:
        """Those that count in the group."""
        scores = self.trials.values()
        return [s.reward for s in scores if s.reward is not None and s.advantage is not None]


class Suspicion(msgspec.Struct, frozen=True, kw_only=True):
    suspect: Rule
    why: str
    """One line with the figures."""


class GroupUnderReview(msgspec.Struct, frozen=True, kw_only=True):
    """What a group would be trained with, if the step were accepted now."""

    group: str
    task: str
    disposition: Disposition
    baseline: float | None
    trials: dict[str, TrialScore]
    suspects: dict[str, tuple[Suspicion, ...]] = {}
    """Trial -> what is odd about it, decided upon or not."""


class ReviewOpened(Event, frozen=True, kw_only=True):
    """A step's trials are over; it is trained once a person accepts it."""

    step: int
    groups: tuple[GroupUnderReview, ...]
    """In the order in which they are trained on."""
    undecided: tuple[str, ...] = ()
    """Trials that it waits for: no rule has decided upon them."""
    timeout_sec: float | None = None
    """Seconds after which it closes by itself."""


class ReviewChanged(Event, frozen=True, kw_only=True):
    """A decision in a review: what would be trained now. Fresh trials may be under way."""

    step: int
    groups: tuple[GroupUnderReview, ...]
    undecided: tuple[str, ...] = ()


class TrialRelabelled(TrialEvent, frozen=True, kw_only=True):
    """A person or rule gave the trial another reward. The verifier's verdict stays what it was."""

    reward: float | None
    """In force from now on."""
    before: float | None
    reason: str
    taken_back: bool = False
    """It is again the reward that the verdict led to."""

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "reward", _possible(self.reward))
        msgspec.structs.force_setattr(self, "before", _possible(self.before))


class ReviewClosed(Event, frozen=True, kw_only=True):
    """The step goes on to be trained, as the last of its decisions left it."""

    step: int
    how: Literal["accepted", "rules", "timeout"]
    actor: str
    reason: str = ""


FORMER_METRICS: Mapping[str, str] = MappingProxyType({"optim/surprise": "optim/neg_logprob"})
"""Name of a step's metric in journals of earlier versions -> its name now."""


def current_metric(name: str) -> str:
    """A metric's name now, whichever version wrote it."""
    return FORMER_METRICS.get(name, name)


class StepFinished(Event, frozen=True, kw_only=True):
    step: int
    weights_version: int
    metrics: dict[str, float]

    def __post_init__(self) -> None:
        metrics = {current_metric(name): value for name, value in self.metrics.items()}
        msgspec.structs.force_setattr(self, "metrics", metrics)


class Estimate(msgspec.Struct, frozen=True, kw_only=True):
    """A rate with its 95% confidence interval."""

    value: float
    low: float
    high: float


class ProbeArm(msgspec.Struct, frozen=True, kw_only=True):
    """One way in which a probe tries its tasks."""

    agent: str
    temperature: float


class ProbeStarted(Event, frozen=True, kw_only=True):
    """A few trials of training tasks begin, with each of several agents and temperatures."""

    arms: tuple[ProbeArm, ...]
    """The first one is how the run would be."""
    tasks: tuple[str, ...]
    trials: int
    """Rounds: trials of each task in each arm."""
    budget: dict[str, float]
    """What it may spend, by `BudgetUnit`."""
    typed: tuple[str, ...]
    """The settings that were given, as a run repeats them."""
    untried: str = ""
    """An easier agent that no arm has; empty: there is none."""


class ArmMeasured(ProbeArm, frozen=True, kw_only=True):
    """What came of one arm of a probe so far."""

    trials: int
    """Ended ones. What infrastructure broke is among them, and in no rate."""
    scored: int
    broken: int
    """Trials that infrastructure broke, or that got no answer of the model's in time."""
    reason: str = ""
    """The commonest reason of trials that have no reward, or no answer."""
    answers: int
    """Model calls that were answered."""
    readable: int | None
    """Answers that the agent could read; None: it doesn't say."""
    cut: int
    """Answers that were cut off at their limit of tokens."""
    overflowed: int
    """Trials whose first prompt was too long for the context."""
    tokens: int
    """Drawn."""
    pass_at: dict[int, Estimate] = {}
    """As in `EvalFinished`."""
    signal: Estimate | None = None
    """Expected share of groups of `signal_size` trials whose rewards differ; None: no task has
    two scored trials."""
    signal_size: int = 0
    """At most the run's group_size; of larger groups at least as many have a signal."""
    trial_sec: float = 0.0
    """Mean time of a trial."""
    step_sec: float | None = None
    """How long the trials of one training step would take, at the probe's speed."""


class ProbeMeasured(Event, frozen=True, kw_only=True):
    """A round of a probe is over, with one trial of each task in each arm."""

    rounds: int
    arms: tuple[ArmMeasured, ...]
    spent: dict[str, float]
    tokens_per_sec: float | None
    """Drawn in a second, of all trials together."""
    memory_mb: float | None
    """The most that the run's processes had resident together."""
    stopped: str = ""
    """Why no further round begins; empty: one does."""


class EvalFinished(Event, frozen=True, kw_only=True):
    """Held-out tasks, attempted with the weights of `step`. Unscored trials are not counted."""

    step: int
    weights_version: int
    temperature: float
    pass_rate: float | None
    scored: int
    unscored: int
    by_kind: dict[str, float]
    by_dataset: dict[str, float] = {}
    """Empty where the run has one data set."""
    trials_by_kind: dict[str, int] = {}
    """Scored trials behind each rate of `by_kind`; empty in a journal of an earlier version."""
    trials_by_dataset: dict[str, int] = {}
    pass_at: dict[int, Estimate] = {}
    """k -> share of tasks that k attempts solve at least once; mean over tasks."""
    by_task: dict[str, float] = {}
    mean_reward: float | None = None
    """Mean over scored trials; differs from the pass rate where verifiers give partial rewards."""
    harbor_pass_rate: float | None = None
    """The pass rate if every verdict counted, however its trial ended, as Harbor counts them; None:
    the verdicts are not known."""
    unscored_tasks: int = 0
    """Tasks none of whose trials was scored: they are in no rate."""
    metrics: dict[str, float] = {}
    """What it consumed, and what the run has with it."""


class CheckpointSaved(Event, frozen=True, kw_only=True):
    step: int
    weights_version: int
    path: str
    """Relative to the run directory."""


class CheckpointRemoved(Event, frozen=True, kw_only=True):
    """A checkpoint was deleted, because it is neither one of the latest nor the best any more."""

    step: int
    path: str


class BestCheckpoint(Event, frozen=True, kw_only=True):
    """This checkpoint has the best held-out pass rate so far, and stays."""

    step: int
    path: str
    pass_rate: float


class AlarmRaised(Event, frozen=True, kw_only=True):
    """Training looks wrong, by these numbers."""

    alarm: Rule
    step: int
    text: str
    """One line: what, how much, against what."""
    numbers: dict[str, float]
    action: Literal["warn", "pause", "halt"]
    trial: str = ""
    """That raised it, where it was one alone."""


class BudgetReached(Event, frozen=True, kw_only=True):
    """So much of a budget is spent that somebody should know, or that the run ends."""

    budget: BudgetUnit
    spent: float
    limit: float
    ends: bool
    """It is all spent: the run ends after what is paid for."""


class AlertSent(Event, frozen=True, kw_only=True):
    """An alert was delivered to a person elsewhere, or could not be."""

    about: Literal["alarm", "budget", "end", "crash"]
    to: str
    """The receiver, without its secrets."""
    ok: bool
    tries: int
    error: str = ""


class CommandIssued(Event, frozen=True, kw_only=True):
    """A person or a script asked for something."""

    command: str
    verb: CommandVerb
    target: str
    """A trial's id, or `run`."""
    actor: str
    reason: str = ""
    arguments: dict[str, Any] = {}
    """What the verb needs besides."""


class CommandDone(Event, frozen=True, kw_only=True):
    command: str
    ok: bool
    result: str


class SettingsChanged(Event, frozen=True, kw_only=True):
    """From here on these settings have other values, until they change again."""

    settings: dict[str, Any]
    before: dict[str, Any]


class TrialPaused(TrialEvent, frozen=True, kw_only=True):
    """The trial is paused, and so is its time budget."""

    frozen: bool = False
    """Within a turn, with the sandbox's processes stopped; else at a turn boundary."""


class TrialResumed(TrialEvent, frozen=True, kw_only=True):
    """The trial goes on where it was paused."""


class TrialTakenOver(TrialEvent, frozen=True, kw_only=True):
    """A person types in its terminal from here on, while the trial stands at a turn boundary."""

    actor: str


class HumanTyped(TrialEvent, frozen=True, kw_only=True):
    """These keys went to its terminal. From the first one on the trial is `human_touched`."""

    actor: str
    parts: tuple[Typed, ...]
    """At most `journal.commands.MAX_TYPED_BYTES` in all."""


class HumanMessaged(TrialEvent, frozen=True, kw_only=True):
    """The agent's next prompt ends with this message. From here on it is `human_touched`."""

    actor: str
    text: str


class DemonstrationKept(TrialEvent, frozen=True, kw_only=True):
    """What was typed in it is kept as an answer that the agent could have given."""

    demonstration: str
    """Its id."""
    turn: int
    actor: str
    commands: int


class DemonstrationsTrained(Event, frozen=True, kw_only=True):
    """Demonstrations that somebody had accepted were a part of a step."""

    step: int
    demonstrations: tuple[str, ...]
    loss: float | None
    """Nats a token, before the step; None: it is no number."""
    weight: float


class TrialGivenBack(TrialEvent, frozen=True, kw_only=True):
    """Nobody types in it any more; the agent's next prompt shows the terminal as it is."""

    actor: str
    """Who had it."""


class WorkerStarted(Event, frozen=True, kw_only=True):
    worker: int
    pid: int


class WorkerLost(Event, frozen=True, kw_only=True):
    worker: int
    pid: int
    reason: str
    trials: tuple[str, ...]


class WorkerRecycled(Event, frozen=True, kw_only=True):
    """A worker left after its last trial, because it had grown old; a fresh one replaces it."""

    worker: int
    pid: int
    reason: str


class PolicyLost(Event, frozen=True, kw_only=True):
    """What was being trained is gone from its server; the run goes on from its last checkpoint."""

    step: int
    reason: str
    wait_sec: float
    """Before a new policy is made."""


class OutageBegan(Event, frozen=True, kw_only=True):
    """Something that the run can't do without is out of order; nothing is charged for it."""

    what: OutageKind
    text: str
    """One line: what is out of order, and where."""
    remedy: str
    """One line: what a person can do, and what happens by itself."""


class OutageEnded(Event, frozen=True, kw_only=True):
    what: OutageKind
    seconds: float
    text: str = ""


class PolicyMeasured(Event, frozen=True, kw_only=True):
    """The policy's queue, once a second while it changes."""

    activity: str
    in_flight: int
    running: int
    completed: int
    sampled_tokens: int
    p50_sec: float | None
    p95_sec: float | None
    server: ServerStatus | None = None


class ProcessMeasured(msgspec.Struct, frozen=True, kw_only=True):
    role: str
    pid: int
    rss_mb: float
    cpu: float
    """Cores in use since the last measurement; 1.0 is one core."""


class ResourcesMeasured(Event, frozen=True, kw_only=True):
    processes: tuple[ProcessMeasured, ...]
    engine_lag_ms: float
    """Worst delay of the engine's event loop since the last measurement."""


class GpuShare(msgspec.Struct, frozen=True, kw_only=True):
    """What processes of one role use of a GPU; None: the driver doesn't tell."""

    role: str
    """As in `ProcessMeasured`; `others`: processes that the run has not started."""
    memory_mib: int | None = None
    utilisation: float | None = None
    """Share of the last moments in which they computed something, from 0 to 1."""


class GpuMeasured(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU at one moment; None: it doesn't tell."""

    index: int
    name: str
    utilisation: float | None = None
    """Share of the last moments in which something was computed, from 0 to 1."""
    memory_used_mib: int | None = None
    memory_total_mib: int | None = None
    power_watt: int | None = None
    temperature_c: int | None = None
    processes: int | None = None
    """That compute on it."""
    own_processes: int | None = None
    """How many of those this run has started."""
    shares: tuple[GpuShare, ...] = ()
    """By role, where the driver knows the run's processes by the numbers that they have here."""
    problem: str = ""
    """Why it can't be measured at all."""


class GpusMeasured(Event, frozen=True, kw_only=True):
    """The GPUs of one machine, every few seconds while they change."""

    host: str
    gpus: tuple[GpuMeasured, ...]
    unreachable: str = ""
    """Why the machine can't be asked; then there are no `gpus`."""


class Noted(Event, frozen=True, kw_only=True):
    """A message for a person that is no other event."""

    level: Literal["info", "warning", "error"]
    text: str


AnyEvent = (
    RunStarted
    | RunContinued
    | RunPhaseChanged
    | RunPaused
    | RunResumed
    | RunFinished
    | StepStarted
    | TasksDrawn
    | TasksJudged
    | TasksWeighted
    | EvalStarted
    | ProbeStarted
    | ProbeMeasured
    | TrialQueued
    | TrialForked
    | SnapshotKept
    | ForksStarted
    | TurnsValued
    | TrialPhaseChanged
    | TurnStarted
    | TurnWriting
    | TurnSampled
    | TurnAbandoned
    | SideCall
    | TurnParsed
    | TurnObserved
    | TrialFinished
    | TrialTraced
    | TrialRetried
    | CompletionRetried
    | TrialExcluded
    | TasksSetAside
    | GroupRefilled
    | GroupAdded
    | DeadlinePassed
    | GroupScored
    | ReviewOpened
    | ReviewChanged
    | TrialRelabelled
    | ReviewClosed
    | StepFinished
    | EvalFinished
    | CheckpointSaved
    | CheckpointRemoved
    | BestCheckpoint
    | AlarmRaised
    | BudgetReached
    | AlertSent
    | CommandIssued
    | CommandDone
    | SettingsChanged
    | TrialPaused
    | TrialResumed
    | TrialTakenOver
    | HumanTyped
    | HumanMessaged
    | TrialGivenBack
    | DemonstrationKept
    | DemonstrationsTrained
    | WorkerStarted
    | WorkerLost
    | WorkerRecycled
    | PolicyLost
    | OutageBegan
    | OutageEnded
    | PolicyMeasured
    | ResourcesMeasured
    | GpusMeasured
    | Noted
)

EVENT_TYPES: dict[str, type[AnyEvent]] = {event.kind: event for event in get_args(AnyEvent)}
"""By their kind, as the journal names it."""


def _plain(value: object) -> object:
    """What NumPy has computed, or a path, in types that JSON has."""
    match value:
        case numbers.Integral():
            return int(value)
        case numbers.Real():
            return float(value)
        case PurePath():
            return str(value)
    raise NotImplementedError(f"no JSON for {type(value).__name__}")


_LARGEST_INTEGER = 10**4200
"""No reader takes a number of 4,300 digits or more."""
_UNREADABLE = (msgspec.DecodeError, RecursionError, TypeError, ValueError)
_ENCODER = msgspec.json.Encoder(enc_hook=_plain)


# Made at their first use: no first frame waits for all of them.
@cache
def _decoder(kind: str) -> msgspec.json.Decoder[AnyEvent]:
    return msgspec.json.Decoder(EVENT_TYPES[kind])


@cache
def _decoder_of_any() -> msgspec.json.Decoder[AnyEvent]:
    return msgspec.json.Decoder(AnyEvent)


class EventError(ValueError):
    """The text that was read is no event."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One event of the journal."""

    seq: int
    time: float
    """Seconds since the epoch."""
    event: AnyEvent


def encode(event: AnyEvent) -> str:
    """All of an event but its kind, as JSON that `decode` reads.

    What no reader could take is mended: see `fields_of`; and texts are cut where all together are
    longer than a journal's row may be.
    """
    try:
        body = _ENCODER.encode(msgspec.structs.asdict(event))
        # Read once before it is written: nothing can be looked up again.
        _decoder(event.kind).decode(body)
    except (OverflowError, *_UNREADABLE):
        body = _ENCODER.encode(_fields(event))
    if len(body) > LONGEST_BODY:
        body = _shortened(_fields(event))
    return body.decode()


def decode(kind: str, body: str | bytes) -> AnyEvent:
    """An event of a kind, as `encode` wrote it.

    Raises:
        EventError: there is no such kind, or that is no event of it.
    """
    try:
        return _decoder(kind).decode(body)
    except (KeyError, *_UNREADABLE) as error:
        raise EventError(f"no {kind}: {error}") from error


def decode_any(line: bytes) -> AnyEvent:
    """An event, as JSON of `fields_of`.

    Raises:
        EventError: it is none.
    """
    try:
        return _decoder_of_any().decode(line)
    except _UNREADABLE as error:
        raise EventError(str(error)) from error


def fields_of(event: AnyEvent) -> dict[str, Any]:
    """All of an event, its kind first, in types that JSON has, as `decode_any` reads them.

    A lone surrogate, which no reader could show, becomes a question mark. What is not a number,
    or is infinite, becomes null where that is allowed, and is left out of a table of numbers: a
    trainer's loss may be none, which must not make the journal unreadable. Elsewhere, where
    nothing but tbtui itself has measured it, the nearest number takes its place.
    """
    return {"kind": event.kind, **_fields(event)}


def _fields(event: AnyEvent) -> dict[str, Any]:
    fields = msgspec.to_builtins(msgspec.structs.asdict(event), enc_hook=_plain, str_keys=True)
    readable: dict[str, Any] = _readable(fields, _shape(event.kind))
    return readable


@cache
def _shape(kind: str) -> msgspec.inspect.Type:
    return msgspec.inspect.type_info(EVENT_TYPES[kind])


def _readable(value: Any, shape: msgspec.inspect.Type) -> Any:
    """A value, in types that JSON has, such as a reader of this type takes it."""
    match shape, value:
        case _, str():
            return _encodable(value)
        case msgspec.inspect.UnionType(), _:
            other = next(t for t in shape.types if not isinstance(t, msgspec.inspect.NoneType))
            return _readable(value, other) if _is_number(value, other) else None
        case ((msgspec.inspect.StructType() | msgspec.inspect.DataclassType()), dict()):
            types = {field.encode_name: field.type for field in shape.fields}
            return {name: _readable(each, types[name]) for name, each in value.items()}
        case msgspec.inspect.DictType(), dict():
            return {
                _encodable(name): _readable(each, shape.value_type)
                for name, each in value.items()
                if isinstance(shape.value_type, msgspec.inspect.AnyType)
                or _is_number(each, shape.value_type)
            }
        case msgspec.inspect.VarTupleType(), list() | tuple():
            return [_readable(each, shape.item_type) for each in value]
        case msgspec.inspect.AnyType(), dict():
            return {_encodable(name): _readable(each, shape) for name, each in value.items()}
        case msgspec.inspect.AnyType(), list() | tuple():
            return [_readable(each, shape) for each in value]
    if _is_number(value, shape):
        return value
    match shape:
        case msgspec.inspect.FloatType():
            most = sys.float_info.max
            return most if value > 0 else -most if value < 0 else 0.0
        case msgspec.inspect.IntType():
            return _LARGEST_INTEGER if value > 0 else -_LARGEST_INTEGER
    return None


def _is_number(value: object, shape: msgspec.inspect.Type) -> bool:
    """Whether readers of this type take the value, if it is one for numbers."""
    match value:
        case float():
            return math.isfinite(value)
        case int() if isinstance(shape, msgspec.inspect.FloatType):
            return abs(value) <= sys.float_info.max
        case int():
            return abs(value) <= _LARGEST_INTEGER
    return True


def _encodable(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


LONGEST_BODY = 30 << 20
"""Bytes of an event as JSON; readers take no value of more than 32 MiB."""


def _shortened(fields: dict[str, Any]) -> bytes:
    """Fields as JSON, the middle of long texts left out, as short ones as it takes."""
    for most in (1 << 20, 1 << 14, 1 << 8):
        body = _ENCODER.encode(_cut(fields, most))
        if len(body) <= LONGEST_BODY:
            break
    return body


def _cut(value: Any, most: int) -> Any:
    match value:
        case str() if len(value) > most:
            return f"{value[: most // 2]}[...]{value[-most // 2 :]}"
        case dict():
            return {name: _cut(each, most) for name, each in value.items()}
        case list() | tuple():
            return [_cut(each, most) for each in value]
    return value
