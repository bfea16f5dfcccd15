"""What a run looks like at one moment: plain data, folded from the journal by `fold.py`.

Bounded however long the run is: everything of a trial but its summary is read from the journal
when somebody looks at it (`transcript.py`).
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field
from itertools import chain, takewhile
from typing import Any, Literal, get_args

from tbtui.findings import Unusable
from tbtui.journal.events import (
    AlarmRaised,
    Disposition,
    Estimate,
    ForksStarted,
    GpusMeasured,
    GroupUnderReview,
    PhaseSeconds,
    ProbeMeasured,
    ProbeStarted,
    ProcessMeasured,
    ReviewClosed,
    RunStatus,
    TaskBelief,
    TrialForked,
    TurnsValued,
)
from tbtui.journal.figures import Downtime, planned_steps
from tbtui.journal.hold import RUNNING, Hold
from tbtui.outcomes import INFRASTRUCTURE, Outcome
from tbtui.view.lanes import LaneRecord
from tbtui.view.sentences import HeldOut
from tbtui.view.server import PolicyLostView, PolicyView
from tbtui.vocabulary import (
    CommandVerb,
    OutageKind,
    Purpose,
    RunPhase,
    TrialPhase,
)

MAX_FINISHED_TRIALS = 512
MAX_STEPS = 4096
MAX_STRETCHES = 1024
MAX_NOTES = 200
MAX_ALARMS = 100
MAX_COMMANDS = 500
RECENT_REWARDS = 64
RECENT_DURATIONS = 64
TASK_DURATIONS = 16

Spending = Literal[
    "queue", "build", "setup", "sampling", "commands", "delayed", "paused", "verifying", "teardown"
]
"""What a trial's wall time goes to, in the order of a trial's life; named as in PhaseSeconds."""
SPENDINGS: tuple[Spending, ...] = get_args(Spending)
COLOURED_SPENDINGS: tuple[Spending, ...] = tuple(each for each in SPENDINGS if each != "delayed")
"""Those that a theme has a colour for: to be delayed is to wait, as in the queue."""

Activity = Literal[
    "starting", "sampling", "waiting", "reviewing", "training", "saving", "evaluating", "paused"
]
"""`waiting`: for the last quarter of a step's trials, or for a policy that was lost; `paused`: the
run is, or all trials at work of the batch that it goes on with are."""
ACTIVITIES: tuple[Activity, ...] = get_args(Activity)

LeftOut = Literal["infrastructure", "masked", "cancelled", "excluded", "retried"]
"""Why a finished trial has no part in training."""


@dataclass(slots=True)
class TrialView:
    """One attempt at a task."""

    trial: str
    label: str
    task: str
    group: str
    step: int
    purpose: Purpose
    attempt: int
    budget_sec: float | None
    """0: not reported; None: no limit."""
    queued_at: float
    phase: TrialPhase = TrialPhase.QUEUED
    phase_since: float = 0.0
    detail: str = ""
    started_at: float | None = None
    """When it left the queue."""
    finished_at: float | None = None
    turn: int = 0
    answered: bool = False
    """The model has answered in this turn, and the agent has not yet gone on: a pace holds it."""
    held_since: float | None = None
    """Since when a pace holds it, with its clocks stopped."""
    hold: Hold = RUNNING
    touched: bool = False
    """A person has typed in its terminal, or written to its agent."""
    parent: str = ""
    """The trial that it forks; empty: none."""
    fork_turn: int = 0
    """Its first own turn."""
    forked: TrialForked | None = None
    """How the state was reached that it began from."""
    paused_sec: float = 0.0
    """Whole pauses so far, a pace's among them, without the one that may be under way."""
    spent: dict[Spending, float] = field(default_factory=dict)
    """Seconds by what they went to, up to `spent_until`."""
    spent_until: float = 0.0
    spending: Spending = "queue"
    """What its time goes to since `spent_until`."""
    samples: list[int] = field(default_factory=list)
    """Ids of its completions, by turn."""
    last_text: str = ""
    """The newest completion."""
    writing: str = ""
    """What the model has written of the answer that is under way."""
    drawn: int = 0
    """Tokens of that."""
    last_command: str = ""
    """The newest keystrokes, on one line."""
    completion_tokens: int = 0
    logprob_sum: float = 0.0
    unreadable: int = 0
    """Answers that the agent's parser could not read."""
    weights_version: int | None = None
    outcome: Outcome | None = None
    reason: str = ""
    verdict: float | None = None
    reward: float | None = None
    baseline: float | None = None
    advantage: float | None = None
    tokens: int | None = None
    """Action tokens, once its group is scored."""
    signal: float | None = None
    """How strongly it pulls at the weights, in the unit of its step (`shares.py`)."""
    seconds: PhaseSeconds | None = None
    predecessor: str | None = None
    """The attempt that this one replaces."""
    successor: str | None = None
    retry_reason: str = ""
    """Why its successor was started."""
    retry_at: float | None = None
    """When the successor may start; on both of the pair."""
    excluded: bool = False
    """A person left it out of training."""
    exclusion_reason: str = ""
    relabelled: bool = False
    """Somebody gave it another reward than the verifier's verdict led to."""
    relabel_reason: str = ""
    overdue: bool = False
    """The step's deadline passed while it ran."""
    pending: str = ""
    """A command that was issued and is not done: `pause`, `stop`, ..."""

    @property
    def live(self) -> bool:
        return self.finished_at is None

    @property
    def armed(self) -> bool:
        """Whether it is queued and pauses at its first turn."""
        return self.phase is TrialPhase.QUEUED and self.pending == "pause"

    @property
    def unscored(self) -> bool:
        """Whether it ended without a reward."""
        return self.outcome is not None and self.reward is None

    @property
    def infrastructure(self) -> bool:
        """Whether infrastructure failed: shown as `!`, never as a failure."""
        return self.unscored and self.outcome in INFRASTRUCTURE

    @property
    def left_out(self) -> LeftOut | None:
        """Why it has no part in training; None while it has one or may get one."""
        if self.excluded:
            return "excluded"
        if self.unscored:
            if self.outcome in INFRASTRUCTURE:
                return "infrastructure"
            return "cancelled" if self.outcome is Outcome.CANCELLED else "masked"
        return "retried" if self.successor is not None else None

    @property
    def mean_logprob(self) -> float | None:
        """Mean log-probability of its tokens, nats; None without any, or while only the trainer
        has them."""
        known = self.samples and self.completion_tokens
        return self.logprob_sum / self.completion_tokens if known else None


