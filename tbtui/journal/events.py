"""The vocabulary of a run: every event that the engine writes and every view reads.

Events are facts in the past tense, frozen, and complete in themselves: a view needs nothing but
the events before them. Times are not in the events: the journal stamps each one. Large things
(tokens, terminal output) are stored once elsewhere in the run directory and referred to.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter

from tbtui.journal.typed import Typed
from tbtui.journal.vocabulary import AlarmName as AlarmName
from tbtui.journal.vocabulary import CommandVerb as CommandVerb
from tbtui.journal.vocabulary import OutageKind as OutageKind
from tbtui.journal.vocabulary import Outcome as Outcome
from tbtui.journal.vocabulary import Purpose as Purpose
from tbtui.journal.vocabulary import RunPhase as RunPhase
from tbtui.journal.vocabulary import SuspectName as SuspectName
from tbtui.journal.vocabulary import TrialPhase as TrialPhase
from tbtui.journal.vocabulary import is_reward


def _possible(reward: float | None) -> float | None:
    """A reward as it can be trained on: an older journal may hold one that can't."""
    return reward if reward is not None and is_reward(reward) else None


Reward = Annotated[float | None, AfterValidator(_possible)]
"""None where there is none, or where it is beyond what a reward can be."""


class Event(BaseModel):
    # Built at first use: three dozen models would take a third of the app's start.
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


class TrialEvent(Event):
    """An event of one trial."""

    trial: str
    """Unique in the run; also the name of the trial's directory under `trials/`."""


class TaskRecord(BaseModel):
    """A task as the run knows it."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    name: str
    kind: str | None = None
    category: str | None = None
    difficulty: str | None = None
    split: Purpose
    dataset: str = ""
    """The data set that it is of; empty where the run has one."""


class RunStarted(Event):
    kind: Literal["run_started"] = "run_started"
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


class RunContinued(Event):
    """A run that had ended, or was killed, goes on from a checkpoint.

    Steps whose weights were lost with the process are trained again on the rollouts that the
    journal has of them, so that no finished trial is lost and none counts twice.
    """

    kind: Literal["run_continued"] = "run_continued"
    pid: int
    host: str
    tbtui_version: str
    harbor_version: str
    checkpoint: str | None
    """Relative to the run directory; None: from the start."""
    step: int
    """Of the checkpoint."""
    replayed: tuple[int, ...]
    """Steps after it that are trained again."""
    reused: int
    """Finished trials of steps and evaluations that had not finished."""
    requeued: tuple[str, ...]
    """Trials that were under way, and start again."""
    settings: dict[str, Any]
    """Every setting in force from here on."""


class RunPhaseChanged(Event):
    kind: Literal["run_phase_changed"] = "run_phase_changed"
    phase: RunPhase
    step: int
    """Optimiser steps done so far."""
    detail: str = ""


class RunPaused(Event):
    kind: Literal["run_paused"] = "run_paused"
    reason: str = ""
    """What the run waits for, where an outage paused it and no person: the way on included."""


class RunResumed(Event):
    kind: Literal["run_resumed"] = "run_resumed"


class RunFinished(Event):
    kind: Literal["run_finished"] = "run_finished"
    status: Literal["finished", "failed", "interrupted"]
    reason: str


class StepStarted(Event):
    """A batch of groups begins. `step` counts from 1."""

    kind: Literal["step_started"] = "step_started"
    step: int
    groups: dict[str, str]
    """Group id -> task name."""


class EvalStarted(Event):
    kind: Literal["eval_started"] = "eval_started"
    step: int
    tasks: int
    trials: int
    temperature: float


class TrialQueued(TrialEvent):
    """An attempt at a task enters the queue."""

    kind: Literal["trial_queued"] = "trial_queued"
    label: str
    """Short, for the screen: `copy-03/2`."""
    task: str
    group: str
    step: int
    purpose: Purpose
    attempt: int = 1
    budget_sec: float
    """Active time that the agent has; pauses don't count."""


class TrialPhaseChanged(TrialEvent):
    kind: Literal["trial_phase_changed"] = "trial_phase_changed"
    phase: TrialPhase
    detail: str = ""


