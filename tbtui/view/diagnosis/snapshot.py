"""What the rules see of a run: frozen, and bounded however long the run is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from tbtui.outcomes import Outcome
from tbtui.view.diagnosis.finding import MOST_TREND
from tbtui.view.state import AlarmView, RunState, StepView, TrialView
from tbtui.view.times import Outlook, step_times
from tbtui.view.waiting import Need, needs
from tbtui.vocabulary import OutageKind, Purpose, RunPhase, TrialPhase

LATEST = 64
"""Trials that an outcome's share is of: the latest that have ended."""


@dataclass(frozen=True, slots=True)
class TrialFacts:
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

    def metric(self, name: str) -> float:
        """A metric's value; 0 where the step has none, or no number."""
        value = self.metrics.get(name, 0.0)
        return value if value == value else 0.0


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A run at one moment."""

    over: bool
    seconds: float
    """Since its start, without the time in which no process ran it."""
    settings: Mapping[str, Any]
    policy: str
    needs: tuple[Need, ...]
    policy_lost: str
    """Why the run has no policy; empty: it has one."""
    server: str
    """The state of the policy's server where it answers nobody; empty: it does."""
    server_sec: float
    """How long that has been so."""
    outages: Mapping[OutageKind, tuple[int, float]]
    """Kind of outage -> how often, seconds in all."""
    steps: tuple[StepFacts, ...]
    """Finished steps, oldest first, at most `MOST_TREND`."""
    trials: tuple[TrialFacts, ...]
    """The latest `LATEST` that have ended, in the order in which they were queued."""
    members: tuple[TrialFacts, ...]
    """Training trials of the latest finished steps, as far as they are in memory."""
    paused: tuple[TrialFacts, ...]
    """Live trials that are paused or frozen."""
    running: int
    """Trials that run now."""
    queued: int
    """Trials that wait for a place."""
    sampling: bool
    """Trials are started now."""
    rates: tuple[tuple[float, int], ...]
    """Summed rewards and scored trials of each training task that has any."""
    unusable: Mapping[str, str]
    """Task -> why no trial of it starts."""
    tasks: int
    alarms: tuple[AlarmView, ...]
    """Raised at the latest step or the one before."""

    def number(self, name: str, default: float) -> float:
        """A setting that is a number."""
        value = self.settings.get(name)
        known = isinstance(value, int | float) and not isinstance(value, bool)
        return float(value) if known and value is not None else default

    def trend(self, *names: str, of: str = "") -> tuple[float, ...]:
        """The sum of metrics at each step; with `of`, as a share of that metric."""
        sums = [
            (sum(map(step.metric, names)), step.metric(of) if of else 1.0) for step in self.steps
        ]
        return tuple(
            min(1.0, max(0.0, part / whole)) if of else part for part, whole in sums if whole
        )


def take(outlook: Outlook) -> Snapshot:
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
    return Snapshot(
        over=over,
        seconds=max(0.0, state.seconds(now)),
        settings=dict(state.settings),
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
            _trial(trial, state, begun, now) for trial in live if trial.paused and not over
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


def _trial(trial: TrialView, state: RunState, begun: Mapping[int, float], now: float) -> TrialFacts:
    train, group = trial.purpose == "train", state.groups.get(trial.group)
    start = begun.get(trial.step, trial.queued_at) if train else trial.queued_at
    return TrialFacts(
        trial.trial,
        trial.label,
        trial.task,
        trial.step,
        trial.purpose,
        trial.outcome,
        trial.reason,
        trial.unreadable,
        max(0.0, trial.queued_at - start),
        None if trial.finished_at is None else max(0.0, trial.finished_at - start),
        0.0
        if trial.seconds is None
        else max(0.0, trial.seconds.verifying + trial.seconds.teardown),
        max(0.0, now - trial.phase_since) if trial.paused else None,
        trial.frozen,
        group is not None and group.disposition == "constant",
    )