@dataclass(slots=True)
class TaskView:
    """A task and how it has gone."""

    name: str
    kind: str
    """The category that it is listed under."""
    difficulty: str | None
    split: Purpose
    scored: int = 0
    reward_sum: float = 0.0
    unscored: int = 0
    lost: int = 0
    """How many of the unscored infrastructure has ended."""
    live: int = 0
    recent: deque[float] = field(default_factory=lambda: deque(maxlen=16))
    """Latest rewards, oldest first."""
    dataset: str = ""
    """Empty where the run has one data set."""
    belief: TaskBelief | None = None
    """What its groups in training have said; None: it has had none."""
    factor: float = 1.0
    """Its weight is multiplied by it, because somebody wants that; 0: it is muted."""
    pinned: bool = False
    """Somebody wants it in every batch."""

    @property
    def pass_rate(self) -> float | None:
        return self.reward_sum / self.scored if self.scored else None

    @property
    def flake_rate(self) -> float | None:
        """Share of its trials that infrastructure has ended."""
        ended = self.scored + self.unscored
        return self.lost / ended if ended else None

    @property
    def recent_rate(self) -> float | None:
        """Mean of the latest rewards."""
        return sum(self.recent) / len(self.recent) if self.recent else None


@dataclass(slots=True)
class GroupView:
    group: str
    task: str
    step: int
    trials: list[str] = field(default_factory=list)
    disposition: Disposition | None = None
    baseline: float | None = None
    refilled: int = 0
    """Trials that took the place of members lost to other causes than the policy."""
    forks: ForksStarted | None = None
    """It is of forks: whose, and from which turn on."""
    replaces: str = ""
    """The group with nothing to teach in whose place it was started."""


@dataclass(slots=True)
class ReviewView:
    """A step's stop before its optimiser step: what would be trained if it were accepted now."""

    step: int
    since: float
    groups: tuple[GroupUnderReview, ...] = ()
    undecided: tuple[str, ...] = ()
    """Trials without a decision, which it waits for."""
    until: float | None = None
    """When it closes by itself; later by as long as the run is paused."""
    paused_at: float | None = None
    """Since when its time stands still."""
    closed: ReviewClosed | None = None
    """None while it is open."""
    closed_at: float = 0.0

    def pause(self, now: float) -> None:
        if self.paused_at is None:
            self.paused_at = now

    def resume(self, now: float) -> None:
        if self.until is not None and self.paused_at is not None:
            self.until += now - self.paused_at
        self.paused_at = None

    def left(self, now: float) -> float | None:
        """Seconds until it closes by itself; None: it waits for ever."""
        at = now if self.paused_at is None else self.paused_at
        return None if self.until is None else max(0.0, self.until - at)

    @property
    def ending(self) -> str:
        """`accepted by ada`; empty while it is open."""
        if self.closed is None:
            return ""
        match self.closed.how:
            case "accepted":
                return f"accepted by {self.closed.actor}"
            case "rules":
                return "decided by its rules"
            case "timeout":
                return "no decision in time"


