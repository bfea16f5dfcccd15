"""What a run is waiting for, in words."""

from __future__ import annotations

from tbtui.journal.events import RunPhase, TrialPhase
from tbtui.view.state import RunState, TrialView

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


def duration(seconds: float) -> str:
    """`4s`, `3m12s`, `2h05m`."""
    whole = max(0, int(seconds))
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    return f"{whole // 3600}h{whole % 3600 // 60:02d}m"


def doing(trial: TrialView) -> str:
    """What one trial is doing: `turn 5, acting`."""
    if trial.outcome is not None:
        return str(trial.outcome).replace("_", " ")
    if trial.paused:
        return "paused"
    word = _DOING[trial.phase]
    return (
        f"turn {trial.turn}, {word}"
        if trial.turn and trial.phase is not TrialPhase.QUEUED
        else word
    )


def waiting_for(state: RunState, now: float) -> str:
    """One phrase for the status line: who or what holds the run up at this moment."""
    if state.status is not None:
        return state.reason
    since = duration(now - state.phase_since)
    match state.phase:
        case RunPhase.STARTING:
            return f"{state.phase_detail or 'starting'} ({since})"
        case RunPhase.SAMPLING | RunPhase.EVALUATING:
            return _waiting_for_trials(state, now)
        case RunPhase.TRAINING:
            return f"the optimiser step ({since})"
        case RunPhase.SAVING:
            return "the checkpoint to be written"
        case RunPhase.STOPPING:
            return "the trials to be cleaned up"
        case RunPhase.FINISHED:
            return state.reason


def _waiting_for_trials(state: RunState, now: float) -> str:
    running = state.running_trials()
    paused = [trial for trial in running if trial.paused]
    if running and len(paused) == len(running):
        return "the run to be resumed" if state.paused else f"{paused[0].label} to be resumed"
    acting = [trial for trial in running if not trial.paused]
    if not acting:
        return "the run to be resumed" if state.paused else "a trial to start"
    oldest = min(acting, key=lambda trial: trial.started_at or now)
    age = duration(now - (oldest.started_at or now))
    return f"{oldest.label} ({doing(oldest)}, {age})"