class TurnStarted(TrialEvent):
    """The agent asks the policy what to do. Turns count from 1."""

    kind: Literal["turn_started"] = "turn_started"
    turn: int
    purpose: str = "turn"
    """Else what this call in between is for: a step of summarising the history after `turn`."""


class TurnSampled(TrialEvent):
    """The policy answered. Token ids, log-probabilities and pieces are in the samples table."""

    kind: Literal["turn_sampled"] = "turn_sampled"
    turn: int
    purpose: str = "turn"
    """As in `TurnStarted`."""
    sample: int | None
    """None: only the trainer has the tokens; `TrialTraced` tells of them, or nobody does."""
    text: str
    """What the agent reads."""
    thinking: str = ""
    """What came before it."""
    prompt_tokens: int
    completion_tokens: int
    mean_logprob: float | None
    """None where `sample` is, as of all that the tokens tell."""
    min_logprob: float | None
    stop_reason: Literal["stop", "length"]
    weights_version: int | None
    cached_tokens: int | None = None
    """Of the prompt, in the sampler's cache; None where it doesn't tell."""
    seconds: float


class AgentCommand(BaseModel):
    model_config = ConfigDict(frozen=True, defer_build=True)

    keystrokes: str
    duration_sec: float


class TurnParsed(TrialEvent):
    """What Terminus-2 understood of the completion."""

    kind: Literal["turn_parsed"] = "turn_parsed"
    turn: int
    analysis: str
    plan: str
    commands: tuple[AgentCommand, ...]
    task_complete: bool
    error: str | None = None
    """What the parser could not read; the agent is told and tries again."""
    warning: str | None = None


class TurnObserved(TrialEvent):
    """The terminal answered; this text opens the next prompt."""

    kind: Literal["turn_observed"] = "turn_observed"
    turn: int
    observation: str
    seconds: float


class PhaseSeconds(BaseModel):
    """Where a trial's wall time went, in seconds."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    queue: float = 0.0
    build: float = 0.0
    """Building the image and starting the sandbox."""
    setup: float = 0.0
    """Installing the agent and its terminal."""
    sampling: float = 0.0
    commands: float = 0.0
    paused: float = 0.0
    verifying: float = 0.0
    teardown: float = 0.0

    @property
    def active(self) -> float:
        """Of all, those in which it was neither queued nor paused."""
        return (
            self.build + self.setup + self.sampling + self.commands + self.verifying + self.teardown
        )


class TrialFinished(TrialEvent):
    kind: Literal["trial_finished"] = "trial_finished"
    outcome: Outcome
    reason: str
    """One line: why this outcome."""
    verdict: float | None
    """What the verifier said, untouched; None when it never spoke."""
    reward: Reward
    """What training may use; None is *no reward*, never zero."""
    turns: int
    seconds: PhaseSeconds
    verifier_output: str = ""


class CallTraced(BaseModel):
    """What the tokens of one model call tell, as in `TurnSampled`."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    turn: int
    purpose: str = "turn"
    sample: int
    prompt_tokens: int
    completion_tokens: int
    mean_logprob: float
    min_logprob: float
    cached_tokens: int | None = None


class TrialTraced(TrialEvent):
    """A trainer that isn't ours told what it knows of a trial that ran under our eyes."""

    kind: Literal["trial_traced"] = "trial_traced"
    group: str
    step: int
    """Whose batch it came back for."""
    weights_version: int
    calls: tuple[CallTraced, ...]
    """Of those calls in the trial's `TurnSampled` events whose tokens it has, in their order."""


class TrialRetried(TrialEvent):
    """`trial` is given up; `successor` takes its place in the group."""

    kind: Literal["trial_retried"] = "trial_retried"
    successor: str
    reason: str
    wait_sec: float = 0.0
    """Back-off before the successor may start."""


class CompletionRetried(TrialEvent):
    """The policy failed to give a completion and is asked for the same one again."""

    kind: Literal["completion_retried"] = "completion_retried"
    turn: int
    tries: int
    """How often it has been asked for in vain."""
    reason: str
    wait_sec: float


class TasksSetAside(Event):
    """Tasks that can't be used in this run's environment: no further trial of them starts."""

    kind: Literal["tasks_set_aside"] = "tasks_set_aside"
    tasks: dict[str, str]
    """Task -> one line that says why."""
    by: Literal["preflight", "trial"]
    """Found before the first trial, or by one."""