@dataclass(slots=True)
class StepView:
    step: int
    started_at: float
    finished_at: float | None = None
    groups: list[str] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)
    """Rewards of the trials that have a part in training."""
    outcomes: Counter[Outcome] = field(default_factory=Counter)
    """How those ended."""
    left_out: Counter[LeftOut] = field(default_factory=Counter)
    queued: int = 0
    """Attempts at its trials so far."""
    ended: int = 0
    """How many of those have ended."""
    signals: dict[str, float] = field(default_factory=dict)
    """Scored group -> sum of its trials' signals."""
    metrics: dict[str, float] = field(default_factory=dict)

    @property
    def mean_reward(self) -> float | None:
        return sum(self.rewards) / len(self.rewards) if self.rewards else None


@dataclass(slots=True)
class Stretch:
    """A stretch of time in which the run did one thing."""

    activity: Activity
    step: int
    """That it was done for; an evaluation is for the step before it."""
    since: float
    until: float | None = None
    """None: it goes on."""
    paced: bool = False
    """A pace held trials meanwhile: it says nothing of how long such work takes."""

    @property
    def work(self) -> bool:
        """Whether its time is what the run takes: no start, pause, review or pace."""
        return self.activity not in _RESTS and not self.paced

    def seconds(self, now: float) -> float:
        return max(0.0, (now if self.until is None else self.until) - self.since)


_RESTS: frozenset[Activity] = frozenset({"starting", "reviewing", "paused"})


@dataclass(frozen=True, slots=True)
class EvalView:
    step: int
    temperature: float
    pass_rate: float | None
    scored: int
    unscored: int
    by_kind: dict[str, float]
    time: float
    pass_at: dict[int, Estimate] = field(default_factory=dict)
    """k -> share of tasks that k attempts solve at least once."""
    held_out: HeldOut | None = None
    metrics: dict[str, float] = field(default_factory=dict)
    """What it consumed, and what the run had consumed with it."""
    seconds: float | None = None
    """Seconds of its own work; None: not known, because a pace held it."""
    worked_sec: float = 0.0
    """Seconds of the whole run's work, up to its end."""


@dataclass(frozen=True, slots=True)
class Duration:
    """How long a finished trial took."""

    turns: int
    seconds: float
    """On its feet: neither queued nor paused."""


@dataclass(slots=True)
class CommandView:
    """A command and its result."""

    command: str
    verb: CommandVerb
    target: str
    label: str
    """The target's, for people."""
    actor: str
    reason: str
    time: float
    done_at: float | None = None
    ok: bool | None = None
    """None while it is under way."""
    result: str = ""
    arguments: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Note:
    time: float
    level: Literal["info", "warning", "error", "alarm"]
    text: str


