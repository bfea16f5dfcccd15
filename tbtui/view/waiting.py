"""What a run is waiting for, in words."""

from __future__ import annotations

from collections.abc import Sequence

from tbtui.journal.vocabulary import RunPhase, TrialPhase
from tbtui.view.estimate import Outlook, remaining_sec, time_left
from tbtui.view.server import PolicyLostView
from tbtui.view.state import TrialView

_DOING = {
    TrialPhase.SETUP: "setting up",
    TrialPhase.MODEL: "waiting for the model",
    TrialPhase.ACTING: "acting",
    TrialPhase.VERIFYING: "verifying",
    TrialPhase.TEARDOWN: "tearing down",
    TrialPhase.QUEUED: "queued",
    TrialPhase.FINISHED: "finished",
    TrialPhase.PAUSED: "paused",
}


def verb_words(verb: str) -> str:
    """A command's verb as people read it."""
    return verb.replace("_", " ")


def duration(seconds: float) -> str:
    """`4s`, `3m12s`, `2h05m`."""
    whole = max(0, int(seconds))
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    return f"{whole // 3600}h{whole % 3600 // 60:02d}m"


def number_range(steps: Sequence[int]) -> str:
    """`step 4`, `steps 4 to 9`."""
    return f"step {steps[0]}" if len(steps) == 1 else f"steps {min(steps)} to {max(steps)}"


def step_of(step: int, most: int) -> str:
    """`step 3 of 10`; `step 3` where nobody knows how many there will be."""
    return f"step {step} of {most}" if most else f"step {step}"


def doing(trial: TrialView) -> str:
    """What one trial is doing: `turn 5, acting`."""
    if trial.outcome is not None:
        return str(trial.outcome).replace("_", " ")
    if trial.typist:
        return "a person"
    if trial.paused:
        return "frozen" if trial.frozen else "paused"
    word = _DOING[trial.phase]
    return (
        f"turn {trial.turn}, {word}"
        if trial.turn and trial.phase is not TrialPhase.QUEUED
        else word
    )


def waiting_for(outlook: Outlook) -> str:
    """One phrase for the status line: who or what holds the run up at this moment."""
    state, now = outlook.state, outlook.now
    if state.status is not None:
        return state.reason
    if state.policy_lost is not None:
        return f"the lost policy; {new_policy(state.policy_lost, now)}"
    server = state.policy_now.server if state.policy_now is not None else None
    if server is not None and server.held_up and server.in_flight and not state.paused:
        return f"the server, {server.words} ({duration(now - server.since)})"
    # Before its first event a run is in no phase yet.
    since = duration(now - (state.phase_since or now))
    match state.phase:
        case RunPhase.STARTING:
            return f"{state.phase_detail or 'starting'} ({since})"
        case RunPhase.SAMPLING | RunPhase.EVALUATING:
            return _waiting_for_trials(outlook)
        case RunPhase.REVIEWING:
            return f"somebody's review ({since})"
        case RunPhase.TRAINING:
            return f"the optimiser step ({since})"
        case RunPhase.SAVING:
            return "the checkpoint to be written"
        case RunPhase.STOPPING:
            return "the trials to be cleaned up"
        case RunPhase.FINISHED:
            return state.reason


def new_policy(lost: PolicyLostView, now: float) -> str:
    """`a new one in 12s`, `a new one (since 3s)`."""
    left = lost.retry_at - now
    return f"a new one in {duration(left)}" if left >= 1 else f"a new one (since {duration(-left)})"


def retry_wait(trial: TrialView, now: float) -> str:
    """`retry in 4 s`, while a successor is held back; empty otherwise."""
    if trial.retry_at is None or (trial.started_at is not None and trial.live):
        return ""
    left = trial.retry_at - now
    return f"retry in {max(1, round(left))} s" if left > 0 else ""


def _waiting_for_trials(outlook: Outlook) -> str:
    state, now = outlook.state, outlook.now
    running = state.running_trials()
    paused = [trial for trial in running if trial.paused]
    if running and len(paused) == len(running):
        if paused[0].typist:
            return f"{paused[0].typist} to give {paused[0].label} back"
        return "the run to be resumed" if state.paused else f"{paused[0].label} to be resumed"
    if len(paused) == len(running):
        if state.paused:
            return "the run to be resumed"
        retries = [trial for trial in state.trials.values() if retry_wait(trial, now)]
        if retries:
            return f"{retries[0].label} ({retry_wait(retries[0], now)})"
        return "a trial to start"
    if state.paused:
        left = len(running) - len(paused)
        return f"{left} trial{'s' if left > 1 else ''} to reach the end of a turn"
    last = outlook.holding_up[0]
    remaining = remaining_sec(last, state, now)
    how_long = (
        duration(now - (last.started_at or now))
        if remaining is None
        else f"{time_left(remaining)} left"
    )
    return f"{last.label} ({doing(last)}, {how_long})"