class TrialExcluded(TrialEvent):
    """A person left the trial out of training, or (`excluded` false) took that back."""

    kind: Literal["trial_excluded"] = "trial_excluded"
    excluded: bool
    reason: str = ""


class GroupRefilled(Event):
    """A group that lost members to other causes than the policy gets fresh trials."""

    kind: Literal["group_refilled"] = "group_refilled"
    step: int
    group: str
    trials: tuple[str, ...]
    """The new ones."""


class DeadlinePassed(Event):
    """The step's trials have had their time; what is done with those that still run."""

    kind: Literal["deadline_passed"] = "deadline_passed"
    step: int
    action: Literal["stop", "mask"]
    trials: tuple[str, ...]


class GroupAdded(Event):
    """A step starts a further group, in place of one that has nothing to teach."""

    kind: Literal["group_added"] = "group_added"
    step: int
    group: str
    task: str
    replaces: str
    """Empty: no other one; in a run that is watched, groups become known one by one."""


class TrialScore(BaseModel):
    model_config = ConfigDict(frozen=True, defer_build=True)

    reward: float | None
    advantage: float | None
    """None: left out of the group and its baseline."""
    tokens: int
    """Action tokens that the trial would contribute."""
    segments: int = 1
    """Training sequences that these are in."""


class GroupScored(Event):
    kind: Literal["group_scored"] = "group_scored"
    step: int
    group: str
    task: str
    disposition: Literal["trained", "constant", "short"]
    """`constant`: all rewards equal, nothing to learn; `short`: too few members left."""
    baseline: float | None
    trials: dict[str, TrialScore]


class Suspicion(BaseModel):
    model_config = ConfigDict(frozen=True, defer_build=True)

    suspect: SuspectName
    why: str
    """One line with the figures."""


class GroupUnderReview(BaseModel):
    """What a group would be trained with, if the step were accepted now."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    group: str
    task: str
    disposition: Literal["trained", "constant", "short"]
    baseline: float | None
    trials: dict[str, TrialScore]
    suspects: dict[str, tuple[Suspicion, ...]] = {}
    """Trial -> what is odd about it, decided upon or not."""


class ReviewOpened(Event):
    """A step's trials are over, and it is not trained before somebody accepts it."""

    kind: Literal["review_opened"] = "review_opened"
    step: int
    groups: tuple[GroupUnderReview, ...]
    """In the order in which they are trained on."""
    undecided: tuple[str, ...] = ()
    """Trials for whose sake it waits: no rule has decided upon them."""
    timeout_sec: float | None = None
    """Seconds after which it closes by itself."""


class ReviewChanged(Event):
    """Something was decided: what would be trained now. Fresh trials may be under way."""

    kind: Literal["review_changed"] = "review_changed"
    step: int
    groups: tuple[GroupUnderReview, ...]
    undecided: tuple[str, ...] = ()


class TrialRelabelled(TrialEvent):
    """Somebody gave the trial another reward. The verifier's verdict stays what it was."""

    kind: Literal["trial_relabelled"] = "trial_relabelled"
    reward: Reward
    """In force from now on."""
    before: Reward
    reason: str
    taken_back: bool = False
    """It is again the reward that the verdict led to."""


class ReviewClosed(Event):
    """The step goes on to be trained, as the last of its decisions left it."""

    kind: Literal["review_closed"] = "review_closed"
    step: int
    how: Literal["accepted", "rules", "timeout"]
    actor: str
    reason: str = ""


class StepFinished(Event):
    kind: Literal["step_finished"] = "step_finished"
    step: int
    weights_version: int
    metrics: dict[str, float]