@dataclass(slots=True)
class RunState:
    """The whole run. `version` grows with every event folded in."""

    version: int = 0
    seq: int = 0
    """The last event's."""
    time: float = 0.0
    """The last event's."""
    run: str = ""
    started_at: float | None = None
    downtime: Downtime = field(default_factory=Downtime)
    finished_at: float | None = None
    policy: str = ""
    model_name: str = ""
    parameters: int | None = None
    environment: str = ""
    environment_reason: str = ""
    tasks_dir: str = ""
    settings: dict[str, Any] = field(default_factory=dict)
    thinks: bool = False
    """An answer has had thinking."""
    phase: RunPhase = RunPhase.STARTING
    phase_since: float = 0.0
    phase_detail: str = ""
    phase_step: int = 0
    """Optimiser steps that were done when it began."""
    paused: bool = False
    paused_for: str = ""
    """The outage that paused it, where no person did: what is out of order, and the way on."""
    step: int = 0
    """Optimiser steps done."""
    weights_version: int = 0
    status: RunStatus | None = None
    reason: str = ""
    tasks: dict[str, TaskView] = field(default_factory=dict)
    trials: dict[str, TrialView] = field(default_factory=dict)
    """All live ones, all of batches under way and the latest others, in the order they were
    queued."""
    held: bool = False
    """Whether people have held any trial so far; in most runs they have not."""
    groups: dict[str, GroupView] = field(default_factory=dict)
    turn_values: dict[str, TurnsValued] = field(default_factory=dict)
    """Trial -> the values of its turns that were measured last."""
    reviews: dict[int, ReviewView] = field(default_factory=dict)
    """Open ones, by step; the step that is trained first comes first."""
    review_closed: ReviewView | None = None
    """The last one that was."""
    steps: deque[StepView] = field(default_factory=lambda: deque(maxlen=MAX_STEPS))
    timeline: deque[Stretch] = field(default_factory=lambda: deque(maxlen=MAX_STRETCHES))
    """What the run did when, without gaps but those between its processes."""
    worked_sec: float = 0.0
    """Seconds of work in the stretches that have ended."""
    lanes: LaneRecord = field(default_factory=LaneRecord)
    """What the sampler and the trainer did when."""
    evals: list[EvalView] = field(default_factory=list)
    probe: ProbeStarted | None = None
    """What is tried, where the run is a probe."""
    probed: ProbeMeasured | None = None
    """What came of it so far."""
    rewarded: deque[tuple[str, float]] = field(default_factory=lambda: deque(maxlen=RECENT_REWARDS))
    """The latest scored training trials, each with its reward."""
    dataset_rewards: dict[str, deque[float]] = field(default_factory=dict)
    """Latest rewards of training trials of each data set, oldest first."""
    kind_rewards: dict[tuple[str, str, Purpose], deque[float]] = field(default_factory=dict)
    """Latest rewards of each data set's kinds of tasks, in training and apart from it, oldest
    first."""
    unseen: TaskBelief | None = None
    """What is believed of tasks that have had no group."""
    unusable: dict[str, Unusable] = field(default_factory=dict)
    """Task -> why no trial of it starts."""
    held_out_rates: dict[str, float] = field(default_factory=dict)
    """Task -> pass rate in the latest evaluation, if that has scored it."""
    trials_finished: int = 0
    rollouts: int = 0
    """Training trials finished; cut off and cancelled ones are none."""
    totals: dict[str, float] = field(default_factory=dict)
    """What the run has consumed so far, in tokens and money, as it was measured last."""
    workers: dict[int, int] = field(default_factory=dict)
    """Worker -> pid."""
    policy_now: PolicyView | None = None
    policy_lost: PolicyLostView | None = None
    """While the run has no policy."""
    outages: dict[OutageKind, tuple[int, float]] = field(default_factory=dict)
    """How often each kind of outage is over, and how many seconds they lasted in all."""
    processes: tuple[ProcessMeasured, ...] = ()
    engine_lag_ms: float = 0.0
    gpus: dict[str, GpusMeasured] = field(default_factory=dict)
    """By machine, in the order they were first heard of."""
    alarms: deque[AlarmRaised] = field(default_factory=lambda: deque(maxlen=MAX_ALARMS))
    alarms_raised: int = 0
    notes: deque[Note] = field(default_factory=lambda: deque(maxlen=MAX_NOTES))
    notes_made: int = 0
    commands: deque[CommandView] = field(default_factory=lambda: deque(maxlen=MAX_COMMANDS))
    """The latest, in the order they were given."""
    commands_listed: int = 0
    """All that were among them."""
    pending: dict[str, CommandView] = field(default_factory=dict)
    """By id, those that are not done."""
    left_out: Counter[LeftOut] = field(default_factory=Counter)
    """Finished training trials that have no part in training, by why."""
    durations: deque[Duration] = field(default_factory=lambda: deque(maxlen=RECENT_DURATIONS))
    """Durations of the latest trials that ended by themselves."""
    task_durations: dict[str, deque[Duration]] = field(default_factory=dict)
    """The same by task."""

    def seconds(self, now: float) -> float:
        """Seconds since its start, without the time in which no process ran it."""
        if self.started_at is None:
            return 0.0
        # A machine's clock may be set back.
        return max(0.0, now - self.started_at - self.downtime.seconds)

    @property
    def max_steps(self) -> int:
        """Where training ends, as the settings say; passes over the tasks need the tasks."""
        return planned_steps(
            self.settings, sum(task.split == "train" for task in self.tasks.values())
        )

    @property
    def rewards(self) -> list[float]:
        """Rewards of the latest scored training trials, oldest first."""
        return [reward for _, reward in self.rewarded]

    def step_view(self, step: int) -> StepView | None:
        """The step of this number, if it is remembered; several may be under way at once."""
        return next((each for each in reversed(self.steps) if each.step == step), None)

    def open_steps(self) -> list[StepView]:
        """The steps under way, the one that is trained next first."""
        unfinished = takewhile(lambda step: step.finished_at is None, reversed(self.steps))
        return sorted(unfinished, key=lambda step: step.step)

    def latest_metric(self, name: str) -> float | None:
        """The metric's value in the last finished step that has it."""
        finished = (step for step in reversed(self.steps) if name in step.metrics)
        return next((step.metrics[name] for step in finished), None)

    def rewarded_step(self) -> StepView | None:
        """The step whose rewards are shown: the one that is trained next, once a trial of it has
        ended; until then the one before."""
        finished = (step for step in reversed(self.steps) if step.finished_at is not None)
        steps = chain(self.open_steps()[:1], finished)
        return next((s for s in steps if s.rewards or any(s.left_out.values())), None)

    def live_trials(self) -> list[TrialView]:
        return [trial for trial in self.trials.values() if trial.live]

    def running_trials(self) -> list[TrialView]:
        return [t for t in self.trials.values() if t.live and t.phase is not TrialPhase.QUEUED]
