"""What the rules see of a run: frozen, and bounded however long the run is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from tbtui.findings import Finding, Unusable
from tbtui.journal.events import AlarmRaised
from tbtui.outcomes import Outcome
from tbtui.sampling import SamplingSettings
from tbtui.view.state import RunState, StepView, TrialView
from tbtui.view.times import Outlook, step_times
from tbtui.view.waiting import needs
from tbtui.vocabulary import OutageKind, Purpose, RunPhase, TrialPhase

MOST_TREND = 32
"""Steps of a trend."""
LATEST = 64
"""Trials that an outcome's share is of: the latest that have ended."""


@dataclass(frozen=True, slots=True)
class JournalledTrial:
    """A trial of the journal."""

    trial: str
    label: str
    task: str
    step: int
    purpose: Purpose
    outcome: Outcome | None
    reason: str
    unreadable: int
    """Answers that the agent's parser could not read."""
    began_sec: float
    """After its step began, seconds; 0 of a held-out trial."""
    ended_sec: float | None
    """The same; None while it runs."""
    after_sec: float
    """Seconds that it took after its agent's end: verification, teardown."""
    held_sec: float | None
    """How long it has been paused or frozen by now; None: it is not."""
    frozen: bool
    constant: bool
    """The rewards of its group are all equal."""
    budget_sec: float | None
    """How long its agent may act; None: without a limit."""


@dataclass(frozen=True, slots=True)
class StepFacts:
    """A finished step, or one under way that has no metrics yet."""

    step: int
    metrics: Mapping[str, float]
    ended: int
    """Attempts that have ended."""
    lost: int
    """How many of those infrastructure has ended."""
    waiting_sec: float
    """Seconds in which at most a quarter of its trials ran."""
    total_sec: float
    """Seconds of the step in all, pauses and reviews left out."""

    def has(self, name: str) -> bool:
        """Whether it has a metric, as a number."""
        value = self.metrics.get(name)
        return value is not None and value == value

    def metric(self, name: str) -> float:
        """A metric's value; 0 where the step has none, or no number."""
        value = self.metrics.get(name, 0.0)
        return value if value == value else 0.0


@dataclass(frozen=True, slots=True)
class RunSnapshot:
    """A run at one moment."""

    over: bool
    seconds: float
    """Since its start, without the time in which no process ran it."""
    tasks_dir: str
    settings: Mapping[str, Any]
    sampling_facts: SamplingSettings
    policy: str
    needs: tuple[Finding, ...]
    policy_lost: str
    """Why the run has no policy; empty: it has one."""
    server: str
    """The state of the policy's server where it answers no request; empty: it does."""
    server_sec: float
    """How long that has been so."""
    outages: Mapping[OutageKind, tuple[int, float]]
    """Kind of outage -> how often, seconds in all."""
    steps: tuple[StepFacts, ...]
    """Finished steps, oldest first, at most `MOST_TREND`."""
    trials: tuple[JournalledTrial, ...]
    """The latest `LATEST` that have ended, in the order in which they were queued."""
    members: tuple[JournalledTrial, ...]
    """Training trials of the latest finished steps, as far as they are in memory."""
    paused: tuple[JournalledTrial, ...]
    """Live trials that are paused or frozen."""
    running: int
    """Trials that run now."""
    queued: int
    """Trials that wait for a place."""
    sampling: bool
    """Trials are started now."""
    rates: tuple[tuple[float, int], ...]
    """Summed rewards and scored trials of each training task that has any."""
    unusable: Mapping[str, Unusable]
    """Task -> why no trial of it starts."""
    tasks: int
    alarms: tuple[AlarmRaised, ...]
    """Raised at the latest step or the one before."""

    def number(self, name: str, default: float) -> float:
        """A setting that is a number."""
        value = self.settings.get(name)
        known = isinstance(value, int | float) and not isinstance(value, bool)
        return float(value) if known and value is not None else default

    def trend(self, *names: str, of: str = "") -> tuple[float, ...]:
        """The sum of metrics at each step that has any of them; with `of`, as a share of that."""
        sums = [
            (sum(map(step.metric, names)), step.metric(of) if of else 1.0)
            for step in self.steps
            if any(map(step.has, names))
        ]
        return tuple(
            min(1.0, max(0.0, part / whole)) if of else part for part, whole in sums if whole
        )


def share_of(part: float, whole: float) -> float:
    """`part / whole` within 0 and 1; 0 where there is no whole or no number."""
    if not whole > 0:
        return 0.0
    share = part / whole
    return min(1.0, max(0.0, share)) if share == share else 0.0