class Estimate(BaseModel):
    """A rate with its 95% confidence interval."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    value: float
    low: float
    high: float


class EvalFinished(Event):
    """Held-out tasks, attempted with the weights of `step`. Unscored trials are not counted."""

    kind: Literal["eval_finished"] = "eval_finished"
    step: int
    weights_version: int
    temperature: float
    pass_rate: float | None
    scored: int
    unscored: int
    by_kind: dict[str, float]
    by_dataset: dict[str, float] = {}
    """Of a run that has several."""
    pass_at: dict[int, Estimate] = {}
    """k -> share of tasks that k attempts solve at least once; mean over tasks."""
    by_task: dict[str, float] = {}
    mean_reward: float | None = None
    """Mean over scored trials; differs from the pass rate where verifiers give partial rewards."""
    unscored_tasks: int = 0
    """Tasks none of whose trials was scored: they are in no rate."""
    metrics: dict[str, float] = {}
    """What it consumed, and what the run has with it."""


class CheckpointSaved(Event):
    kind: Literal["checkpoint_saved"] = "checkpoint_saved"
    step: int
    weights_version: int
    path: str
    """Relative to the run directory."""


class CheckpointRemoved(Event):
    """Neither among the latest nor the best any more."""

    kind: Literal["checkpoint_removed"] = "checkpoint_removed"
    step: int
    path: str


class BestCheckpoint(Event):
    """This checkpoint has the best held-out pass rate so far, and stays."""

    kind: Literal["best_checkpoint"] = "best_checkpoint"
    step: int
    path: str
    pass_rate: float


class AlarmRaised(Event):
    """Training looks wrong, by these numbers."""

    kind: Literal["alarm_raised"] = "alarm_raised"
    alarm: AlarmName
    step: int
    text: str
    """One line: what, how much, against what."""
    numbers: dict[str, float]
    action: Literal["warn", "pause", "halt"]


class CommandIssued(Event):
    """A person or a script asked for something."""

    kind: Literal["command_issued"] = "command_issued"
    command: str
    verb: CommandVerb
    target: str
    """A trial's id, or `run`."""
    actor: str
    reason: str = ""
    arguments: dict[str, Any] = {}
    """What the verb needs besides."""


class CommandDone(Event):
    kind: Literal["command_done"] = "command_done"
    command: str
    ok: bool
    result: str


class SettingsChanged(Event):
    """From here on these settings have other values, until they change again."""

    kind: Literal["settings_changed"] = "settings_changed"
    settings: dict[str, Any]
    before: dict[str, Any]


class TrialPaused(TrialEvent):
    """The trial stands still, and so does its time budget."""

    kind: Literal["trial_paused"] = "trial_paused"
    frozen: bool = False
    """Within a turn, with the sandbox's processes stopped; else at a turn boundary."""


class TrialResumed(TrialEvent):
    kind: Literal["trial_resumed"] = "trial_resumed"


class TrialTakenOver(TrialEvent):
    """A person types in its terminal from here on, while the trial stands at a turn boundary."""

    kind: Literal["trial_taken_over"] = "trial_taken_over"
    actor: str


class HumanTyped(TrialEvent):
    """These keys went to its terminal. From the first one on the trial is `human_touched`."""

    kind: Literal["human_typed"] = "human_typed"
    actor: str
    parts: tuple[Typed, ...]
    """At most `journal.typed.MAX_TYPED_BYTES` in all."""


class TrialGivenBack(TrialEvent):
    """Nobody types in it any more; the agent's next prompt shows the terminal as it is."""

    kind: Literal["trial_given_back"] = "trial_given_back"
    actor: str
    """Who had it."""


class WorkerStarted(Event):
    kind: Literal["worker_started"] = "worker_started"
    worker: int
    pid: int


class WorkerLost(Event):
    kind: Literal["worker_lost"] = "worker_lost"
    worker: int
    pid: int
    reason: str
    trials: tuple[str, ...]


class WorkerRecycled(Event):
    """A worker left after its last trial, because it had grown old; a fresh one replaces it."""

    kind: Literal["worker_recycled"] = "worker_recycled"
    worker: int
    pid: int
    reason: str


class RequestsMeasured(BaseModel):
    """Requests of one kind to the policy's server."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    kind: str
    in_flight: int
    oldest_sec: float | None
    completed: int
    failed: int
    p50_sec: float | None
    p95_sec: float | None


class LatencyMeasured(BaseModel):
    """A latency that the policy's server measures itself, over its last minute."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    kind: Literal["first_token", "inter_token", "queue", "end_to_end"]
    p50_sec: float
    p95_sec: float
    count: int
    """Measurements that the percentiles are of."""


class ServerMeasured(BaseModel):
    """What the policy's server says of itself, and what can be seen of it from outside."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    state: str
    """`active`, `paused_capacity`, `paused_rate_limit`, `paused_billing`, `failing`, `unreachable`
    or `unknown`."""
    reason: str
    since: float
    """Seconds since the epoch."""
    requests: tuple[RequestsMeasured, ...]
    retries: int
    prompt_tokens: int
    cached_tokens: int
    kv_cache_use: float | None = None
    """Of its memory for histories, from 0 to 1, where it tells (vLLM)."""
    preemptions: int | None = None
    """Requests that it put back because that memory was full, since its start."""
    latencies: tuple[LatencyMeasured, ...] = ()
    """Where it measures some (vLLM) and there was something to measure."""


class PolicyLost(Event):
    """What was being trained is gone from its server; the run goes on from its last checkpoint."""

    kind: Literal["policy_lost"] = "policy_lost"
    step: int
    reason: str
    wait_sec: float
    """Before a new policy is made."""


class OutageBegan(Event):
    """Something that the run can't do without is out of order; nothing is charged for it."""

    kind: Literal["outage_began"] = "outage_began"
    what: OutageKind
    text: str
    """One line: what is out of order, and where."""
    remedy: str
    """One line: what a person can do, and what happens by itself."""


class OutageEnded(Event):
    kind: Literal["outage_ended"] = "outage_ended"
    what: OutageKind
    seconds: float
    text: str = ""


class PolicyMeasured(Event):
    """The policy's queue, once a second while it changes."""

    kind: Literal["policy_measured"] = "policy_measured"
    activity: str
    in_flight: int
    running: int
    completed: int
    sampled_tokens: int
    p50_sec: float | None
    p95_sec: float | None
    server: ServerMeasured | None = None


class ProcessMeasured(BaseModel):
    model_config = ConfigDict(frozen=True, defer_build=True)

    role: str
    pid: int
    rss_mb: float
    cpu: float
    """Cores in use since the last measurement; 1.0 is one core."""


class ResourcesMeasured(Event):
    kind: Literal["resources_measured"] = "resources_measured"
    processes: tuple[ProcessMeasured, ...]
    engine_lag_ms: float
    """Worst delay of the engine's event loop since the last measurement."""


class GpuMeasured(BaseModel):
    """One GPU at one moment; None: it doesn't tell."""

    model_config = ConfigDict(frozen=True, defer_build=True)

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
    """Of those, how many this run has started."""
    problem: str = ""
    """Why it can't be measured at all."""


class GpusMeasured(Event):
    """The GPUs of one machine, every few seconds while they change."""

    kind: Literal["gpus_measured"] = "gpus_measured"
    host: str
    gpus: tuple[GpuMeasured, ...]
    unreachable: str = ""
    """Why the machine can't be asked; then there are no `gpus`."""


class Noted(Event):
    """Something a person should know that is no other event."""

    kind: Literal["noted"] = "noted"
    level: Literal["info", "warning", "error"]
    text: str


AnyEvent = Annotated[
    RunStarted
    | RunContinued
    | RunPhaseChanged
    | RunPaused
    | RunResumed
    | RunFinished
    | StepStarted
    | EvalStarted
    | TrialQueued
    | TrialPhaseChanged
    | TurnStarted
    | TurnSampled
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
    | CommandIssued
    | CommandDone
    | SettingsChanged
    | TrialPaused
    | TrialResumed
    | TrialTakenOver
    | HumanTyped
    | TrialGivenBack
    | WorkerStarted
    | WorkerLost
    | WorkerRecycled
    | PolicyLost
    | OutageBegan
    | OutageEnded
    | PolicyMeasured
    | ResourcesMeasured
    | GpusMeasured
    | Noted,
    Field(discriminator="kind"),
]

EVENT_TYPES: dict[str, type[Event]] = {
    event.model_fields["kind"].default: event for event in get_args(get_args(AnyEvent)[0])
}
"""By their kind, as the journal names it."""

EVENT: TypeAdapter[AnyEvent] = TypeAdapter(AnyEvent, config=ConfigDict(defer_build=True))


@dataclass(frozen=True, slots=True)
class Entry:
    """One event of the journal."""

    seq: int
    time: float
    """Seconds since the epoch."""
    event: AnyEvent