def part_of(part: int, whole: int, what: str) -> str:
    """`24 of 64 trials (38%)`."""
    return f"{part} of {whole} {what} ({share_of(part, whole):.0%})"


def take(outlook: Outlook) -> RunSnapshot:
    """A frozen snapshot of an outlook's run."""
    state, now = outlook.state, outlook.now
    times = {each.step: each.seconds for each in step_times(state.timeline, now, MOST_TREND + 2)}
    finished = [step for step in islice(reversed(state.steps), MOST_TREND + 8) if step.metrics]
    finished = sorted(finished[:MOST_TREND], key=lambda step: step.step)
    begun = {step.step: step.started_at for step in islice(reversed(state.steps), MOST_TREND)}
    newest = {step.step for step in finished[-3:]}
    ended = [
        trial
        for trial in state.trials.values()
        if not trial.live and trial.outcome not in (None, Outcome.CANCELLED)
    ]
    live = state.live_trials()
    server = state.policy_now.server if state.policy_now is not None else None
    down = state.status is None and server is not None and server.held_up
    over = state.status is not None
    return RunSnapshot(
        over=over,
        seconds=state.seconds(now),
        tasks_dir=state.tasks_dir,
        settings=dict(state.settings),
        sampling_facts=_sampling_facts(state),
        policy=state.policy,
        needs=needs(outlook),
        policy_lost=state.policy_lost.reason if state.policy_lost is not None else "",
        server=server.words if down and server is not None else "",
        server_sec=max(0.0, now - server.since) if down and server is not None else 0.0,
        outages=dict(state.outages),
        steps=tuple(_step(step, times.get(step.step, {})) for step in finished),
        trials=tuple(_trial(trial, state, begun, now) for trial in ended[-LATEST:]),
        members=tuple(
            _trial(trial, state, begun, now)
            for trial in ended
            if trial.purpose == "train" and trial.step in newest
        ),
        paused=tuple(
            _trial(trial, state, begun, now) for trial in live if trial.hold.paused and not over
        ),
        running=sum(trial.phase is not TrialPhase.QUEUED for trial in live),
        queued=sum(trial.phase is TrialPhase.QUEUED for trial in live),
        sampling=state.phase in (RunPhase.SAMPLING, RunPhase.EVALUATING) and not over,
        rates=tuple(
            (task.reward_sum, task.scored)
            for task in state.tasks.values()
            if task.split == "train" and task.scored
        ),
        unusable=dict(state.unusable),
        tasks=len(state.tasks),
        alarms=tuple(alarm for alarm in state.alarms if alarm.step >= state.step - 1),
    )


def _sampling_facts(state: RunState) -> SamplingSettings:
    settings = state.settings
    temperature, agent = settings.get("temperature"), settings.get("agent")
    return SamplingSettings(
        float(temperature) if isinstance(temperature, int | float) else 1.0,
        state.thinks and settings.get("thinking") != "off",
        agent if isinstance(agent, str) else "terminus-2",
        state.settings.get("agent_examples", "0") != "0",
        state.policy == "local",
        settings.get("top_p", 1) != 1 or bool(settings.get("top_k") or settings.get("min_p")),
    )


def _step(step: StepView, seconds: Mapping[Any, float]) -> StepFacts:
    aside = seconds.get("paused", 0.0) + seconds.get("reviewing", 0.0)
    return StepFacts(
        step.step,
        dict(step.metrics),
        step.ended,
        step.left_out["infrastructure"],
        seconds.get("waiting", 0.0),
        max(0.0, sum(seconds.values()) - aside),
    )


def _trial(
    trial: TrialView, state: RunState, begun: Mapping[int, float], now: float
) -> JournalledTrial:
    train, group = trial.purpose == "train", state.groups.get(trial.group)
    start = begun.get(trial.step, trial.queued_at) if train else trial.queued_at
    return JournalledTrial(
        trial.trial,
        trial.label,
        trial.task,
        trial.step,
        trial.purpose,
        trial.outcome,
        trial.reason,
        trial.unreadable,
        max(0.0, trial.queued_at - start),
        # What a person, or the pace, held it for is not its own.
        None
        if trial.finished_at is None
        else max(0.0, trial.finished_at - start - trial.paused_sec),
        0.0
        if trial.seconds is None
        else max(0.0, trial.seconds.verifying + trial.seconds.teardown),
        max(0.0, now - trial.phase_since) if trial.hold.paused else None,
        trial.hold.frozen,
        group is not None and group.disposition == "constant",
        trial.budget_sec,
    )
